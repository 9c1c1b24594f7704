"""The settings of BM25, and the words that they make of a text. Needs no numpy.

A word is a run of letters, marks and digits. Some scripts do not separate words by spaces (Han,
kana, Thai, Lao, Khmer, Burmese, Tibetan) or attach particles and endings to them (Hangul). They
give overlapping pairs of letters instead. Knows nothing of scores.
"""

from __future__ import annotations

import importlib
import re
import sys
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from polyrank.config import require, require_choice
from polyrank.errors import UsageError

Tokenise = Callable[[str], list[str]]

UNSPACED = (
    "\u0e00-\u0eff"  # Thai, Lao
    "\u0f00-\u0fff"  # Tibetan
    "\u1000-\u109f"  # Burmese
    "\u1780-\u17ff"  # Khmer
    "\u3005-\u3007\u3040-\u30ff"  # kana and the marks of repetition
    "\u1100-\u11ff\uac00-\ud7a3"  # Hangul
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"  # Han
)
ASCII_WORD = re.compile("[a-z0-9]+")
JOINERS = {0x00AD: None, 0x200C: None, 0x200D: None}
"""Signs without a width inside words: the soft hyphen and the joiners."""


@dataclass(frozen=True, kw_only=True)
class BM25Config:
    """What defines a BM25 score, besides the texts."""

    k1: float = 1.5
    """How much repeated occurrences of a word count; the larger, the more."""
    b: float = 0.75
    """How much long candidates are penalised, from 0 to 1."""
    stemmer: str | None = None
    """Compare stems of words in this language, such as english; needs PyStemmer."""
    letters: int | None = None
    """Compare overlapping runs of this many letters instead of words."""

    def __post_init__(self) -> None:
        require(self.k1 >= 0, "k1", "0 or more", self.k1)
        require(0 <= self.b <= 1, "b", "from 0 to 1", self.b)
        few = self.letters is not None and self.letters < 1
        require(not few, "letters", "at least 1", self.letters)
        if self.stemmer is not None and self.letters is not None:
            raise UsageError(
                "stemmer and letters are two ways to compare words.", "Leave one of them out."
            )


@cache
def word_pattern() -> re.Pattern[str]:
    """The pattern of a word: a run of an unspaced script, or of any other letters.

    Python's own class of letters and digits lacks the marks that Indic vowels are written with.
    """
    marks = "".join(
        chr(code) for code in range(sys.maxunicode + 1) if unicodedata.category(chr(code))[0] == "M"
    )
    return re.compile(rf"([{UNSPACED}]+)|(?:[^\W_{UNSPACED}]|[{marks}])+")


def words(text: str) -> list[str]:
    """The words of a text in order, case-folded and normalised (NFKC)."""
    if text.isascii():  # the same words, found faster
        return ASCII_WORD.findall(text.lower())
    found: list[str] = []
    normal = unicodedata.normalize("NFKC", text).translate(JOINERS).casefold()
    for match in word_pattern().finditer(normal):
        run = match.group()
        if match.lastindex is None or len(run) == 1:
            found.append(run)
        else:
            found.extend(run[start : start + 2] for start in range(len(run) - 1))
    return found


def pieces(text: str, length: int) -> list[str]:
    """The overlapping runs of `length` letters inside the words; shorter words stay whole."""
    return [
        word[start : start + length]
        for word in words(text)
        for start in range(max(1, len(word) - length + 1))
    ]


def stemmed_words(language: str) -> Tokenise:
    """A tokeniser that also reduces words to their stems, by PyStemmer.

    Raises UsageError if the package is missing or does not know the language.
    """
    try:
        package = importlib.import_module("Stemmer")
    except ImportError:
        raise UsageError(
            "Stemming needs the package PyStemmer, which is not installed.",
            "Install it with: pip install PyStemmer; or leave the stemmer out.",
        ) from None
    require_choice("stemmer", language, package.algorithms())
    stem: Callable[[list[str]], list[str]] = package.Stemmer(language).stemWords
    return lambda text: stem(words(text))
