"""Splits the text of a book into paragraphs and chapters.

Knows how books look as plain text, those of Project Gutenberg too; knows nothing of files.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from polyrank.pretraining.corpus.article_text import on_one_line

LONGEST_PARAGRAPH = 100_000
LONGEST_CHAPTER = 500_000
"""Characters. A longer paragraph is cut between two lines; a longer chapter between paragraphs."""

BEGINS = re.compile(r"^\*{3} ?START OF TH(?:E|IS) PROJECT GUTENBERG\b", re.MULTILINE)
ENDS = re.compile(
    r"\*{3} ?END OF TH(?:E|IS) PROJECT GUTENBERG\b|End of (?:the )?Project Gutenberg['’]s\b"
)
TITLE = re.compile(r"^Title:[ \t]*(.+(?:\n[ \t]+\S.*)*)", re.MULTILINE)
BLANK_LINE = re.compile(r"\n[ \t\f]*\n")

SPELLED = (
    "one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|thirteen|fourteen|fifteen|"
    "sixteen|seventeen|eighteen|nineteen|twenty|thirty|forty|fifty|sixty|seventy|eighty|ninety|"
    "first|second|third|fourth|fifth|sixth|seventh|eighth|ninth|tenth|last"
)
NUMBER = rf"(?:the )?(?:\d{{1,3}}|(?-i:[IVXLCDM]+)|(?:{SPELLED})(?:[- ](?:{SPELLED}))?)\b"
CALLED = (
    "chapter|book|part|volume|canto|act|scene|letter|stave|appendix|kapitel|teil|buch|chapitre|"
    "partie|livre|capítulo|parte|libro|capitolo|hoofdstuk|deel|rozdział|глава|часть"
)
HEADING = re.compile(
    rf"(?:{CALLED})\.? {NUMBER}(?:\s?[.:—–-].*|(?: .*)?(?<![.!?…,;\"'”’]))"
    r"|(?:prologue|epilogue|preface|foreword|introduction|afterword|conclusion|prolog|epilog|"
    r"vorwort|einleitung|préface|prólogo|epílogo)[.:]?"
    r"|(?-i:[IVXLC]+)\.?"
    r"|제 ?\d+ ?[장부편화].*|第 ?[\d一二三四五六七八九十百零〇]+ ?[章回节節部卷].*",
    re.IGNORECASE,
)
HEADING_LINES, HEADING_CHARACTERS = 3, 160


class Chapter(NamedTuple):
    """A heading, empty if there is none, and at least one paragraph."""

    heading: str
    paragraphs: list[str]


def title_of(start: str) -> str:
    """The title in the header of a book from Project Gutenberg, empty if there is none."""
    begins = BEGINS.search(start)
    found = None if begins is None else TITLE.search(start, 0, begins.start())
    return "" if found is None else on_one_line(found[1])


def has_blank_lines(start: str) -> bool:
    """Whether blank lines are between the paragraphs of a text; else each line is one."""
    return BLANK_LINE.search(start.strip()) is not None


def within_marks(lines: Iterable[str], *, has_begin: bool) -> Iterator[str]:
    """The lines between the marks that Project Gutenberg sets, or all if there are none."""
    is_inside, is_mark = not has_begin, False
    for line in lines:
        if is_inside and ENDS.match(line):
            return
        if is_inside:
            yield line
        elif BEGINS.match(line) or is_mark:  # which may take several lines
            is_mark = bool(line.strip())
            is_inside = not is_mark or line.rstrip().endswith("***")


def paragraphs_of(lines: Iterable[str], *, blank_lines: bool) -> Iterator[list[str]]:
    """The lines of each paragraph, without the space around them; of one, no line is empty."""
    collected: list[str] = []
    size = 0
    for line in lines:
        line = on_one_line(line)
        ends = not line or not blank_lines or size + len(line) > LONGEST_PARAGRAPH
        if ends and collected:
            yield collected
            collected, size = [], 0
        if line:
            collected.append(line)
            size += len(line)
    if collected:
        yield collected


def chapters_of(paragraphs: Iterable[list[str]]) -> Iterator[Chapter]:
    """The chapters of a book; text before the first has no heading.

    Headings without a paragraph, as in a list of contents, are left out; so are paragraphs without
    a letter or a digit. A short line in capitals below a heading is part of it.
    """
    chapter = Chapter("", [])
    size = 0
    for lines in paragraphs:
        text = " ".join(lines)
        if not re.search(r"\w", text):
            continue
        is_heading = is_heading_of(lines)
        if is_heading or size > LONGEST_CHAPTER:
            if chapter.paragraphs:
                yield chapter
            chapter, size = Chapter(text if is_heading else chapter.heading, []), 0
        elif chapter.heading and not chapter.paragraphs and is_shouted(lines):
            chapter = Chapter(f"{chapter.heading} {text}", [])
            is_heading = True
        if not is_heading:
            chapter.paragraphs.append(text)
            size += len(text)
    if chapter.paragraphs:
        yield chapter


def is_heading_of(lines: list[str]) -> bool:
    """Whether a paragraph is the heading of a chapter."""
    is_short = len(lines) <= HEADING_LINES and sum(map(len, lines)) <= HEADING_CHARACTERS
    return is_short and HEADING.fullmatch(lines[0]) is not None


def is_shouted(lines: list[str]) -> bool:
    """Whether a paragraph is a short line in capitals."""
    return len(lines) == 1 and len(lines[0]) <= HEADING_CHARACTERS and lines[0].isupper()
