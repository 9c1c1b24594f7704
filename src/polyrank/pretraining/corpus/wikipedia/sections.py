"""Wikitext to sections: headings, paragraphs with their links, sentences.

A page that is broken gives what can be read of it; nothing here raises for what stands in a page.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from polyrank.pretraining.corpus.sentences import Splitter
from polyrank.pretraining.corpus.wikipedia.cutting import (
    without_brackets,
    without_comments,
    without_raw_tags,
)
from polyrank.pretraining.corpus.wikipedia.inline import STAND_INS, words_and_links
from polyrank.pretraining.corpus.wikipedia.site import Site
from polyrank.records import Link, Paragraph, Section

HEADING = re.compile(r"(={1,6})(.+?)(={1,6})\s*\Z")
BLOCK_TAG = re.compile(
    r"(?:</?(?:p|div|blockquote|center|h[1-6]|hr|noinclude|onlyinclude)\b[^<>]*>|^-{4,})[ \t]*",
    re.IGNORECASE | re.MULTILINE,
)
LIST = "*#:;"
NO_TEXT = "|! "
Block = tuple[int, str]


def sections_of(
    wikitext: str, site: Site, split: Splitter, *, lists: bool = False
) -> tuple[Section, ...]:
    """The sections of a page that have a paragraph; with `lists`, items of lists are paragraphs."""
    sections: list[Section] = []
    paragraphs: list[Paragraph] = []
    heading, level = "", 1
    for rank, block in blocks(running_text(wikitext, site), lists=lists):
        if rank:
            close(sections, heading, level, paragraphs)
            heading, level, paragraphs = words_and_links(block, site)[0], rank, []
            continue
        text, links = words_and_links(block, site)
        if any(char.isalpha() for char in text):
            paragraphs.append(paragraph(text, links, split))
    close(sections, heading, level, paragraphs)
    return tuple(sections)


def paragraph(text: str, links: tuple[Link, ...], split: Splitter) -> Paragraph:
    """A paragraph with its sentences."""
    return Paragraph(text, split(text), links)


def close(sections: list[Section], heading: str, level: int, paragraphs: list[Paragraph]) -> None:
    """Add a section, unless it is empty."""
    if paragraphs:
        sections.append(Section(heading, level, tuple(paragraphs)))


def running_text(wikitext: str, site: Site) -> str:
    """Wikitext without all that is cut out whole."""
    if STAND_INS.search(wikitext):
        wikitext = STAND_INS.sub("", wikitext)
    text = without_raw_tags(without_comments(wikitext))

    def is_hidden(link: str) -> bool:
        target = link.partition("|")[0].partition("]")[0]
        return ":" in target and site.meaning(target)[0] == "hidden"

    text = without_brackets(text, is_hidden)
    return BLOCK_TAG.sub("\n\n", text)


def blocks(text: str, *, lists: bool = False) -> Iterator[Block]:
    """Yield (level, words) of a heading and (0, wikitext) of a paragraph, in order.

    Left out: lines set in from the margin, lines of a table that is never closed and, unless
    `lists`, the items of lists.
    """
    lines: list[str] = []
    for line in text.split("\n"):
        found = HEADING.match(line.rstrip()) if line[:1] == "=" else None
        if found is None and line.strip() and line[0] not in NO_TEXT and line[0] not in LIST:
            lines.append(line)
            continue
        if lines:
            yield 0, " ".join(lines)
            lines = []
        if found is not None:
            yield min(len(found[1]), len(found[3])), found[2]
        elif lists and line[:1] and line[0] in LIST and (item := line.lstrip(LIST)):
            yield 0, item
    if lines:
        yield 0, " ".join(lines)
