"""Plain-text books to chapters: paragraphs, headings, titles, and files that are no text."""

from __future__ import annotations

import bz2
import gzip

import pytest

from polyrank.cli.corpus import corpus as command
from polyrank.cli.main import run
from polyrank.errors import DataError
from polyrank.pretraining.corpus import book_text, books
from polyrank.pretraining.corpus.batches import Batches
from polyrank.pretraining.corpus.book_text import chapters_of, paragraphs_of, within_marks
from polyrank.pretraining.corpus.books import Books
from polyrank.pretraining.corpus.convert import CorpusLayout, convert
from polyrank.pretraining.corpus.source import Dropped
from polyrank.pretraining.registry import make_task
from polyrank.pretraining.split import Split, TablesSettings
from polyrank.pretraining.tables import open_tables
from polyrank.records import Article

NOVEL = """The Harbour

CONTENTS

CHAPTER I. Arrival

CHAPTER II. The Storm

CHAPTER I. Arrival

The boat came in late. Nobody stood
at the quay.

It rained all night, and the
lamps went out. She slept.

* * *

In the morning she left the inn.

CHAPTER II

THE STORM

A wind rose from the west. The sea was grey.
"""


def read(path, *others, **settings):
    source = Books(path=path, others=tuple(others), **settings)
    found = list(source.read(path.parent))
    kept = [item for item in found if isinstance(item, Article)]
    return kept, [item for item in found if isinstance(item, Dropped)]


def texts(article):
    return [[one.text for one in section.paragraphs] for section in article.sections]


def write(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def test_each_chapter_is_an_article(tmp_path):
    kept, dropped = read(write(tmp_path / "the_harbour.txt", NOVEL))
    assert [(one.id, one.title) for one in kept] == [
        ("book:the_harbour/1", "the harbour"),
        ("book:the_harbour/2", "the harbour: CHAPTER I. Arrival"),
        ("book:the_harbour/3", "the harbour: CHAPTER II THE STORM"),
    ]
    assert texts(kept[1]) == [
        ["The boat came in late. Nobody stood at the quay."],
        [
            "It rained all night, and the lamps went out. She slept.",
            "In the morning she left the inn.",
        ],
    ]
    first = kept[1].sections[0].paragraphs[0]
    assert [first.text[start:stop] for start, stop in first.sentences] == [
        "The boat came in late.",
        "Nobody stood at the quay.",
    ]
    assert texts(kept[2]) == [["A wind rose from the west. The sea was grey."]]
    assert dropped == []


def test_a_book_of_project_gutenberg_has_its_title_and_nothing_of_the_licence(tmp_path):
    wrapped = (
        "\ufeffThe Project Gutenberg eBook of The Harbour\n\nTitle: The Harbour;\n    Or, Late\n"
        "\nAuthor: A. Nonymous\n\n*** START OF THE PROJECT GUTENBERG EBOOK THE HARBOUR; OR,\n"
        f"LATE ***\n\n{NOVEL}\n\n*** END OF THE PROJECT GUTENBERG EBOOK THE HARBOUR ***\n\n"
        "This is the licence.\n"
    )
    kept, dropped = read(write(tmp_path / "pg1.txt", wrapped.replace("\n", "\r\n")))
    assert kept[1].title == "The Harbour; Or, Late: CHAPTER I. Arrival"
    said = " ".join(text for one in kept for section in texts(one) for text in section)
    assert "licence" not in said
    assert "Nonymous" not in said
    assert dropped == [Dropped(books.GUTENBERG, "pg1")]


@pytest.mark.parametrize(
    ("line", "is_heading"),
    [
        ("CHAPTER IV.", True),
        ("Chapter 12", True),
        ("Chapter the Last", True),
        ("chapter twenty-one: home", True),
        ("Chapter 1 The Boy at the Gate", True),
        ("BOOK THE FIRST--Sowing", True),
        ("XIV.", True),
        ("Prologue", True),
        ("Kapitel 3", True),
        ("제 3 장 바다", True),
        ("第十二章 海", True),
        ("Part of the crowd had left.", False),
        ("Part I loved was the end.", False),
        ("Book mild weather early", False),
        ("Chapter and verse", False),
        ("I went home.", False),
        ("12", False),
    ],
)
def test_headings(line, is_heading):
    assert book_text.is_heading_of([line]) == is_heading


def test_without_blank_lines_each_line_is_a_paragraph(tmp_path):
    kept, _ = read(
        write(tmp_path / "lines.txt", "Chapter 1\nOne is here.\nTwo is there.\nThree.\n")
    )
    assert texts(kept[0]) == [["One is here."], ["Two is there.", "Three."]]
    assert kept[0].title == "lines: Chapter 1"


def test_what_is_very_long_is_cut(monkeypatch, tmp_path):
    monkeypatch.setattr(book_text, "LONGEST_PARAGRAPH", 20)
    monkeypatch.setattr(book_text, "LONGEST_CHAPTER", 30)
    lines = [f"word{number:02} is here.\n" for number in range(10)]
    chapters = list(chapters_of(paragraphs_of(["Chapter 1\n", "\n", *lines], blank_lines=True)))
    assert len(chapters) > 2
    assert {chapter.heading for chapter in chapters} == {"Chapter 1"}
    assert all(len(text) <= 20 for chapter in chapters for text in chapter.paragraphs)
    assert (
        " ".join(text for chapter in chapters for text in chapter.paragraphs)
        == "".join(lines).replace("\n", " ").strip()
    )
    monkeypatch.setattr(books, "LONGEST_PARAGRAPH", 20)
    path = write(tmp_path / "one_line.txt", "x" * 100)
    assert [len(line) for line in books.lines_of(path)] == [20] * 5


def test_marks_of_one_line_or_none():
    assert list(within_marks(["a", "b"], has_begin=False)) == ["a", "b"]
    begin = "*** START OF THIS PROJECT GUTENBERG EBOOK X ***"
    assert list(within_marks(["a", begin, "b"], has_begin=True)) == ["b"]
    assert list(within_marks(["a", "End of Project Gutenberg's X"], has_begin=False)) == ["a"]


def test_folders_patterns_and_compressed_files(tmp_path):
    folder = tmp_path / "books"
    write(folder / "a" / "One.txt", "The first book is here.\n\nIt ends.")
    write(folder / "b" / "One.txt.gz", gzip.compress(b"The second book is here."))
    write(folder / "two-towns.epub.txt.bz2", bz2.compress(b"The third book is here."))
    write(folder / "cover.jpg", b"\xff\xd8")
    write(folder / ".hidden" / "x.txt", "Hidden.")
    kept, dropped = read(folder)
    assert [(one.id, one.title) for one in kept] == [
        ("book:a/One/1", "One"),
        ("book:b/One/1", "One"),
        ("book:two-towns/1", "two towns"),
    ]
    assert dropped == []
    assert [one.title for one in read(folder / "*" / "*.txt*")[0]] == ["One", "One"]
    alike = read(folder / "a" / "One.txt", folder / "b" / "One.txt.gz")[0]
    assert len({one.id for one in alike}) == 2


@pytest.mark.parametrize(
    ("content", "problem", "reason"),
    [
        (b"", "The file is empty", books.EMPTY),
        (b" \r\n\n\xef\xbb\xbf", "The file is empty", books.EMPTY),
        (b"PK\x03\x04\0\0", "not a text: it holds zero bytes", books.BINARY),
        ("Ümlaut.".encode("utf-16"), "UTF-16, not UTF-8", books.BINARY),
        (b"One.\n\nCaf\xe9 two.\n", "line 3: The text is not UTF-8.* at byte 3", books.NOT_UTF8),
        (b"One.\n\nCut off \xc3", "line 3: The text is not UTF-8", books.NOT_UTF8),
    ],
)
def test_what_is_no_text_is_an_error_or_dropped_among_others(tmp_path, content, problem, reason):
    bad = write(tmp_path / "bad.txt", content)
    with pytest.raises(DataError, match=problem) as caught:
        read(bad)
    assert caught.value.path == str(bad)
    good = write(tmp_path / "good.txt", "A good book is here.")
    kept, dropped = read(tmp_path)
    assert [one.title for one in kept] == ["good"]
    assert [item.reason for item in dropped] == [reason]
    assert str(bad) in dropped[0].where
    assert good.exists()


def test_a_compressed_book_that_is_cut_off(tmp_path):
    path = write(tmp_path / "a.txt.gz", gzip.compress(NOVEL.encode() * 50)[:-30])
    with pytest.raises(DataError, match="compressed data cannot be read"):
        read(path)


def test_a_book_is_on_one_side(tmp_path):
    split = Split(TablesSettings(held_out=0.5))
    sides = [{split.of(f"book:a/b {book}/{n}") for n in range(1, 10)} for book in range(40)]
    assert all(len(side) == 1 for side in sides)
    assert len(set.union(*sides)) == 2


def many(folder, count=12):
    for number in range(count):
        chapters = [
            f"Chapter {n}\n\nThe lead of {number} and {n} is here. It has two sentences.\n\n"
            f"A second paragraph of {number} follows there. It says more about {n}. It ends so.\n\n"
            f"The last one of {number} is about {n} again. Then all is over."
            for n in range(1, 4)
        ]
        write(folder / f"book-{number:02}.txt", "\n\n".join(chapters))
    return folder


def test_books_give_every_task_on_articles_but_links(tmp_path, capsys):
    folder = many(tmp_path / "books")
    assert run(["corpus", str(folder), "--output", str(tmp_path / "corpus")], [command]) == 0
    assert "articles                    36" in capsys.readouterr().out
    made = convert(Books(path=folder), tmp_path / "corpus")
    tables = open_tables(made, TablesSettings(held_out=0.3, passage_words=20))
    for name in ("ict", "bfs", "mlm", "next_sentence"):
        task = make_task(name, tables)
        task.require_pairs()
        assert task[0].first
    assert not len(make_task("wlp", tables))
    bfs = make_task("bfs", tables)[0]
    assert bfs.first.startswith(("The lead of", "It has"))
    assert "paragraph" in bfs.second or "last one" in bfs.second


def test_an_interrupted_conversion_of_books_ends_alike(tmp_path, monkeypatch):
    folder, layout = many(tmp_path / "books"), CorpusLayout(group_size=300, part_groups=2)
    whole = convert(Books(path=folder), tmp_path / "whole", layout=layout)
    iterate, seen = Batches.__iter__, []

    def stop(self):
        for batch in iterate(self):
            seen.append(batch)
            if len(seen) == 5:
                raise KeyboardInterrupt
            yield batch

    monkeypatch.setattr(Batches, "__iter__", stop)
    with pytest.raises(KeyboardInterrupt):
        convert(Books(path=folder), tmp_path / "cut", layout=layout)
    monkeypatch.setattr(Batches, "__iter__", iterate)
    work = tmp_path / ".cut.converting"
    assert list(work.glob("part-*.parquet"))
    resumed = convert(Books(path=folder), tmp_path / "cut", layout=layout)
    assert resumed.fingerprint == whole.fingerprint
    assert len(whole.manifest.parts) > 2
    write(folder / "one-more.txt", "Another book.")
    assert Books(path=folder).describe() != whole.manifest.source
