"""Which texts are right for a context, according to some examples; they are never negatives.

Two texts are the same if they differ only in case and white space. Knows nothing of how negatives
are found.

Letters: k different pairs of a context and a text that is right for it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from polyrank.records import Context, Example

MULTIPLIER = -7046029254386353131
"""Odd; turns a pair of identities into one number: context · MULTIPLIER + text, in 64 bits."""

Identities = NDArray[np.int64]


def folded(text: str) -> str:
    """A text without case and extra white space, so that equal texts compare equal."""
    return " ".join(text.casefold().split())


def text_identity(text: Context) -> int:
    """A signed 64-bit number, the same in every process for equal texts or turns."""
    turns: Iterable[str] = [text] if isinstance(text, str) else text
    digest = hashlib.blake2b(digest_size=8)
    for turn in turns:
        encoded = folded(turn).encode("utf-8", "surrogatepass")
        digest.update(len(encoded).to_bytes(8, "little") + encoded)
    return int.from_bytes(digest.digest(), "little", signed=True)


class KnownAnswers:
    """The right texts of each context: its responses in all examples, and itself if it is a text.

    Three arrays of at most 8 bytes per example each, so that a million examples need little memory.
    """

    def __init__(self, examples: Sequence[Example]) -> None:
        count = len(examples)
        contexts = np.fromiter((text_identity(one.context) for one in examples), np.int64, count)
        responses = np.fromiter((text_identity(one.response) for one in examples), np.int64, count)
        is_text = np.fromiter((isinstance(one.context, str) for one in examples), np.bool_, count)
        answered, first = np.unique(paired(contexts, responses), return_index=True)
        self._contexts = np.sort(contexts[first])
        texts = contexts[is_text]
        self.pairs = np.union1d(answered, paired(texts, texts))
        """Each context with each of its right texts, one number per pair, sorted: (k,)."""
        self.num_responses = len(np.unique(responses))
        self.leave_a_wrong_one = len(answered) < len(np.unique(contexts)) * self.num_responses
        """Whether some context has a response that is not right for it."""

    def is_right(self, context: Context, text: str) -> bool:
        """Whether a text is right for a context."""
        return self.is_right_pair(text_identity(context), text_identity(text))

    def is_right_pair(self, context: int, text: int) -> bool:
        """The same for identities."""
        pair = paired(np.array([context]), np.array([text]))[0]
        place = np.searchsorted(self.pairs, pair)
        return bool(place < len(self.pairs) and self.pairs[place] == pair)

    def count(self, context: Context) -> int:
        """How many different responses of a context there are."""
        identity = text_identity(context)
        start = np.searchsorted(self._contexts, identity, "left")
        return int(np.searchsorted(self._contexts, identity, "right") - start)


def paired(contexts: Identities, texts: Identities) -> Identities:
    """One number per pair of identities, with the broadcast shape of the two."""
    return contexts * MULTIPLIER + texts
