"""`polyrank search INDEX` answers the lines of standard input as they come."""

import contextlib
import io
import json
import os
import select
import subprocess
import sys

import pytest

from polyrank.cli.main import commands, run
from polyrank.errors import UsageError
from polyrank.records import Hit
from polyrank.retrieval.engine import Found, SearchReport, SearchResults
from polyrank.retrieval.index import Index
from tiny_encoders import TEXTS, load_variant

LINES = b"""read a file

hello\t no sound
["one \\t two", "three"]
{"context": "disk", "filter": "year == 2020"}
{"context": ["disk", "full"], "top_k": 1, "exact": true}
"""


@pytest.fixture(scope="module")
def path(bert, tmp_path_factory):
    folder = tmp_path_factory.mktemp("conversation") / "index"
    model = load_variant("poly-learnt", bert)
    texts = [text for text in TEXTS if text]
    rows = [(f"t{i}", text, {"year": 2019 + i % 2}) for i, text in enumerate(texts)]
    Index.build(model, rows, folder)
    return str(folder)


@pytest.fixture
def ask(path, monkeypatch, capsys):
    def ask(data, *arguments):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data), "ascii"))
        code = run(["search", path, "--device", "cpu", *arguments], commands())
        return code, *capsys.readouterr()

    return ask


def objects(out):
    return [json.loads(line) for line in out.splitlines()]


def test_every_line_is_answered_in_its_form(ask):
    code, out, _ = ask(LINES, "--json", "-k", "2")
    assert code == 0
    found = objects(out)
    contexts = ["read a file", ["hello", "no sound"], ["one \t two", "three"], "disk"]
    assert [each["context"] for each in found] == [*contexts, ["disk", "full"]]
    assert [len(each["hits"]) for each in found] == [2, 2, 2, 2, 1]
    assert [each["num_candidates"] for each in found] == [9, 9, 9, 4, 9]
    assert {"strategy", "num_scored", "certified", "num_reranked"} <= found[0].keys()


def test_answers_are_those_of_a_search_for_the_text(ask):
    _, streamed, _ = ask(b"read a file\n", "-k", "3", "--filter", "year >= 2020", "--exact")
    _, single, _ = ask(b"", "read a file", "-k", "3", "--filter", "year >= 2020", "--exact")
    assert streamed == single
    assert streamed.startswith("> read a file\n   1. ")
    assert streamed.endswith("certified\n\n")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b'{"context": "a", "filter": "colour == 1"}', "The index has no field 'colour'"),
        (b'{"context": "a", "filter": "year =="}', "filter"),
        (b'{"context": "a", "top_k": 0}', "top_k must be a whole number of at least 1, got 0"),
        (b'{"context": "a", "top_k": true}', "line 2: top_k must be a whole number, got true"),
        (b'{"contexts": "a"}', "There is no setting 'contexts'. Did you mean 'context'?"),
        (b'{"context": [" "]}', "The context must be a text or a list of texts"),
        (b'{"filter": "year == 2020"}', "The context must be a text or a list of texts"),
        (b'{"context": ', "line 2: The line begins like JSON and is not"),
        (b'["a", 1]', "The context must be a text or a list of texts"),
        (b'["a", "b"', "line 2: The line begins like JSON and is not"),
        (b"\xff", "standard input, line 2: The text is not UTF-8"),
    ],
)
def test_a_bad_line_is_an_error_and_the_next_is_answered(ask, line, words):
    data = b"yes\n" + line + b"\nno sound\n"
    code, out, err = ask(data, "--json")
    before, bad, after = objects(out)
    assert [before["context"], after["context"]] == ["yes", "no sound"]
    assert before["hits"]
    assert after["hits"]
    assert words in bad["error"]["message"]
    assert err.count("Error: ") == 1
    assert bad["error"]["message"] in err
    assert code == 2  # a script sees that not every question was answered


def test_a_bad_filter_of_the_command_is_said_of_every_line(ask):
    code, out, err = ask(b"yes\nno\n", "--filter", "colour == 1")
    assert (code, out, err.count("no field 'colour'")) == (2, "", 2)


def test_brackets_and_braces_inside_a_text_are_text(ask):
    _, out, _ = ask(b"[solved] {disk}\n", "--json")
    assert objects(out)[0]["context"] == "[solved] {disk}"


def test_nothing_to_search_for(ask):
    code, _, err = ask(b"\n \n")
    assert code == 2
    assert "There is no text to search for." in err


def test_lines_that_are_there_are_searched_together(ask, monkeypatch):
    calls = []

    def search(_, contexts, top_k, *, exact, filter):
        calls.append((list(contexts), filter))
        if "bad" in contexts:
            raise UsageError("It is bad.", "Ask another.")
        report = SearchReport(strategy="scan", num_candidates=9, num_scored=9, certified=True)
        return SearchResults(Found([Hit(context, 1.0, "")], report) for context in contexts)

    monkeypatch.setattr(Index, "search", search)
    lines = ["a", "b", '{"context": "c", "filter": "x"}', *[f"d{i}" for i in range(40)]]
    code, out, _ = ask("".join(f"{line}\n" for line in lines).encode(), "--json")
    ids = [each["hits"][0]["id"] for each in objects(out)]
    assert ids == ["a", "b", "c", *lines[3:]]
    assert [(len(contexts), filter) for contexts, filter in calls] == [
        (2, None),
        (1, "x"),
        (29, None),
        (11, None),
    ]
    code, out, _ = ask(b"a\nbad\nb\n", "--json")
    assert code == 2
    assert [each.get("error", {}).get("message") for each in objects(out)] == [
        None,
        "It is bad. Ask another.",
        None,
    ]


def start(path, *arguments, **streams):
    command = [sys.executable, "-m", "polyrank", "search", path, "--device", "cpu", *arguments]
    return subprocess.Popen(command, **streams)


def test_a_process_converses_and_sees_what_others_add(path, bert, tmp_path):
    own = tmp_path / "own"
    model = load_variant("poly-learnt", bert)
    index = Index.build(model, [("first", "the wifi driver")], own)
    with start(
        str(own), "--json", stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None

        def answer(question):
            process.stdin.write(question + "\n")
            process.stdin.flush()
            return json.loads(process.stdout.readline())

        assert [hit["id"] for hit in answer("print")["hits"]] == ["first"]
        index.add([("second", "print")])
        assert [hit["id"] for hit in answer("print")["hits"]] == ["second", "first"]
        index.delete(["first"])
        assert [hit["id"] for hit in answer("print")["hits"]] == ["second"]
        process.stdin.close()
        assert process.wait(60) == 0


@pytest.mark.skipif(os.name == "nt", reason="no pseudo-terminals")
@pytest.mark.parametrize("end", [b"\x04", b"\x03"], ids=["ctrl-d", "ctrl-c"])
def test_a_terminal_has_a_prompt(path, end):
    import pty

    ours, theirs = pty.openpty()
    with start(
        path,
        "-k",
        "1",
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        preexec_fn=controlling,
    ) as process:
        os.close(theirs)

        def until(words):
            seen = b""
            while not seen.endswith(words):
                assert select.select([ours], [], [], 120)[0], seen
                try:
                    chunk = os.read(ours, 4096)
                except OSError:  # Linux says so that the other side is closed
                    chunk = b""
                if not chunk:
                    return seen
                seen += chunk
            return seen

        try:
            assert b"Type a question and press Enter; Ctrl-D ends." in until(b"> ")
            os.write(ours, b"print\n")
            answered = until(b"\n> ")
            assert b"[t2] print\r\n" in answered
            assert b"> print" not in answered  # the terminal shows what was typed
            os.write(ours, b'\n["broken"\n')
            assert b"Error:" in until(b".\r\n> ")
            for _ in range(12):  # Python misses Ctrl-C between the prompt and its wait for a key
                os.write(ours, end)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(10)
                    break
            assert process.wait(10) == 0
        finally:
            process.kill()  # else leaving the block waits for it
    os.close(ours)


def controlling():
    """Make the terminal that of the process, so that Ctrl-C there reaches it."""
    import fcntl
    import termios

    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
