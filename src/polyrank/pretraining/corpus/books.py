"""Reads plain-text books as `Article`s, one per chapter.

A book is a file in UTF-8 with blank lines between paragraphs, whose lines may be broken anywhere; a
file whose beginning has no blank line has a paragraph on each line. A chapter begins at a heading
that says so (`CHAPTER IV. The Storm`, `Kapitel 3`, `제3장`, `IV.`); a book without such is one
article. The first paragraph of an article is its first section, the others are the second.

The id of an article is `book:`, the path of the file without its suffix, a slash and a number: a
split goes by what is before the last slash, so that a book is on one side. For a book from Project
Gutenberg, the header gives the title, and text outside its marks is left out.
"""

from __future__ import annotations

import codecs
import io
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from polyrank.data.files import (
    COMPRESSIONS,
    damaged,
    is_damage,
    not_utf8,
    open_bytes,
    read_start,
)
from polyrank.errors import DataError
from polyrank.jobs import digest_of
from polyrank.pretraining.corpus.book_text import (
    BEGINS,
    LONGEST_PARAGRAPH,
    chapters_of,
    has_blank_lines,
    paragraphs_of,
    title_of,
    within_marks,
)
from polyrank.pretraining.corpus.sentences import Splitter, splitter
from polyrank.pretraining.corpus.source import (
    START,
    Documents,
    Dropped,
    FilesSource,
    Glimpse,
    described_file,
)
from polyrank.records import Article, Paragraph, Section

SUFFIX = ".txt"
SUFFIXES = (*COMPRESSIONS, SUFFIX, ".epub")
EMPTY, BINARY, NOT_UTF8, DAMAGED = "empty file", "binary file", "not UTF-8", "damaged file"
NO_TEXT = "only a header"
GUTENBERG = "header or licence of Project Gutenberg"
CHUNK = 1 << 20
UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


@dataclass(frozen=True, kw_only=True)
class Books(FilesSource):
    """Plain-text books: files, folders with .txt files, or patterns."""

    name = "books"

    @classmethod
    def recognises(cls, glimpse: Glimpse) -> bool:
        """Whether it is a .txt file, or a folder with one."""
        if glimpse.path.is_dir():
            return any(map(cls.takes, glimpse.path.rglob(f"*{SUFFIX}*")))
        return glimpse.suffix == SUFFIX

    @classmethod
    def takes(cls, path: Path) -> bool:
        """Whether it is a .txt file, compressed or not."""
        return Glimpse(path).suffix == SUFFIX

    def describe(self) -> dict[str, Any]:
        """What tells the books apart from others; their names count, since titles come of them."""
        described = [described_file(path) for path in self.files]
        name = self.files[0].name if len(described) == 1 else f"{len(described)} books"
        return {
            "name": name,
            "bytes": sum(one["bytes"] for one in described),
            "sha256": digest_of(zip(self.labels(), described, strict=True)),
        }

    def labels(self) -> list[str]:
        """The name of each file: its path in the given folder, without suffixes.

        Files with equal names are called by their whole paths.
        """
        folders = [place for place in (self.path, *self.others) if place.is_dir()]
        labels = [label_of(path, folders) for path in self.files]
        counts = Counter(labels)
        return [
            label if counts[label] == 1 else path.as_posix()
            for label, path in zip(labels, self.files, strict=True)
        ]

    def read(self, scratch: Path) -> Documents:
        """Yield the chapters. Of several files, one that is not a text is dropped and counted.

        Raises DataError for one that is the only one.
        """
        split = splitter(self.language or "")
        for path, label in zip(self.files, self.labels(), strict=True):
            wrong = what_is_wrong(path)
            if wrong is None:
                yield from read_book(path, label, split)
                continue
            reason, error = wrong
            if len(self.files) == 1:
                raise error
            yield Dropped(reason, f"{path}: {error.problem}")


def label_of(path: Path, folders: Sequence[Path]) -> str:
    """The path of a file in its folder, or its name, without the suffixes of a text."""
    inside = next((folder for folder in folders if path.is_relative_to(folder)), path.parent)
    return without_suffixes(path.relative_to(inside)).as_posix()


def without_suffixes(path: Path) -> Path:
    """A path without the suffixes of a text and of compressions."""
    while path.suffix.lower() in SUFFIXES:
        path = path.with_suffix("")
    return path


def what_is_wrong(path: Path) -> tuple[str, DataError] | None:
    """Why a file is not UTF-8 text, in a few words to count by and as an error."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    line, is_empty = 1, True
    try:
        with open_bytes(path) as handle:
            while chunk := handle.read(CHUNK):
                if b"\0" in chunk or chunk.startswith(UTF16):
                    return BINARY, binary(path, chunk)
                text = decoder.decode(chunk)
                line += text.count("\n")
                is_empty = is_empty and not text.strip("\ufeff \t\r\n\f")
            decoder.decode(b"", final=True)
    except UnicodeDecodeError as error:
        before = error.object[: error.start]
        column = error.start - (before.rfind(b"\n") + 1)
        return NOT_UTF8, not_utf8(path, line + before.count(b"\n"), column, error.reason)
    except Exception as error:
        if isinstance(error, DataError) or not is_damage(error):
            raise
        return DAMAGED, damaged(path, line, error)
    if is_empty:
        return EMPTY, DataError("The file is empty.", "Give a file with a text.", path=path)
    return None


def binary(path: Path, chunk: bytes) -> DataError:
    """The error for a file that is not text, or is UTF-16."""
    if chunk.startswith(UTF16):
        return DataError(
            "The text is UTF-16, not UTF-8.",
            "Convert the file, for example with: iconv -f UTF-16 -t UTF-8.",
            path=path,
        )
    return DataError(
        "The file is not a text: it holds zero bytes.",
        "Give plain text in UTF-8; convert other formats of books first.",
        path=path,
    )


def read_book(path: Path, label: str, split: Splitter) -> Documents:
    """Yield the chapters of a text, with their sentences."""
    start = read_start(path, START).decode("utf-8", "ignore").replace("\r\n", "\n")
    title = title_of(start) or title_from(label)
    has_begin = BEGINS.search(start) is not None
    if has_begin:
        yield Dropped(GUTENBERG, label)
    lines = within_marks(lines_of(path), has_begin=has_begin)
    number = 0
    for heading, texts in chapters_of(paragraphs_of(lines, blank_lines=has_blank_lines(start))):
        number += 1
        first, *rest = [Paragraph(text, split(text)) for text in texts]
        sections = [Section("", 1, (first,))]
        if rest:
            sections.append(Section("", 2, tuple(rest)))
        named = f"{title}: {heading}" if heading else title
        yield Article(f"book:{label}/{number}", named, tuple(sections))
    if not number:
        yield Dropped(NO_TEXT, label)


def title_from(label: str) -> str:
    """A title from the name of a file: `moby_dick`, `moby-dick` and `Moby Dick` are alike."""
    name = without_suffixes(Path(label)).name.replace("_", " ")
    return name if " " in name else name.replace("-", " ")


def lines_of(path: Path) -> Iterator[str]:
    """The lines of a text; a very long one in several."""
    with io.TextIOWrapper(open_bytes(path), encoding="utf-8-sig") as handle:
        while line := handle.readline(LONGEST_PARAGRAPH):
            yield line
