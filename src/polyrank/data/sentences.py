"""Where the sentences of a text begin and end, by punctuation. Knows no grammar.

A sentence ends after `.`, `!`, `?` or `…`, with the closing quotes and brackets after them, if
space and then anything but a small letter follows; after `。！？` even without space; and at the
end of a line. A full stop does not end one after an initial (`J. Smith`), after an abbreviation
with dots (`e.g.`, `U.S.`) or after one that `ABBREVIATION` knows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

ABBREVIATION = re.compile(
    r"adm|al|approx|apr|aug|bros|capt|cf|ch|co|col|corp|dec|dept|dr|eds?|esp|etc|feb|figs?|ft|gov|"
    r"hon|inc|jan|jr|lt|ltd|maj|messrs|mrs?|mt|nov|oct|pp?|pres|prof|rev|sep|sept|sgt|sr|st|vol|vs",
    re.IGNORECASE,
)
"""What comes before a full stop that does not end a sentence."""

END = re.compile(r"(?<![.!?…])[.!?…]+[\"'”’»)\]]*(?=\s)|[。！？]+[」』”’）)]*|\n")
"""A run of marks is tried from its beginning only, so that time is linear in the text."""
NEXT = re.compile(r"\s*(\S?)")
LAST_WORD = re.compile(r"[^\s(\[\"'“‘«]+\Z")


class Span(NamedTuple):
    """`text[start:end]`."""

    start: int
    end: int


def sentence_spans(text: str) -> list[Span]:
    """The spans of a text's sentences, without surrounding space; none is empty."""
    spans = []
    start = 0
    for end in boundaries(text):
        spans += trimmed(text, start, end)
        start = end
    return spans + trimmed(text, start, len(text))


def boundaries(text: str) -> Iterator[int]:
    """Yield the places where a sentence ends."""
    for found in END.finditer(text):
        if found[0] == "\n" or found[0][0] in "。！？":
            yield found.end()
            continue
        following = NEXT.match(text, found.end())
        assert following is not None
        if following[1].islower() or (found[0] == "." and is_abbreviated(text, found.start())):
            continue
        yield found.end()


def is_abbreviated(text: str, stop: int) -> bool:
    """Whether the full stop at `stop` belongs to the word before it."""
    word = LAST_WORD.search(text, max(0, stop - 30), stop)
    if word is None:
        return False
    letters = word[0]
    initial = len(letters) == 1 and letters.isalpha() and letters.isupper() and letters != "I"
    dotted = "." in letters and all(len(part) <= 2 for part in letters.split("."))
    return initial or (dotted and letters[0].isalpha()) or bool(ABBREVIATION.fullmatch(letters))


def trimmed(text: str, start: int, end: int) -> list[Span]:
    """The span without surrounding space, or nothing."""
    piece = text[start:end]
    start += len(piece) - len(piece.lstrip())
    return [Span(start, start + len(piece.strip()))] if piece.strip() else []
