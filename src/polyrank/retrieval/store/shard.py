"""A shard: a bounded number of candidates in one folder, memory-mapped.

    candidates.arrow    a table of the ids and texts: `id`, `text`
    metadata.arrow      a table of the metadata, one column per field, if there are any
    id-hashes.npy       the hashes of the ids, sorted: (rows,), uint64
    id-rows.npy         the rows that they belong to: (rows,), uint32
    deleted-N.npy       which rows have been deleted up to generation N: bits, the first row is the
                        lowest bit of a byte

A committed shard never changes; `deleted-N.npy` is written beside it. Knows nothing of its vectors.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from polyrank.errors import DataError
from polyrank.records import Candidate
from polyrank.retrieval.source import Candidates
from polyrank.retrieval.store.arrays import map_array, write_array
from polyrank.retrieval.store.manifest import ShardRecord, damaged
from polyrank.retrieval.store.metadata import METADATA, Metadata, MetadataWriter
from polyrank.tables import Table, TableWriter

CANDIDATES = "candidates.arrow"
HASHES = "id-hashes.npy"
ROWS = "id-rows.npy"
DELETED = "deleted-"

HASH = np.dtype("<u8")
ROW = np.dtype("<u4")
HASHES_AT_ONCE = 1 << 22


class ShardWriter:
    """Writes the ids, texts and metadata of a shard; its vectors come later."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._table = TableWriter(folder / CANDIDATES, ["id", "text"])
        self._metadata = MetadataWriter(folder / METADATA)
        self._hashes: list[bytes] = []

    def __len__(self) -> int:
        return len(self._hashes)

    def extend(self, candidates: Sequence[Candidate]) -> None:
        """Append candidates. Raises DataError for a text that UTF-8 cannot hold."""
        ids = [encoded(candidate, candidate.id) for candidate in candidates]
        texts = [encoded(candidate, candidate.text) for candidate in candidates]
        self._table.extend({"id": ids, "text": texts})
        self._metadata.extend(candidates)
        self._hashes.extend(map(hash_of, ids))

    def finish(self) -> Shard:
        """Write what is left, close the files and open the shard."""
        self._table.finish()
        fields = self._metadata.finish()
        hashes = np.frombuffer(b"".join(self._hashes), dtype=HASH)
        order = np.argsort(hashes, kind="stable")
        write_array(self._folder / HASHES, hashes[order])
        write_array(self._folder / ROWS, order.astype(ROW))
        return Shard(self._folder, len(self), fields)

    def close(self) -> None:
        """Close the files, finished or not."""
        self._table.close()


class Shard:
    """A shard on disk; opening it reads no candidates."""

    def __init__(self, folder: Path, rows: int, fields: Mapping[str, str]) -> None:
        self.folder = folder
        self.rows = rows
        self.fields = fields
        table = Table(folder / CANDIDATES, damaged)
        if len(table) != rows:
            raise table.fault(f"it has {len(table)} rows instead of {rows}")
        self.ids = table.texts("id")
        self.texts = table.texts("text")
        self.metadata = Metadata(folder, rows, fields)
        self.hashes: NDArray[np.uint64] = map_array(folder / HASHES, HASH, (rows,))
        self._hashed_rows: NDArray[np.uint32] = map_array(folder / ROWS, ROW, (rows,))

    @property
    def files(self) -> list[str]:
        """The names of its files, except those of its vectors."""
        return [CANDIDATES, HASHES, ROWS, *([METADATA] if self.fields else [])]

    def candidate(self, row: int) -> Candidate:
        """The candidate in a row; faster than `between` for one."""
        return Candidate(self.ids[row], self.texts[row], self.metadata[row])

    def between(self, start: int, stop: int) -> list[Candidate]:
        """The candidates of the rows from `start` to before `stop`."""
        columns = (
            self.ids.between(start, stop),
            self.texts.between(start, stop),
            self.metadata.between(start, stop),
        )
        return [Candidate(*parts) for parts in zip(*columns, strict=True)]

    def with_hash(self, value: int) -> list[int]:
        """The rows whose id has this hash."""
        wanted = np.array(value, dtype=HASH)
        start = int(np.searchsorted(self.hashes, wanted, side="left"))
        stop = int(np.searchsorted(self.hashes, wanted, side="right"))
        rows: list[int] = self._hashed_rows[start:stop].tolist()
        return rows

    def rows_with_id(self, identifier: str) -> list[int]:
        """The rows with this id, deleted or not; more than one only before a commit."""
        value = int.from_bytes(hash_of(identifier.encode("utf-8", "surrogatepass")), "little")
        return sorted(row for row in self.with_hash(value) if self.ids[row] == identifier)


def hash_of(encoded_id: bytes) -> bytes:
    """The hash of an id, 8 bytes, the same in every process."""
    return hashlib.blake2b(encoded_id, digest_size=HASH.itemsize).digest()


def encoded(candidate: Candidate, text: str) -> bytes:
    """`text` as UTF-8. Raises DataError if it holds half of a surrogate pair."""
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise DataError(
            f"The candidate with the id {candidate.id!r} holds {text[error.start]!r}, half of a "
            "surrogate pair, at character "
            f"{error.start + 1}.",
            "Remove it, or write the whole pair.",
        ) from None


def rows_with_id(shards: Sequence[Shard], identifier: str) -> list[int]:
    """Every row with this id, numbered over all shards."""
    rows = []
    first = 0
    for shard in shards:
        rows += [first + row for row in shard.rows_with_id(identifier)]
        first += shard.rows
    return rows


def require_unique_ids(shards: Sequence[Shard], candidates: Candidates) -> None:
    """Raise DataError, naming both places, if two candidates have the same id."""
    for value in found_twice([shard.hashes for shard in shards]):
        for shard in shards:
            for row in shard.with_hash(value):
                identifier = shard.ids[row]
                rows = rows_with_id(shards, identifier)
                if len(rows) > 1:
                    raise candidates.given_twice(identifier, rows)


def found_twice(tables: Sequence[NDArray[np.uint64]]) -> Iterator[int]:
    """The hashes that occur twice in sorted tables of any size.

    The tables are compared range by range, so that memory stays bounded.
    """
    count = sum(map(len, tables)) // HASHES_AT_ONCE + 1
    edges = np.array([number * 2**64 // count for number in range(1, count)], dtype=HASH)
    bounds = [[0, *np.searchsorted(t, edges).tolist(), len(t)] for t in tables]
    for number in range(count):
        ranges = zip(tables, bounds, strict=True)
        pieces = [table[b[number] : b[number + 1]] for table, b in ranges]
        merged = np.sort(np.concatenate([np.zeros(0, HASH), *pieces]))
        yield from np.unique(merged[1:][merged[1:] == merged[:-1]]).tolist()


def common_ids(old: Shard, new: Shard) -> Iterator[tuple[int, int]]:
    """Every pair of rows, one from each shard, whose candidates have the same id."""
    for start in range(0, new.rows, HASHES_AT_ONCE):
        hashes = new.hashes[start : start + HASHES_AT_ONCE]
        places = np.minimum(np.searchsorted(old.hashes, hashes), old.rows - 1)
        for value in np.unique(hashes[old.hashes[places] == hashes]).tolist():
            mine = {old.ids[row]: row for row in old.with_hash(value)}
            for row in new.with_hash(value):
                if new.ids[row] in mine:
                    yield mine[new.ids[row]], row


def deleted_name(generation: int) -> str:
    """The name of the file of deleted rows that a generation writes."""
    return f"{DELETED}{generation}.npy"


def write_deleted(path: Path, deleted: NDArray[np.bool_]) -> None:
    """Write which rows are deleted: (rows,)."""
    write_array(path, np.packbits(deleted, bitorder="little"))


def read_deleted(folder: Path, record: ShardRecord) -> NDArray[np.bool_]:
    """Which rows of a shard of the index `folder` are deleted: (rows,)."""
    if record.deleted is None:
        return np.zeros(record.rows, np.bool_)
    path = folder / record.deleted
    bits = map_array(path, np.uint8, (-(-record.rows // 8),))
    deleted = np.unpackbits(bits, count=record.rows, bitorder="little").astype(np.bool_)
    if int(deleted.sum()) != record.rows - record.live:
        raise damaged(path, f"it does not mark {record.rows - record.live} rows")
    return deleted
