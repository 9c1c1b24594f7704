"""The pages with instructions run as they are printed, block after block, in a folder of their own.

| block | what happens |
|---|---|
| a language with `title="NAME"` | is written to the file NAME |
| `python` | runs, in one namespace per page |
| `bash` | each line is a `polyrank` command, which must succeed; `polyrank serve … &` runs on |
| `output` | what the block above it printed |
| `text` | an illustration |

Anything else is refused, so that no block is forgotten. The hub's cache has tiny stand-ins under
the ids that the pages name, so `output` is only checked to be there. With POLYRANK_REAL_WEIGHTS=1
the stand-in for all-MiniLM-L6-v2 is the model itself, and each output has to be the printed one,
but for times; `...` in the page stands for anything.
"""

import contextlib
import doctest
import json
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from hub_stand_ins import REAL
from markdown_it import MarkdownIt

from polyrank.cli.main import commands, run

DOCS = Path(__file__).parents[2] / "docs"
READMES = sorted(DOCS.parent.glob("README*.md"))
PAGES = [*READMES, DOCS / "index.md", *sorted((DOCS / "tutorials").glob("*.md"))]
INFO = re.compile(r'(?P<language>\w+)(?: title="(?P<title>[\w.-]+)")?')
SAME = doctest.OutputChecker()
DEFAULT_ADDRESS = "http://127.0.0.1:8000"
VARIES = re.compile(r"(?:\d+ min )?\d[\d.,]*(?= (?:s|[a-z]+/s|MB|GB)\b)")
"""Times, rates and memory, which differ from run to run."""


@dataclass(frozen=True)
class Block:
    """A fenced block of a page, and the line of its first word."""

    language: str
    title: str | None
    text: str
    line: int


def blocks_of(page):
    """Every block of a page, in order; one that the table above does not know is refused."""
    blocks = []
    for token in MarkdownIt().parse(page.read_text(encoding="utf-8")):
        if token.type not in ("fence", "code_block"):
            continue
        place = f"{page.name}:{token.map[0] + 1}"
        known = INFO.fullmatch(token.info)
        assert known, f"{place}: not a block that is run, a file, output or text: {token.info!r}"
        language, title = known["language"], known["title"]
        assert title or language in ("python", "bash", "output", "text"), f"{place}: {language}?"
        blocks.append(Block(language, title, token.content, token.map[0] + 1))
    return blocks


def commands_of(block):
    """The commands of a block, as lists of words."""
    whole = block.text.replace("\\\n", " ")
    return [words for line in whole.splitlines() if (words := shlex.split(line, comments=True))]


def run_page(page, capsys):
    """Run the blocks of a page in the current folder."""
    names, printed = {"__name__": "__main__"}, ""
    address = DEFAULT_ADDRESS
    with contextlib.ExitStack() as stack:
        for block in blocks_of(page):
            place = f"{page.name}:{block.line}"
            if block.title:
                Path(block.title).write_text(block.text, encoding="utf-8")
            elif block.language == "python":
                code = "\n" * block.line + block.text.replace(DEFAULT_ADDRESS, address)
                exec(compile(code, str(page), "exec"), names)
                printed = capsys.readouterr().out
            elif block.language == "bash":
                printed = ""
                for words in commands_of(block):
                    if words[-1] == "&":
                        address = stack.enter_context(serving(words[:-1]))
                    else:
                        printed += run_command(words, place, capsys)
            elif block.language == "output":
                check_output(block, printed, place)


def check_output(block, printed, place):
    """What a page shows is what was printed, if the weights are real."""
    assert printed.strip(), f"{place}: nothing was printed above"
    shown, seen = (VARIES.sub("N", text).rstrip() for text in (block.text, printed))
    same = SAME.check_output(shown, seen, doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    assert same or not REAL, f"{place} has\n{block.text}\nbut this was printed:\n{printed}"


@contextlib.contextmanager
def serving(words):
    """The address of a server that runs beside the page, on a free port."""
    command = [sys.executable, "-m", *words, "--port", "0", "--drain-seconds", "0", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            yield json.loads(server.stdout.readline())["url"]
        finally:
            server.terminate()
    assert server.returncode == 0


def run_command(words, place, capsys):
    """What a command prints, which has to succeed."""
    assert words[0] == "polyrank", f"{place}: only polyrank is run here: {words}"
    code = run(words[1:], commands())
    captured = capsys.readouterr()
    assert code == 0, f"{place}: {shlex.join(words)}\n{captured.err}"
    return captured.out


@pytest.mark.parametrize("page", PAGES, ids=[page.stem for page in PAGES])
def test_a_page_runs_as_printed(page, hub_with_stand_ins, tmp_path, monkeypatch, capsys):
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    run_page(page, capsys)


def write_page(folder, text):
    page = folder / "page.md"
    page.write_text(text, encoding="utf-8")
    return page


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("```\npolyrank\n```", "page.md:1: not a block that is run"),
        ("    indented", "page.md:1: not a block that is run"),
        ("```yaml\na: 1\n```", "page.md:1: yaml?"),
        ("```bash\npip install polyrank\n```", "page.md:1: only polyrank is run here"),
        ("\n```bash\npolyrank evaluate x --data y\n```", "page.md:2: polyrank evaluate x --data y"),
        ("```python\nx = 1\n```\n```output\n1\n```", "page.md:4: nothing was printed above"),
    ],
)
def test_a_page_that_would_not_run_fails(text, words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(AssertionError, match=re.escape(words)):
        run_page(write_page(tmp_path, text), capsys)


def test_blocks_of_python_share_their_names_and_fail_at_their_line(tmp_path, capsys):
    page = write_page(tmp_path, "# A\n\n```python\nx = 1\n```\n\n```python\nprint(x)\n1 / 0\n```\n")
    with pytest.raises(ZeroDivisionError) as failure:
        run_page(page, capsys)
    assert failure.traceback[-1].lineno + 1 == 9
    assert capsys.readouterr().out == "1\n"
