"""The corpus of the installed Python: what is read, what is linked, what is kept apart."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from polyrank.data.python_docs.documents import python_documents
from polyrank.data.python_docs.examples import (
    Splits,
    normalised,
    passages,
    python_doc_examples,
    split_of,
)
from polyrank.data.python_docs.links import Linker
from polyrank.data.python_docs.markup import is_code_paragraph, parse_text, simplify
from polyrank.data.python_docs.modules import read_modules
from polyrank.data.python_docs.passages import groups_of
from polyrank.data.python_docs.questions import ask_summary
from polyrank.data.python_docs.topics import HelpTables, read_topics
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
PYDOC = """
class Helper:
    topics = {"CONTEXTMANAGERS": ("context-managers", "with"), "BROKEN": "NOWHERE"}
    keywords = {"with": ("with", "CONTEXTMANAGERS"), "as": "with"}
"""
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
    (folder / "pydoc.py").write_text(PYDOC)
    (folder / "tidy").mkdir()
    (folder / "tidy" / "__init__.py").write_text(TIDY)
    (folder / "tidy" / "rules.py").write_text('"""The rules of a tidy room."""\n')
    (folder / "broken.py").write_text('"""A file that is not Python."""\ndef (:\n')
    (folder / "binary.py").write_bytes(b"\x00\xff")
    (folder / "test").mkdir()
    (folder / "test" / "test_tidy.py").write_text('"""Tests are no documentation."""\n')
    return folder


@pytest.fixture(scope="session")
def documents() -> list[Article]:
    return python_documents()


@pytest.fixture(scope="session")
def splits(documents: list[Article]) -> Splits:
    return python_doc_examples(documents)


@pytest.fixture(scope="session")
def hard_splits(documents: list[Article]) -> Splits:
    return python_doc_examples(documents, hard=True, seed=3)


def section_titles(document: Article) -> list[str]:
    return [section.heading for section in document.sections]


def test_a_library_is_read_without_running_it(library: Path) -> None:
    documents = {document.id: document for document in python_documents(library, builtins=False)}
    assert list(documents) == ["topic:context-managers", "topic:with", "tidy", "tidy.rules"]
    assert section_titles(documents["tidy"]) == [
        "",
        "tidy.sweep(floor, *, twice=False)",
        "tidy.Broom(width=30)",
        "tidy.Broom.sweep(corner)",
    ]
    assert not list(library.rglob("IMPORTED"))
    assert "tidy" not in sys.modules


def test_topics_have_titles_sections_and_links(library: Path) -> None:
    documents = {document.id: document for document in python_documents(library, builtins=False)}
    topic = documents["topic:with"]
    assert topic.title == 'The "with" statement'
    lead = topic.sections[0].paragraphs[0]
    assert "a context manager (see section With Statement Context Managers)." in lead.text
    assert [link.target for link in lead.links] == ["topic:context-managers"]
    assert topic.sections[0].paragraphs[1].text == "    with open(name) as f:\n        f.read()"
    targets = {link.target for s in topic.sections for p in s.paragraphs for link in p.links}
    assert targets == {"topic:context-managers", "tidy"}
    assert "object.__enter__(self)" in section_titles(documents["topic:context-managers"])


def test_a_library_without_topics_still_gives_docstrings(library: Path) -> None:
    (library / "pydoc_data" / "topics.py").unlink()
    (library / "pydoc.py").unlink()
    assert read_topics(library) == []
    assert [document.id for document in python_documents(library, builtins=False)] == [
        "tidy",
        "tidy.rules",
    ]


def test_an_empty_library_is_an_error_with_a_remedy(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="No documentation was found") as caught:
        python_documents(tmp_path, builtins=False)
    assert "Give the folder" in caught.value.remedy


def test_private_modules_appear_under_their_package(tmp_path: Path) -> None:
    (tmp_path / "room").mkdir()
    (tmp_path / "room" / "__init__.py").write_text("from room._walls import paint\n")
    (tmp_path / "room" / "_walls.py").write_text(
        'def paint():\n    """Paint a wall."""\n\ndef strip():\n    """Strip a wall."""\n'
    )
    assert [section_titles(document) for document in read_modules(tmp_path)] == [["room.paint()"]]


def test_links_lie_on_their_words_and_lead_to_documents(documents: list[Article]) -> None:
    ids = {document.id for document in documents}
    assert len(ids) == len(documents)
    count = 0
    for document in documents:
        for paragraph in (p for section in document.sections for p in section.paragraphs):
            end = 0
            for link in paragraph.links:
                words = paragraph.text[link.start : link.stop]
                assert link.start >= end
                assert words.strip() == words != ""
                assert link.target in ids - {document.id}
                end = link.stop
                count += 1
    assert count > 500


@pytest.mark.parametrize(
    "text", ["Please see module json.", "Use module json.", 'The "json" module is for it.']
)
def test_a_module_is_linked_wherever_the_word_stands(text: str, documents: list[Article]) -> None:
    (link,) = Linker(documents, HelpTables()).links(text, "csv")
    assert (text[link.start : link.stop], link.target) == ("json", "json")


def test_passages_can_be_read_alone(documents: list[Article]) -> None:
    found = {passage.id: passage.text for passage in passages(documents)}
    assert len(found) == len(list(passages(documents))) > 4000
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


def test_a_module_is_in_one_split(documents: list[Article], splits: Splits) -> None:
    names = {document.id for document in documents if not document.id.startswith("topic:")}
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


def test_topics_that_share_text_are_in_one_group(documents: list[Article]) -> None:
    groups = groups_of(documents)
    assert groups["topic:with"] == groups["topic:try"] == groups["topic:compound"]
    assert groups["topic:debugger"] == groups["pdb"] == "pdb"
    assert groups["email.mime.text"] == "email"


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


def test_too_few_examples_for_the_candidates_is_an_error(documents: list[Article]) -> None:
    with pytest.raises(DataError, match="too few"):
        python_doc_examples(documents[:100], num_candidates=5000)


def test_every_process_gives_the_same(library: Path) -> None:
    script = (
        "import sys; from polyrank.data.python_docs.documents import python_documents as read\n"
        "from polyrank.data.python_docs.examples import passages, draw_examples, read_passages\n"
        "documents = read(sys.argv[1])\n"
        "print(documents, list(passages(documents)))\n"
        "print([list(draw_examples(passage)) for passage in read_passages(documents)])\n"
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
        "One line\nand another.\n\n- first\n  item\n- second\n\nTitle\n-----\nText::\n\n"
        "    for x in y:\n        go(x)\n\n+---+-----+\n| a | b c |\n+---+-----+\n"
    )
    assert [section.heading for section in sections] == ["", "Title"]
    assert sections[0].paragraphs == ["One line and another.", "- first item\n- second"]
    assert sections[1].paragraphs == ["Text:", "    for x in y:\n        go(x)", "a: b c"]
    assert is_code_paragraph(sections[1].paragraphs[1])


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
