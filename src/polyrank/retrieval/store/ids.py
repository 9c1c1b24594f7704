"""Ids across shards: whether one is given twice, and which are there already.

The sorted hashes of the shards are compared range by range, so that memory stays bounded; only
ids of equal hash are read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from polyrank.retrieval.source import Candidates
from polyrank.retrieval.store.shard import HASH, Shard

HASHES_AT_ONCE = 1 << 22


def rows_with_id(shards: Sequence[Shard], identifier: str) -> list[int]:
    """Every row, counted through all shards, whose candidate has this id."""
    rows = []
    first = 0
    for shard in shards:
        rows += [first + row for row in shard.rows_with_id(identifier)]
        first += shard.rows
    return rows


def require_unique_ids(shards: Sequence[Shard], candidates: Candidates) -> None:
    """Raise DataError, naming both places, if two candidates have one id."""
    for value in found_twice([shard.hashes for shard in shards]):
        for shard in shards:
            for row in shard.with_hash(value):
                identifier = shard.ids[row]
                rows = rows_with_id(shards, identifier)
                if len(rows) > 1:
                    raise candidates.given_twice(identifier, rows)


def found_twice(tables: Sequence[NDArray[np.uint64]]) -> Iterator[int]:
    """The hashes that are found twice in sorted tables of any size."""
    parts = sum(map(len, tables)) // HASHES_AT_ONCE + 1
    edges = np.array([part * 2**64 // parts for part in range(1, parts)], dtype=HASH)
    bounds = [[0, *np.searchsorted(t, edges).tolist(), len(t)] for t in tables]
    for part in range(parts):
        ranges = zip(tables, bounds, strict=True)
        pieces = [table[b[part] : b[part + 1]] for table, b in ranges]
        merged = np.sort(np.concatenate([np.zeros(0, HASH), *pieces]))
        yield from np.unique(merged[1:][merged[1:] == merged[:-1]]).tolist()


def common_ids(old: Shard, new: Shard) -> Iterator[tuple[int, int]]:
    """Every pair of rows, of the one shard and of the other, whose candidates have one id."""
    for start in range(0, new.rows, HASHES_AT_ONCE):
        hashes = new.hashes[start : start + HASHES_AT_ONCE]
        places = np.minimum(np.searchsorted(old.hashes, hashes), old.rows - 1)
        for value in np.unique(hashes[old.hashes[places] == hashes]).tolist():
            mine = {old.ids[row]: row for row in old.with_hash(value)}
            for row in new.with_hash(value):
                if new.ids[row] in mine:
                    yield mine[new.ids[row]], row
