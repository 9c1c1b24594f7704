"""The documentation of Python as a corpus: what becomes an article, and where links lead."""

from __future__ import annotations

import shutil
import sysconfig
from pathlib import Path

import pytest

from polyrank.demo.corpus import PythonDocs
from polyrank.errors import DataError
from polyrank.pretraining.corpus.convert import convert
from polyrank.records import Article

TIDY = '''"""Keep a room tidy, as told in the rules.

Call sweep() before the guests come, or raise DustError.

    >>> sweep()
    0

Go.
"""

class DustError(Exception):
    """There is too much dust in the room."""

class Broom:
    """A broom for floors of all kinds."""

    def lend(self):
        """Lend it to the neighbours; see also BroomCloset and tidy.sweep for more."""

def sweep(floor=None):
    """Sweep the floor with a broom.

    It never raises DustError. The floor() is not a function here.
    """
'''
CLOSETS = '''"""Closets to keep things in, see the tidy module for their use."""

class BroomCloset:
    """A closet for one Broom, which sweep() needs."""
'''


@pytest.fixture
def library(tmp_path):
    (tmp_path / "tidy.py").write_text(TIDY, encoding="utf-8")
    (tmp_path / "closets.py").write_text(CLOSETS, encoding="utf-8")
    return tmp_path


def read_articles(library):
    return list(PythonDocs(path=library).read(library))


def links(article):
    return [
        (section.heading, paragraph.text[link.start : link.stop], link.target)
        for section in article.sections
        for paragraph in section.paragraphs
        for link in paragraph.links
    ]


def test_modules_classes_and_functions_become_articles(library):
    articles = {article.id: article for article in read_articles(library)}
    assert list(articles) == [
        "closets",
        "closets.BroomCloset",
        "tidy",
        "tidy.DustError",
        "tidy.Broom",
        "tidy.sweep",
    ]
    broom = articles["tidy.Broom"]
    assert [section.heading for section in broom.sections] == ["", "tidy.Broom.lend()"]
    assert [paragraph.text for paragraph in articles["tidy"].sections[0].paragraphs] == [
        "Keep a room tidy, as told in the rules.",
        "Call sweep() before the guests come, or raise DustError.",
    ]  # neither code nor what says nothing
    assert links(articles["tidy"]) == [
        ("", "sweep", "tidy.sweep"),
        ("", "DustError", "tidy.DustError"),
    ]
    assert links(broom) == [
        ("tidy.Broom.lend()", "BroomCloset", "closets.BroomCloset"),
        ("tidy.Broom.lend()", "tidy.sweep", "tidy.sweep"),
    ]
    assert links(articles["tidy.sweep"]) == [("", "DustError", "tidy.DustError")]
    assert links(articles["closets"]) == [("", "tidy", "tidy")]
    assert links(articles["closets.BroomCloset"]) == [("", "sweep", "tidy.sweep")]


def test_a_folder_without_documentation_is_refused(tmp_path):
    with pytest.raises(DataError, match="No documentation was found"):
        read_articles(tmp_path)


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The articles of a part of the installed library: all of it takes a while to parse."""
    stdlib = Path(sysconfig.get_paths()["stdlib"])
    folder = tmp_path_factory.mktemp("library")
    for name in (
        "asyncio",
        "concurrent",
        "email",
        "json",
        "logging",
        "multiprocessing",
        "pydoc_data",
    ):
        if (stdlib / name).is_dir():
            shutil.copytree(stdlib / name, folder / name)
    for name in (
        "pydoc",
        "threading",
        "typing",
        "socketserver",
        "subprocess",
        "mailbox",
        "zipfile",
    ):
        if (stdlib / f"{name}.py").exists():
            shutil.copy(stdlib / f"{name}.py", folder)
    return [item for item in read_articles(folder) if isinstance(item, Article)]


def test_the_installed_python_has_enough_links(installed):
    titles = {article.title for article in installed}
    pairs = {(article.title, target) for article in installed for _, _, target in links(article)}
    assert len(installed) > 300
    assert len(titles) == len(installed) == len({article.id for article in installed})
    assert len({target for _, target in pairs} & titles) > 60
    assert len(pairs) > 150
    assert sum(len(article.sections) > 1 for article in installed) > 60


def test_offsets_of_the_installed_python_are_inside(installed):
    for article in installed:
        assert article.sections[0].heading == ""
        for section in article.sections:
            for paragraph in section.paragraphs:
                ends = [0]
                for link in paragraph.links:
                    assert ends[-1] <= link.start < link.stop <= len(paragraph.text)
                    assert link.target != article.title
                    assert paragraph.text[link.start : link.stop].strip()
                    ends.append(link.stop)
                assert all(
                    0 <= start < stop <= len(paragraph.text) for start, stop in paragraph.sentences
                )


def test_the_documentation_of_a_library_is_a_corpus(tmp_path):
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "thing.py").write_text(
        '"""A module of things.\n\nIt has many of them."""\n'
    )
    corpus = convert(PythonDocs(path=tmp_path / "lib"), tmp_path / "corpus")
    assert corpus.language == "en"
    assert [article.title for article in corpus] == ["thing"]
