"""Cutting out of wikitext what is no running text: templates, tables, references, files, code.

One pass over the brackets with a stack, so that the time is linear whatever stands there; what is
never closed is left, and goes with its line. Knows brackets; knows nothing of paragraphs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from polyrank.pretraining.corpus.wikipedia.templates import words_of

DROPPED_TAGS = (
    "ref|references|math|chem|ce|gallery|timeline|syntaxhighlight|source|score|hiero|imagemap|pre|"
    "includeonly|graph|mapframe|maplink|templatestyles|indicator|inputbox|categorytree|poem"
)
RAW = re.compile(rf"<(/?)({DROPPED_TAGS}|nowiki)\b([^<>]*)>", re.IGNORECASE)
EMPTY = re.compile(r"<(?:ref|references|nowiki)\b[^<>]*/>", re.IGNORECASE)
NESTED = "table|ul|ol|dl"
BRACKET = re.compile(
    rf"\{{\{{|\}}\}}|\[\[|\]\]|(?:(?<=\n)|\A)[ \t:]*\{{\||(?<=\n)[ \t]*\|\}}(?!\}})"
    rf"|<(/?)({NESTED})\b[^<>]*>",
    re.IGNORECASE,
)
CLOSING = {"}}": "{{", "]]": "[[", "|}": "{|"}
MARKUP = "[]{}<>'|=*#:;_&"
PROTECTED = {ord(char): chr(0xE100 + number) for number, char in enumerate(MARKUP)}
RESTORED = {ord(stand_in): chr(char) for char, stand_in in PROTECTED.items()}
"""Characters without a meaning of their own, for what <nowiki> protects."""
Span = tuple[int, int]


def without_comments(text: str) -> str:
    """The text without `<!-- … -->`; one that is never closed ends with its line."""
    if "<!--" not in text:
        return text
    pieces, position = [], 0
    while (start := text.find("<!--", position)) >= 0:
        pieces.append(text[position:start])
        stop = text.find("-->", start + 4)
        if stop < 0:
            line = text.find("\n", start)
            pieces.append("" if line < 0 else text[line:].replace("<!--", ""))
            return "".join(pieces)
        position = stop + 3
        if text[max(start - 1, 0) : start] in ("\n", "") and text[position : position + 1] == "\n":
            position += 1  # a line of nothing but a comment ends no paragraph
    pieces.append(text[position:])
    return "".join(pieces)


def without_raw_tags(text: str) -> str:
    """The text without references, formulas and other tags whose content is no text.

    Such a tag that is never closed, or opened again before, goes with the rest of its line. What
    stands in <nowiki> is kept, with stand-ins for its markup (`RESTORED`).
    """
    tags = [tag for tag in RAW.finditer(text) if not tag[3].endswith("/")]
    following: list[int | None] = [None] * len(tags)
    latest: dict[str, int] = {}
    for number in reversed(range(len(tags))):
        name = tags[number][2].lower()
        following[number] = latest.get(name)
        latest[name] = number
    pieces, position = [], 0
    for tag, after in zip(tags, following, strict=True):
        if tag.start() < position:
            continue
        pieces.append(text[position : tag.start()])
        position = tag.end()
        if tag[1]:
            continue
        closing = None if after is None else tags[after]
        keep = tag[2].lower() == "nowiki"
        if closing is not None and closing[1]:
            position = closing.end()
            if keep:
                pieces.append(text[tag.end() : closing.start()].translate(PROTECTED))
        elif not keep:
            line = text.find("\n", tag.end())
            position = len(text) if line < 0 else line
    pieces.append(text[position:])
    return EMPTY.sub("", "".join(pieces))


def without_brackets(text: str, is_hidden: Callable[[str], bool]) -> str:
    """The text without templates, tables, lists in HTML, and links whose target `is_hidden`.

    Of a template that only formats words, these stay.
    """
    pieces, position, begins_line = [], 0, True
    for start, stop in [*outermost(regions_of(text, is_hidden)), (len(text), len(text))]:
        piece = text[position:start]
        if position and begins_line:
            piece = piece.lstrip(" \t")  # or what is left would look set in by spaces
        pieces.append(piece)
        begins_line = piece.endswith("\n") or (begins_line and not piece)
        if text.startswith("{{", start) and (words := words_of(text[start + 2 : stop - 2])):
            pieces.append(words)
            begins_line = False
        position = stop
    return "".join(pieces)


def regions_of(text: str, is_hidden: Callable[[str], bool]) -> Iterator[Span]:
    """Yield what is to be cut, by where it ends; what lies within another comes first."""
    open_ones: list[tuple[str, int]] = []
    depth: dict[str, int] = {}
    for found in BRACKET.finditer(text):
        mark = found[0].strip(" \t:")
        tag = found[2]
        if tag is not None:
            mark = tag.lower()
        opening = mark if tag is not None and found[1] else CLOSING.get(mark)
        if opening is None:
            open_ones.append((mark, found.start()))
            depth[mark] = depth.get(mark, 0) + 1
            continue
        if not depth.get(opening):
            continue
        while True:
            kind, start = open_ones.pop()
            depth[kind] -= 1
            if kind == opening:
                break
        stop = found.end()
        if kind == "[[" and not is_hidden(text[start + 2 : start + 80]):
            continue
        if kind == "{{" and text[start + 2] == "{" and text[stop : stop + 1] == "}":
            stop += 1  # {{{an argument}}}
        yield start, stop


def outermost(regions: Iterator[Span]) -> list[Span]:
    """The regions that lie in no other, in order."""
    kept: list[Span] = []
    for start, stop in regions:
        while kept and kept[-1][0] >= start:
            kept.pop()
        kept.append((start, stop))
    return kept
