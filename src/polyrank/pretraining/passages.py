"""Splits articles into passages: paragraphs of one section, merged or cut to a number of words."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from polyrank.records import Paragraph, Section

UNSPACED = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff]")
"""A character of a script that puts no space between words."""

Span = tuple[int, int]


class Piece(NamedTuple):
    """A stretch of text with the places of its sentences, and the titles that it links to."""

    text: str
    sentences: tuple[Span, ...]
    targets: tuple[str, ...]
    words: int


def count_words(text: str) -> int:
    """The number of words; two characters of Chinese, Japanese, Thai and the like count as one."""
    words = len(text.split())
    return words if text.isascii() else words + len(UNSPACED.findall(text)) // 2


def passages_of(section: Section, limit: int) -> Iterator[Piece]:
    """The passages of a section, in order.

    Neighbouring paragraphs are merged while they have at most `limit` words together. A longer
    paragraph is cut at sentence ends into parts of about the same length; only a sentence that is
    longer itself makes a passage longer than `limit`. Paragraphs without a sentence are left out.
    """
    collected: list[Piece] = []
    for paragraph in section.paragraphs:
        for piece in pieces_of(paragraph, limit):
            if collected and sum(one.words for one in collected) + piece.words > limit:
                yield merged(collected)
                collected = []
            collected.append(piece)
    if collected:
        yield merged(collected)


def pieces_of(paragraph: Paragraph, limit: int) -> Iterator[Piece]:
    """A paragraph, whole if it has at most `limit` words, else cut at sentence ends."""
    spans = [span for span in paragraph.sentences if paragraph.text[span[0] : span[1]].strip()]
    lengths = [count_words(paragraph.text[start:stop]) for start, stop in spans]
    start = 0
    for count in runs(lengths, limit):
        yield piece_of(paragraph, spans[start : start + count], sum(lengths[start : start + count]))
        start += count


def runs(lengths: Sequence[int], limit: int) -> Iterator[int]:
    """How many neighbours go together, time after time, so that the sums are alike and ≤ `limit`.

    A number above the limit goes alone.
    """
    left = sum(lengths)
    count = words = 0
    for length in lengths:
        parts = max(1, -(-(left + words) // limit))
        target = (left + words) / parts
        overfull = words + length > limit
        if count and (overfull or (parts > 1 and words + length / 2 > target)):
            yield count
            count = words = 0
        count += 1
        words += length
        left -= length
    if count:
        yield count


def piece_of(paragraph: Paragraph, spans: Sequence[Span], words: int) -> Piece:
    """The text from the first to the last of some sentences that follow each other."""
    start, stop = spans[0][0], spans[-1][1]
    return Piece(
        text=paragraph.text[start:stop],
        sentences=tuple((first - start, last - start) for first, last in spans),
        targets=tuple(link.target for link in paragraph.links if start <= link.start < stop),
        words=words,
    )


def merged(pieces: Sequence[Piece]) -> Piece:
    """Several pieces as one, with a space between them."""
    if len(pieces) == 1:
        return pieces[0]
    sentences: list[Span] = []
    offset = 0
    for piece in pieces:
        sentences += [(start + offset, stop + offset) for start, stop in piece.sentences]
        offset += len(piece.text) + 1
    return Piece(
        text=" ".join(piece.text for piece in pieces),
        sentences=tuple(sentences),
        targets=unique(target for piece in pieces for target in piece.targets),
        words=sum(piece.words for piece in pieces),
    )


def unique(values: Iterable[str]) -> tuple[str, ...]:
    """Without repetitions, in order."""
    return tuple(dict.fromkeys(values))


def without(text: str, spans: Iterable[Span]) -> str:
    """A text from which spans are taken out; a space stays only where one was."""
    kept = ""
    position = 0
    for start, stop in [*spans, (len(text), len(text))]:
        part = text[position:start]
        spaced = kept[-1:].isspace() or part[:1].isspace()
        kept = kept.rstrip() + (" " if kept and spaced and part.strip() else "") + part.lstrip()
        position = stop
    return kept.strip()
