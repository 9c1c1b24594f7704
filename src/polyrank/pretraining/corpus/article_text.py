"""Articles as plain text: sections of paragraphs, captions of pictures, the words of titles.

Knows how encyclopedias look once their markup is gone; knows nothing of files.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import zip_longest
from typing import NamedTuple

from polyrank.records import Link

SPACE = re.compile(r"\s+")
BLANK_LINES = re.compile(r"\n\s*\n")
MARKED = re.compile(
    r"(?P<hashes>#{1,6})\s+(?P<below>[^\n]+?)\s*#*|(?P<signs>={2,6})(?P<in>.+)(?P=signs)"
)
UNMARKED = re.compile(r"[^\n]{1,60}(?<![.!?…:;,。！？”\")\]])")
MOST_WORDS = 8
CAPTION = re.compile(r"(?P<words>\S.{0,600}?)\.?,? Enlarge (?P=words)\.?(?:\s+|$)", re.DOTALL)


class TextSection(NamedTuple):
    """A heading with its level, and the paragraphs below it."""

    heading: str
    level: int
    paragraphs: list[str]


def sections_of_text(text: str, title: str) -> list[TextSection]:
    """Cut a text at its blank lines into paragraphs, and at its headings into sections.

    A heading is marked (`== History ==`, `## History`), or is a paragraph of a few words on one
    line, without a sign at its end, before one that is not. A text without headings has its first
    paragraph as first section, as an encyclopedia would, and the others as the second. The title
    at the top is left out. Only the first section may be without paragraphs.
    """
    paragraphs = [piece for whole in cut_at_blank_lines(text) for piece in below_heading(whole)]
    if paragraphs and on_one_line(paragraphs[0]) == title:
        del paragraphs[0]
    sections = [TextSection("", 1, [])]
    for paragraph, following in zip_longest(paragraphs, paragraphs[1:], fillvalue=""):
        marked = MARKED.fullmatch(paragraph)
        if marked:
            level = len(marked["hashes"] or marked["signs"])
            heading = on_one_line(marked["below"] or marked["in"])
            sections.append(TextSection(heading, max(level, 2), []))
        elif looks_like_heading(paragraph) and following and not looks_like_heading(following):
            sections.append(TextSection(on_one_line(paragraph), 2, []))
        else:
            sections[-1].paragraphs.append(paragraph)
    first = sections[0].paragraphs
    if len(sections) == 1 and len(first) > 1:
        sections.append(TextSection("", 2, first[1:]))
        del first[1:]
    return [sections[0], *(section for section in sections[1:] if section.paragraphs)]


def below_heading(paragraph: str) -> list[str]:
    """A paragraph, or a marked heading and the paragraph that follows it on the next line."""
    first, _, rest = paragraph.partition("\n")
    return [first, rest.strip()] if rest and MARKED.fullmatch(first.strip()) else [paragraph]


def looks_like_heading(paragraph: str) -> bool:
    """Whether a paragraph is a few words on one line that do not end as a sentence does."""
    return bool(UNMARKED.fullmatch(paragraph)) and len(paragraph.split()) <= MOST_WORDS


def without_caption(text: str) -> str:
    """The text without a picture's caption at its start: words, `Enlarge`, the same words."""
    caption = CAPTION.match(text)
    while caption:
        text = text[caption.end() :].lstrip()
        caption = CAPTION.match(text)
    return text


def on_one_line(text: str) -> str:
    """The text with one blank for each run of space, and none around it."""
    return SPACE.sub(" ", text).strip()


def cut_at_blank_lines(text: str) -> list[str]:
    """The paragraphs of a text, without the space around them; none is empty."""
    pieces = (piece.strip() for piece in BLANK_LINES.split(text.replace("\r\n", "\n")))
    return [piece for piece in pieces if piece]


def links_at(text: str, titles: Iterable[str], taken: Iterable[Link] = ()) -> list[Link]:
    """A link for each title whose words stand in the text: at their first free place.

    Longer titles choose first, so that `York` is not linked in `New York`; no link overlaps
    another one or over one of `taken`. Words must be whole and may differ from the title in case,
    where none are exactly as it. Titles that find no place are left out; links come in order.
    """
    occupied = list(taken)
    links: list[Link] = []
    for title in sorted(dict.fromkeys(titles), key=lambda title: (-len(title), title)):
        link = first_free(text, title, occupied)
        if link is not None:
            occupied.append(link)
            links.append(link)
    return sorted(links)


def first_free(text: str, title: str, occupied: list[Link]) -> Link | None:
    """The first place of a title's words that overlaps no other link."""
    if not title.strip():
        return None
    pattern = rf"(?<!\w){re.escape(title)}(?!\w)"
    for flags in (re.RegexFlag(0), re.IGNORECASE):
        for found in re.finditer(pattern, text, flags):
            start, stop = found.span()
            if all(stop <= other.start or other.stop <= start for other in occupied):
                return Link(start, stop, title)
    return None
