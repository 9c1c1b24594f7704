from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from dump_files import dump, page, prose

from polyrank.errors import DataError, MissingExtraError, StorageError, UsageError
from polyrank.pretraining.corpus import batches
from polyrank.pretraining.corpus import convert as converting
from polyrank.pretraining.corpus.convert import CorpusLayout, convert
from polyrank.pretraining.corpus.detection import kind_of, source_at
from polyrank.pretraining.corpus.parts import Parts
from polyrank.pretraining.corpus.store import Corpus

SMALL = CorpusLayout(group_size=400, part_groups=2)
HERE = Path(__file__).parent


def many(count):
    for number in range(count):
        yield page(f"Thing {number}", prose(number), number=number)
        yield page(f"Old {number}", redirect=f"Older {number}#There", number=1000 + number)
        yield page(f"Older {number}", redirect=f"Thing {number + 1}", number=2000 + number)


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "wiki.xml"
    path.write_text(dump(*many(12), page("Talk:A", ns=1), page("A", redirect="a")))
    return path


def work_folder(output):
    return output.with_name(f".{output.name}.converting")


def files(folder):
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def test_a_dump_becomes_a_corpus(source, tmp_path):
    corpus = convert(source, tmp_path / "corpus", layout=SMALL)
    assert corpus.counts == {
        "articles": 12,
        "redirects": 25,
        "sections": 24,
        "paragraphs": 36,
        "sentences": 60,
        "links": 48,
        "redirected_links": 12,
    }
    bare = convert(source_at(source, lists=False), tmp_path / "bare").counts
    assert (bare["paragraphs"], bare["sentences"], bare["links"]) == (24, 48, 48)
    assert {reason: found.count for reason, found in corpus.dropped.items()} == {
        "other namespace": 1,
        "circular redirect": 1,
    }
    assert len(corpus.manifest.parts) > 2
    article = list(corpus)[5]
    assert article.title == "Thing 5"
    history = article.sections[1].paragraphs[0]
    assert [link.target for link in history.links] == ["1900 + 5", "Thing 6"]
    assert [history.text[start:stop] for start, stop, _ in history.links] == ["1900 + 5", "Old 5"]
    assert not work_folder(corpus.path).exists()


def test_any_number_of_processes_gives_the_same_bytes(source, tmp_path):
    convert(source, tmp_path / "one", layout=SMALL)
    convert(source, tmp_path / "two", layout=SMALL, num_processes=2)
    assert files(tmp_path / "one") == files(tmp_path / "two")


def stop_after(count, monkeypatch):
    """Let the conversion fail when `count` parts are finished."""
    note = Parts.note

    def failing(self, finished):
        note(self, finished)
        if len(self.finished) == count:
            raise KeyboardInterrupt

    monkeypatch.setattr(Parts, "note", failing)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_an_interrupted_conversion_goes_on_to_the_same_bytes(source, tmp_path, monkeypatch, count):
    convert(source, tmp_path / "whole", layout=SMALL)
    with monkeypatch.context() as patched:
        stop_after(count, patched)
        with pytest.raises(KeyboardInterrupt):
            convert(source, tmp_path / "other", layout=SMALL)
    assert len(list(work_folder(tmp_path / "other").glob("part-*.parquet"))) == count
    again = []
    convert_batch = batches.convert_batch
    monkeypatch.setattr(
        batches, "convert_batch", lambda *given: again.append(1) or convert_batch(*given)
    )
    convert(source, tmp_path / "other", layout=SMALL)
    assert 0 < len(again) <= 7 - count * SMALL.part_groups
    assert files(tmp_path / "whole") == files(tmp_path / "other")


KILLED = """
import os, signal, sys
from polyrank.pretraining.corpus.convert import CorpusLayout, convert
at, count = int(sys.argv[3]), 0
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
def hear(event, arguments):
    global count
    if event in ("os.rename", "os.remove", "os.mkdir", "os.truncate", "os.rmdir") or (
        event == "open" and isinstance(arguments[2], int) and arguments[2] & WRITING):
        count += 1
        if count == at:
            os.kill(os.getpid(), signal.SIGKILL)
sys.addaudithook(hear)
os.fsync = lambda _: None
convert(sys.argv[1], sys.argv[2], layout=CorpusLayout(group_size=400, part_groups=2))
print(count)
"""


def run_killed(source, output, at):
    """Convert in a forked child that is killed at its n-th operation on files; its exit status."""
    child = os.fork()
    if not child:
        sys.argv = ["-", str(source), str(output), str(at)]
        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), 1)
            exec(compile(KILLED, "killed", "exec"), {"__name__": "killed"})
        os._exit(0)
    return os.waitpid(child, 0)[1]


def test_killed_anywhere_the_same_command_finishes_it(tmp_path):
    script = tmp_path / "killing.py"
    script.write_text(
        f"import sys; sys.path.insert(0, {str(HERE)!r})\n"
        "from pathlib import Path\n"
        "from test_convert import killed_everywhere\n"
        "killed_everywhere(Path(sys.argv[1]))\n"
    )
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "ARROW_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, script, tmp_path], env=environment, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    assert json.loads(done.stdout) > 20


def killed_everywhere(folder):
    """Kill a conversion at each of its operations on files, then run it again."""
    os.fsync = lambda _: None
    source = folder / "wiki.xml"
    source.write_text(dump(*many(8)))
    whole = convert(source, folder / "whole", layout=SMALL)
    expected = files(whole.path)
    at = 0
    while True:
        at += 1
        output = folder / f"corpus-{at}"
        if run_killed(source, output, at) == 0:
            break
        convert(source, output, layout=SMALL)
        assert files(output) == expected, at
        left = list(folder.glob(f".corpus-{at}.*"))
        assert not left, left
    print(at)


def test_a_finished_corpus_is_opened_and_another_is_refused(source, tmp_path):
    output = tmp_path / "corpus"
    convert(source, output, layout=SMALL)
    before = files(output)
    renamed = source.rename(tmp_path / "renamed.xml")
    assert len(convert(renamed, output, layout=SMALL)) == 12
    assert files(output) == before
    other = tmp_path / "other.xml"
    other.write_text(dump(page("Only")))
    with pytest.raises(UsageError, match=r"made from another source \(wiki.xml\).*--restart"):
        convert(other, output, layout=SMALL)
    with pytest.raises(UsageError, match=r"other settings \(language = None\).*--restart"):
        convert(source_at(renamed, language="de"), output, layout=SMALL)
    assert files(output) == before
    assert len(convert(other, output, layout=SMALL, restart=True)) == 1


def test_unfinished_work_of_another_source_is_refused(source, tmp_path, monkeypatch):
    with monkeypatch.context() as patched:
        stop_after(1, patched)
        with pytest.raises(KeyboardInterrupt):
            convert(source, tmp_path / "corpus", layout=SMALL)
    other = tmp_path / "other.xml"
    other.write_text(dump(page("Only")))
    with pytest.raises(UsageError, match=r"unfinished conversion with another source.*--restart"):
        convert(other, tmp_path / "corpus", layout=SMALL)
    with monkeypatch.context() as patched:
        patched.setattr(converting, "__version__", "9.9")
        with pytest.raises(
            UsageError, match=r"unfinished conversion with another version.*--restart"
        ):
            convert(source, tmp_path / "corpus", layout=SMALL)
    assert len(convert(other, tmp_path / "corpus", layout=SMALL, restart=True)) == 1


def test_a_folder_that_is_no_corpus_is_never_replaced(source, tmp_path):
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "me.jpg").touch()
    with pytest.raises(UsageError, match="not a corpus"):
        convert(source, tmp_path / "photos", restart=True)


def test_a_dump_that_is_cut_off_keeps_what_came_before(tmp_path):
    source = tmp_path / "wiki.xml"
    content = dump(*many(12))
    source.write_text(content[: content.index("Thing 9")])
    output = tmp_path / "corpus"
    with pytest.raises(
        DataError, match=r"in the middle of the page .* --keep-going .* 9 documents"
    ):
        convert(source, output, layout=SMALL)
    assert not output.exists()
    assert list(work_folder(output).glob("part-*.parquet"))
    corpus = convert(source, output, layout=SMALL, keep_going=True)
    assert [article.title for article in corpus] == [f"Thing {n}" for n in range(9)]
    assert "middle of the page" in corpus.manifest.damage


@pytest.mark.parametrize("pages", [(), (page("A", redirect="B"), page("C", ""))])
def test_a_dump_without_articles_is_an_error(tmp_path, pages):
    source = tmp_path / "wiki.xml"
    source.write_text(dump(*pages))
    with pytest.raises(DataError, match=r"wiki\.xml: It has no documents"):
        convert(source, tmp_path / "corpus", keep_going=True)
    assert [path.name for path in tmp_path.iterdir()] == ["wiki.xml"]


def test_a_page_that_is_too_broken_to_be_read_costs_itself(tmp_path):
    source = tmp_path / "wiki.xml"
    bad = page("Bad", "{{a|" * 5_000)
    source.write_text(dump(page("A", "One [[b]]."), bad, page("Z", "Two.")))
    corpus = convert(source, tmp_path / "corpus")
    assert [article.title for article in corpus] == ["A", "Z"]
    assert corpus.dropped["broken markup"].count == 1
    assert corpus.dropped["broken markup"].examples == (
        "Bad: 5,000 unclosed brackets and tags in 20,000 characters",
    )


def test_mwparserfromhell_that_is_missing_is_named(source, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "mwparserfromhell", None)
    with pytest.raises(MissingExtraError, match=r"polyrank\[wiki\]"):
        convert(source, tmp_path / "corpus")
    assert not work_folder(tmp_path / "corpus").exists()


def test_a_full_disk_leaves_what_was_there(source, tmp_path, monkeypatch):
    from polyrank.pretraining.corpus import parts

    other = tmp_path / "other.xml"
    other.write_text(dump(page("Only")))
    convert(other, tmp_path / "corpus")

    def full(writer, batch):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(parts, "write_row_group", full)
        with pytest.raises(StorageError, match="No space left"):
            convert(source, tmp_path / "corpus", layout=SMALL, restart=True)
    assert [article.title for article in Corpus.open(tmp_path / "corpus")] == ["Only"]


def test_conversations_become_a_corpus_too(tmp_path):
    source = tmp_path / "talk.jsonl"
    rows = [
        {
            "id": f"c{n}",
            "turns": [{"speaker": "a", "text": f"Hi {n}"}, {"speaker": "b", "text": "Yo"}],
        }
        for n in range(30)
    ]
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert kind_of(source).name == "conversations"
    layout = CorpusLayout(group_size=20, part_groups=3)
    corpus = convert(source_at(source, language="ko"), tmp_path / "corpus", layout=layout)
    assert corpus.kind == "conversations"
    assert corpus.language == "ko"
    assert corpus.counts == {"conversations": 30, "turns": 60}
    assert [talk.id for talk in corpus] == [row["id"] for row in rows]
    assert list(corpus)[3].turns[0] == ("a", "Hi 3")


def test_reddit_comments_become_conversations(tmp_path):
    source = tmp_path / "RC_2012-01"
    rows = [
        {"id": f"e{n}", "parent_id": f"t1_e{n - 1}" if n else "t3_p", "link_id": "t3_p",
         "author": "ab"[n % 2], "body": f"This is comment number {n}."}
        for n in range(3)
    ]  # fmt: skip
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    (talk,) = convert(source, tmp_path / "corpus")
    assert [turn.text for turn in talk.turns] == [row["body"] for row in rows]


@pytest.mark.parametrize(
    ("name", "content", "kind"),
    [
        ("a.xml", "", "wikipedia"),
        ("a.txt", "<mediawiki x='y'>", "wikipedia"),
        ("a.jsonl", '{"title": "A", "text": "b"}\n', "articles"),
        ("a.jsonl", '{"title": "A", "sections": [' + '"x", ' * 30_000, "articles"),
        ("a.jsonl", '{"id": "1", "turns": []}\n', "conversations"),
        ("a.jsonl", '{"context": ["a"], "response": "b"}\n', "conversations"),
        ("RC_2012-01", '{"parent_id": "t3_x", "body": "b", "id": "1"}\n', "reddit"),
        ("RS_2012-01", '{"id": "x", "title": "A", "selftext": ""}\n', "reddit"),
        ("a.txt", "Hello.", "books"),
        ("a.txt", '{"title": "A", "text": "b"}\n', "articles"),
    ],
)
def test_a_source_is_told_by_its_first_bytes(tmp_path, name, content, kind):
    (tmp_path / name).write_text(content)
    assert kind_of(tmp_path / name).name == kind


def test_several_files_are_of_one_kind_that_takes_several(tmp_path):
    for name, content in (("a.txt", "Hello."), ("b.txt", "Bye."), ("c.xml", ""), ("d.xml", "")):
        (tmp_path / name).write_text(content)
    with pytest.raises(UsageError, match="A corpus of wikipedia needs exactly one file, got 2"):
        source_at(tmp_path / "c.xml", tmp_path / "d.xml")
    with pytest.raises(UsageError, match=r"a\.txt is books, and .*c\.xml is wikipedia"):
        source_at(tmp_path / "a.txt", tmp_path / "c.xml")
    both = source_at(tmp_path / "a.txt", tmp_path / "b.txt", tmp_path / "*.txt")
    assert [path.name for path in both.files] == ["a.txt", "b.txt"]
    with pytest.raises(DataError, match="no such file"):
        source_at(tmp_path / "none*.txt", kind="books").describe()


def test_a_source_that_is_nothing_known_is_refused(tmp_path):
    (tmp_path / "a.md").write_text("Hello.")
    with pytest.raises(DataError, match="--format"):
        kind_of(tmp_path / "a.md")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"no \.txt files and no dumps of Reddit.*--format"):
        kind_of(tmp_path / "empty")
    with pytest.raises(UsageError, match="Did you mean 'wikipedia'"):
        source_at(tmp_path / "a.md", kind="wikpedia")
    with pytest.raises(DataError, match="no such file"):
        convert(tmp_path / "none.xml", tmp_path / "corpus")
