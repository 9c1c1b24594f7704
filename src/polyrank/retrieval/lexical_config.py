"""The settings of lexical search. Needs neither numpy nor torch."""

from __future__ import annotations

from dataclasses import dataclass

from polyrank.config import require
from polyrank.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class BM25Config:
    """What defines a BM25 score, beside the texts."""

    k1: float = 1.5
    """How fast further occurrences of a word count less; the larger, the slower."""
    b: float = 0.75
    """How much longer candidates are held against them, from 0 to 1."""
    stemmer: str | None = None
    """Compare the stems of words of this language, such as english; needs PyStemmer."""
    letters: int | None = None
    """Compare overlapping runs of this many letters in the place of words."""

    def __post_init__(self) -> None:
        require(self.k1 >= 0, "k1", "0 or more", self.k1)
        require(0 <= self.b <= 1, "b", "from 0 to 1", self.b)
        few = self.letters is not None and self.letters < 1
        require(not few, "letters", "at least 1", self.letters)
        if self.stemmer is not None and self.letters is not None:
            raise UsageError(
                "stemmer and letters are two ways to compare words.", "Leave one of them out."
            )
