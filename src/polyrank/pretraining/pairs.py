"""A pair of texts that a task draws, and the keys of the other pairs that also answer it."""

from __future__ import annotations

import hashlib
from typing import Literal, NamedTuple

NO_KEYS: frozenset[int] = frozenset()
TEXT = 1 << 62
CORPUS_SHIFT = 54
UNRELATED, FOLLOWS, RELATED = 0, 1, 2
"""The labels of pairs: the second text is from elsewhere, follows, or is another one of the same
conversation."""
Reading = Literal["apart", "joined", "decoded"]
"""How the two texts of a pair are read: `apart`, and then compared; `joined`, as one text with some
tokens masked; `decoded`, the first by the encoder and the second, most of it masked, by a decoder
that gets the first as a vector."""


class Pair(NamedTuple):
    """What an encoder is to bring together, or to tell apart.

    The second text of pair j is an accidental hit for the first text of pair i if `wanted` of i and
    `answers` of j share a key: it is then not a negative.
    """

    task: str
    first: str | tuple[str, ...]
    """The query, or the turns of a context, oldest first."""
    second: str
    """The document, or what follows."""
    second_title: str | None = None
    """The title before the document: "title [SEP] passage"."""
    label: int | None = None
    """Whether the second text follows; None if every pair is right."""
    reading: Reading = "apart"
    """How the two texts are read."""
    wanted: frozenset[int] = NO_KEYS
    """Keys of what the first asks for; below 2^63."""
    answers: frozenset[int] = NO_KEYS
    """Keys of what the second answers."""
    frequency: float = 1.0
    """How many times, in expectation, this document stands in one pass over the task; in a mixture,
    over the mixture. A document is a passage: whether a sentence was taken out does not count."""
    passage: int | None = None
    """The number of the document's passage in its tables."""


def passage_key(passage: int) -> int:
    """Answered by one passage."""
    return passage << 2


def rest_key(article: int) -> int:
    """Answered by every passage of an article outside its first section."""
    return article << 2 | 1


def link_key(article: int) -> int:
    """Answered by every passage that links to an article."""
    return article << 2 | 2


def page_key(article: int) -> int:
    """Answered by every passage of an article."""
    return article << 2 | 3


def text_key(text: str) -> int:
    """Answered by every text that differs in case and white space at most."""
    plain = " ".join(text.casefold().split()).encode("utf-8", "replace")
    return TEXT | int.from_bytes(hashlib.blake2b(plain, digest_size=8).digest(), "big") >> 2


def of_corpus(keys: frozenset[int], corpus: int) -> frozenset[int]:
    """Keys of the passages and articles of one of several corpora; texts are the same in all."""
    if not corpus:
        return keys
    return frozenset(key if key & TEXT else key + (corpus << CORPUS_SHIFT) for key in keys)
