"""The documentation of the installed Python: what is read, and what is kept apart in splits."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from polyrank.demo.documentation import read_documentation
from polyrank.demo.examples import Splits, make_splits, normalised, read_passages, split_of
from polyrank.demo.markup import parse_text, simplify
from polyrank.demo.questions import ask_summary
from polyrank.errors import DataError
from polyrank.records import Article, Example

WITH = """The "with" statement
********************

The "with" statement wraps a block with a *context
manager* (see section With Statement Context Managers).

   with open(name) as f:
       f.read()

More to read
============

The module "tidy" does the same.
"""
MANAGERS = """With Statement Context Managers
*******************************

object.__enter__(self)

   Enter the runtime context related to this object.
"""
TOPICS = {"with": WITH, "context-managers": MANAGERS}
TIDY = '''"""Keep a room tidy.

The rules are written down in ``tidy.rules`` and never change.
"""
from pathlib import Path
Path(__file__).with_name("IMPORTED").touch()

def sweep(floor, *, twice: bool = False) -> int:
    """Sweep the floor of a room.

    If twice is true then the floor is swept again.
    """

def _secret():
    """Do what nobody may know of."""

class Broom:
    """A broom that sweeps corners."""

    def __init__(self, width=30): ...

    def sweep(self, corner):
        """Sweep one corner well."""

    def __repr__(self):
        """Return repr(self)."""
'''


@pytest.fixture
def library(tmp_path: Path) -> Path:
    folder = tmp_path / "library"
    (folder / "pydoc_data").mkdir(parents=True)
    (folder / "pydoc_data" / "topics.py").write_text(f"topics = {TOPICS!r}\n")
    (folder / "tidy").mkdir()
    (folder / "tidy" / "__init__.py").write_text(TIDY)
    (folder / "tidy" / "rules.py").write_text('"""The rules of a tidy room."""\n')
    (folder / "broken.py").write_text('"""A file that is not Python."""\ndef (:\n')
    (folder / "binary.py").write_bytes(b"\x00\xff")
    (folder / "test").mkdir()
    (folder / "test" / "test_tidy.py").write_text('"""Tests are no documentation."""\n')
    return folder


@pytest.fixture(scope="session")
def articles() -> list[Article]:
    return read_documentation()


@pytest.fixture(scope="session")
def splits(articles: list[Article]) -> Splits:
    return make_splits(articles)


@pytest.fixture(scope="session")
def hard_splits(articles: list[Article]) -> Splits:
    return make_splits(articles, hard=True, seed=3)


def test_a_library_is_read_without_running_it(library: Path) -> None:
    articles = {article.id: article for article in read_documentation(library)}
    assert [article.title for article in articles.values()] == [
        'The "with" statement',
        "With Statement Context Managers",
        "The tidy module",
        "tidy.sweep(floor, *, twice=False)",
        "tidy.Broom(width=30)",
        "The tidy.rules module",
    ]
    assert list(articles)[:2] == ["topic:with", "topic:context-managers"]
    headings = [section.heading for section in articles["tidy.Broom"].sections]
    assert headings == ["", "tidy.Broom.sweep(corner)"]
    assert not list(library.rglob("IMPORTED"))
    assert "tidy" not in sys.modules


def test_topics_have_titles_and_sections(library: Path) -> None:
    articles = {article.id: article for article in read_documentation(library)}
    lead, more = articles["topic:with"].sections
    [paragraph] = lead.paragraphs  # code is left out
    assert "a context manager (see section With Statement Context Managers)." in paragraph.text
    assert (lead.heading, more.heading) == ("", "More to read")


def test_a_library_without_topics_still_gives_docstrings(library: Path) -> None:
    (library / "pydoc_data" / "topics.py").unlink()
    names = [article.id for article in read_documentation(library)]
    assert names == ["tidy", "tidy.sweep", "tidy.Broom", "tidy.rules"]


def test_an_empty_library_is_an_error_with_a_remedy(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="No documentation was found") as caught:
        read_documentation(tmp_path)
    assert "Give the folder" in caught.value.remedy


def test_private_modules_appear_under_their_package(tmp_path: Path) -> None:
    (tmp_path / "room").mkdir()
    (tmp_path / "room" / "__init__.py").write_text("from room._walls import paint\n")
    (tmp_path / "room" / "_walls.py").write_text('def paint():\n    """Paint every wall."""\n')
    assert [article.title for article in read_documentation(tmp_path)] == ["room.paint()"]


def test_passages_can_be_read_alone(articles: list[Article]) -> None:
    found = {passage.id: passage.text for passage in read_passages(articles)}
    assert len(found) == len(list(read_passages(articles))) > 4000
    assert found["json.dumps#0"].startswith("json.dumps(obj, *, ")
    assert "Serialize obj to a JSON formatted str." in found["json.dumps#0"]
    assert found["csv.reader#0"].startswith("csv.reader")
    assert found["open#0"].startswith("open(file, mode='r'")
    assert found["topic:with#0"].startswith('The "with" statement: ')
    assert found["math.cos#0"].endswith("Return the cosine of x (measured in radians).")
    assert not any("Return repr(self)" in text for text in found.values())
    assert max(len(text.split()) for text in found.values()) < 250


def test_splits_are_large_enough(splits: Splits) -> None:
    assert len(splits.train) >= 5000
    assert len(splits.dev) >= 400
    assert len(splits.test) >= 400


def context_text(example: Example) -> str:
    return example.context if isinstance(example.context, str) else " ".join(example.context)


def test_nothing_leaks_between_splits(splits: Splits) -> None:
    texts = []
    for examples in splits:
        responses = [normalised(example.response) for example in examples]
        assert len(set(responses)) == len(responses)
        texts.append({*responses, *(normalised(context_text(example)) for example in examples)})
    assert not texts[0] & texts[1]
    assert not texts[0] & texts[2]
    assert not texts[1] & texts[2]


def test_a_module_is_in_one_split(articles: list[Article], splits: Splits) -> None:
    names = {article.id for article in articles if article.title.startswith("The ")}
    names |= {"builtins"}
    where: dict[str, set[str]] = {}
    for split, examples in splits._asdict().items():
        for example in examples:
            module = (example.id or "").partition("#")[0].partition(".")[0]
            if module in names and module not in ("builtins", "time", "array"):
                where.setdefault(module, set()).add(split)
    assert all(len(found) == 1 for found in where.values())
    assert {split_of(module) for module in names} == {"train", "dev", "test"}


def test_a_context_does_not_hold_its_response(splits: Splits) -> None:
    for example in (example for examples in splits for example in examples):
        assert normalised(example.response) not in normalised(context_text(example))
        assert len(example.response.split()) >= 12


def test_topics_which_share_text_are_in_one_group(articles: list[Article]) -> None:
    groups = {passage.id.partition("#")[0]: passage.group for passage in read_passages(articles)}
    assert groups["topic:with"] == groups["topic:try"] == groups["topic:compound"]
    assert groups["email.mime.text"] == "email"
    assert groups["str.format"] == groups["open"] == "builtins"


def test_candidates_hold_the_response_once(splits: Splits, hard_splits: Splits) -> None:
    for examples in (splits.dev, splits.test, hard_splits.dev, hard_splits.test):
        responses = {example.response for example in examples}
        for example in examples:
            assert example.candidates is not None
            assert example.gold is not None
            assert len(example.candidates) == len(set(example.candidates)) == 20
            assert example.candidates[example.gold] == example.response
            assert responses.issuperset(example.candidates)
        assert len({example.gold for example in examples}) == 20


def test_hard_distractors_come_from_the_same_module(splits: Splits, hard_splits: Splits) -> None:
    def share(dev: list[Example]) -> float:
        module = {e.response: (e.id or "").partition("#")[0].partition(".")[0] for e in dev}
        same = [module[c] == module[e.response] for e in dev for c in e.candidates or ()]
        return sum(same) / len(same)

    assert share(hard_splits.dev) > 2 * share(splits.dev)


def test_too_few_examples_for_the_candidates_is_an_error(articles: list[Article]) -> None:
    with pytest.raises(DataError, match="too few"):
        make_splits(articles[:500], num_candidates=5000)


def test_every_process_gives_the_same(library: Path) -> None:
    script = (
        "import sys; from polyrank.demo.documentation import read_documentation\n"
        "from polyrank.demo.examples import draw_examples, read_passages\n"
        "articles = read_documentation(sys.argv[1])\n"
        "passages = list(read_passages(articles))\n"
        "print(articles, passages, [list(draw_examples(passage)) for passage in passages])\n"
    )
    outputs = set()
    for seed in ("1", "2"):
        environment = os.environ | {"PYTHONHASHSEED": seed, "PYTHONIOENCODING": "utf-8"}
        environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
        command = [sys.executable, "-c", script, str(library)]
        done = subprocess.run(command, env=environment, capture_output=True, check=True)
        outputs.add(done.stdout)
    assert len(outputs) == 1


def test_markup_is_simplified() -> None:
    assert simplify("Give *name* to :class:`~a.Thing` and ``x``, **not** `y`.") == (
        "Give name to a.Thing and x, not y."
    )
    assert simplify("f(*args, **kwargs) and 2 * 3 * 4") == "f(*args, **kwargs) and 2 * 3 * 4"


def test_text_is_cut_into_sections_and_paragraphs() -> None:
    sections = parse_text(
        "One line\nand another.\n\n- first\n  item\n- second\n\nTitle\n-----\nText about code::\n\n"
        "    for x in y:\n        go(x)\n\n+---+-----+\n| a | b c |\n+---+-----+\n"
    )
    assert sections == [
        ("", ["One line and another.", "- first item\n- second"]),
        ("Title", ["Text about code:"]),
    ]


@pytest.mark.parametrize(
    ("summary", "word"),
    [
        ("Return the sine of x.", "the sine of x"),
        ("Serializes obj to a str.", "serialize obj to a str"),
        ("Return True if the path exists, False otherwise.", "whether the path exists"),
        ("Raised when a key is missing.", "when a key is missing"),
        ("Base class for readers.", "a base class for readers"),
    ],
)
def test_summaries_become_questions(summary: str, word: str) -> None:
    for key in "abcdef":
        assert word in ask_summary(summary, key)
        assert ask_summary(summary, key) == ask_summary(summary, key)
