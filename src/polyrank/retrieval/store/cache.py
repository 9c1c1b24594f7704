"""The candidate cache: every candidate's id, text and vector, read where they lie on the disk.

The shards stand one after the other, so that a candidate has one row number. Knows nothing of
contexts and scores.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from polyrank.errors import IndexFolderError
from polyrank.records import Candidate
from polyrank.retrieval.store.manifest import REBUILD, Manifest, check_sizes
from polyrank.retrieval.store.shard import COMPONENT, VECTORS, Shard, hash_of

DTYPE = "float32"
ALIGNMENT = 64
"""Blocks are filled up with zeros to a multiple of this many rows: in a last, odd row a matrix
product adds up in another order, and equal candidates would no longer score equally."""


class VectorBlock(NamedTuple):
    """The vectors (n, d) of the rows from `start`; the first `rows` count, the rest are filling."""

    start: int
    rows: int
    vectors: Tensor


class CandidateCache:
    """The shards of an index folder, seen as one sequence of candidates."""

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        check_sizes(folder, manifest)
        if manifest.dtype != DTYPE:
            raise IndexFolderError(
                f"The vectors of {folder} are {manifest.dtype}; this polyrank reads {DTYPE}.",
                "Build the index again, or install a newer polyrank.",
            )
        try:
            self.shards = [Shard(folder / s.folder, s.rows) for s in manifest.shards]
            self._vectors = [shard.vectors(manifest.dimension) for shard in self.shards]
        except (OSError, ValueError) as error:
            raise IndexFolderError(
                f"A shard of {folder} cannot be opened: {error}.", REBUILD
            ) from error
        for shard, vectors in zip(self.shards, self._vectors, strict=True):
            size = (shard.folder / VECTORS).stat().st_size
            if size != vectors.nbytes:
                raise IndexFolderError(
                    f"{shard.folder / VECTORS} has {size} bytes instead of {vectors.nbytes}.",
                    REBUILD,
                )
        self._starts = list(accumulate((s.rows for s in self.shards), initial=0))

    def __len__(self) -> int:
        return self._starts[-1]

    def __iter__(self) -> Iterator[Candidate]:
        for shard in self.shards:
            for start in range(0, shard.rows, 1024):
                stop = min(start + 1024, shard.rows)
                pairs = zip(
                    shard.ids.between(start, stop), shard.texts.between(start, stop), strict=True
                )
                yield from (Candidate(identifier, text) for identifier, text in pairs)

    def candidate(self, row: int) -> Candidate:
        """The candidate in this row."""
        shard, inner = self._place(row)
        return Candidate(self.shards[shard].ids[inner], self.shards[shard].texts[inner])

    def id(self, row: int) -> str:
        """The id of the candidate in this row."""
        shard, inner = self._place(row)
        return self.shards[shard].ids[inner]

    def vector(self, row: int) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
        """The vector of the candidate in this row: (d,)."""
        shard, inner = self._place(row)
        return np.asarray(self._vectors[shard][inner])

    def row(self, identifier: str) -> int | None:
        """The row of the candidate with this id, if there is one."""
        rows = rows_with_id(self.shards, identifier)
        return rows[0] if rows else None

    def blocks(self, rows: int) -> Iterator[VectorBlock]:
        """The vectors in blocks of at most `rows`, a multiple of ALIGNMENT; mapped, not copied.

        Only the last block of a shard may be a copy, filled up with zeros.
        """
        for first, vectors in zip(self._starts, self._vectors, strict=False):
            for start in range(0, len(vectors), rows):
                part = np.asarray(vectors[start : start + rows])
                count = len(part)
                missing = -count % ALIGNMENT
                if missing:
                    part = np.concatenate([part, np.zeros((missing, part.shape[1]), COMPONENT)])
                yield VectorBlock(first + start, count, torch.from_numpy(part))

    def _place(self, row: int) -> tuple[int, int]:
        """A row as (shard, row of the shard)."""
        if not 0 <= row < len(self):
            raise IndexError(row)
        shard = bisect_right(self._starts, row) - 1
        return shard, row - self._starts[shard]


def rows_with_id(shards: Sequence[Shard], identifier: str) -> list[int]:
    """Every row, counted through all shards, whose candidate has this id."""
    value = int.from_bytes(hash_of(identifier.encode("utf-8", "surrogatepass")), "little")
    rows = []
    first = 0
    for shard in shards:
        rows += [first + row for row in shard.with_hash(value) if shard.ids[row] == identifier]
        first += shard.rows
    return sorted(rows)
