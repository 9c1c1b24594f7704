"""Vectors of candidates that were scored before, by their content, within a limit of memory.

Clients of rerankers send the same documents again and again; only a query's vectors are new. Knows
nothing of tokens, batches or HTTP.

Letters: n texts, d dimensions.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

KEY_BYTES = 16
OVERHEAD = 250
"""Bytes that an entry takes beside its vector: two objects and their place in the mapping."""


@dataclass(frozen=True)
class Known:
    """What a cache holds of some texts."""

    places: list[int]
    """The places of the known texts, ascending."""
    missing: list[int]
    """The places of the others, ascending."""
    vectors: NDArray[np.float32]
    """The vectors of the known texts: (len(places), d)."""
    num_tokens: int
    """The tokens of the known texts."""


class CandidateCache:
    """The vectors that were used last, of any number of models. Threads may share it."""

    def __init__(self, max_bytes: int) -> None:
        """Hold at most `max_bytes`; 0 holds nothing."""
        self.max_bytes = max_bytes
        self.num_bytes = 0
        self.hits = 0
        """Texts that were known."""
        self.misses = 0
        """Texts that were not."""
        self._entries: OrderedDict[bytes, bytes] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._entries)

    def get_many(self, keys: Sequence[bytes], dimension: int) -> Known:
        """What is known of some texts.

        Args:
            keys: The keys of n texts, from `keys_of`.
            dimension: The dimension d of the vectors.

        Returns:
            The vectors that are known, and which are missing. They are copies.
        """
        places, missing, found = [], [], []
        with self._lock:
            for place, key in enumerate(keys):
                entry = self._entries.get(key)
                if entry is None:
                    missing.append(place)
                else:
                    self._entries.move_to_end(key)
                    places.append(place)
                    found.append(entry)
            self.hits += len(places)
            self.misses += len(missing)
        records = np.frombuffer(b"".join(found), dtype=record_of(dimension))
        return Known(places, missing, records["vector"], int(records["tokens"].sum()))

    def put_many(
        self, keys: Sequence[bytes], vectors: NDArray[np.float32], num_tokens: Sequence[int]
    ) -> None:
        """Keep vectors, and drop those that were not used for longest to make room.

        Args:
            keys: The keys of n texts.
            vectors: (n, d).
            num_tokens: The tokens of each text.
        """
        records = np.empty(len(keys), dtype=record_of(vectors.shape[1]))
        records["vector"] = vectors
        records["tokens"] = num_tokens
        size = records.dtype.itemsize + OVERHEAD
        if size > self.max_bytes:
            return
        with self._lock:
            for key, record in zip(keys, records, strict=True):
                replaced = self._entries.pop(key, None)
                if replaced is not None:
                    self.num_bytes -= len(replaced) + OVERHEAD
                self._entries[key] = record.tobytes()
                self.num_bytes += size
            while self.num_bytes > self.max_bytes:
                _, dropped = self._entries.popitem(last=False)
                self.num_bytes -= len(dropped) + OVERHEAD


def keys_of(fingerprint: str, texts: Iterable[str]) -> list[bytes]:
    """The key of each text for a model: 128 bits that nobody can find a second text for."""
    model = blake2b(fingerprint.encode(), digest_size=32).digest()
    return [
        blake2b(text.encode("utf-8", "surrogatepass"), digest_size=KEY_BYTES, key=model).digest()
        for text in texts
    ]


def record_of(dimension: int) -> np.dtype[Any]:
    """How an entry holds a vector and the number of its tokens."""
    return np.dtype([("tokens", np.int32), ("vector", np.float32, (dimension,))])
