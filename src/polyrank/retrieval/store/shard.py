"""A shard: a bounded number of candidates in one folder, memory-mapped.

    ids.strings       a column of strings
    texts.strings     a column of strings
    lookup.hashes     the hashes of the ids, sorted (<u8 a row), then whose they are (<u4 a row)
    field-N.*         the columns of the metadata (see `columns`)

A shard is never changed once it is committed. Knows nothing of its vectors, of what is deleted,
and of the other shards.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from polyrank.errors import DataError, IndexFolderError
from polyrank.records import Candidate
from polyrank.retrieval.source import Candidates
from polyrank.retrieval.store.columns import Columns, ColumnsWriter, column_files
from polyrank.retrieval.store.manifest import REBUILD, FieldRecord, ShardRecord
from polyrank.retrieval.store.strings import Strings, StringsWriter
from polyrank.storage import write_all

IDS = "ids.strings"
TEXTS = "texts.strings"
LOOKUP = "lookup.hashes"
FILES = (IDS, TEXTS, LOOKUP)

HASH = np.dtype("<u8")
ROW = np.dtype("<u4")
HASHES_AT_ONCE = 1 << 22
SUFFIX = ".bits"


class ShardWriter:
    """Writes the ids, texts and metadata of a shard; its vectors come later."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._ids = StringsWriter(folder / IDS)
        self._texts = StringsWriter(folder / TEXTS)
        self._columns = ColumnsWriter(folder)
        self._hashes: list[bytes] = []

    def __len__(self) -> int:
        return len(self._hashes)

    def extend(self, candidates: Sequence[Candidate]) -> None:
        """Append candidates. Raises DataError for a text that UTF-8 cannot hold."""
        ids = [encoded(candidate, candidate.id) for candidate in candidates]
        self._texts.extend([encoded(candidate, candidate.text) for candidate in candidates])
        self._ids.extend(ids)
        self._columns.extend(candidates)
        self._hashes.extend(map(hash_of, ids))

    def finish(self) -> Shard:
        """Write what is still missing, close the files and open the shard."""
        self._ids.finish()
        self._texts.finish()
        fields = self._columns.finish()
        hashes = np.frombuffer(b"".join(self._hashes), dtype=HASH)
        order = np.argsort(hashes, kind="stable")
        with open(self._folder / LOOKUP, "wb", buffering=0) as handle:
            write_all(handle, hashes[order].tobytes())
            write_all(handle, order.astype(ROW).tobytes())
        return Shard(self._folder, len(self), fields)

    def close(self) -> None:
        """Close the files, finished or not."""
        self._ids.close()
        self._texts.close()


class Shard:
    """A shard on the disk; opening it reads nothing but the columns' ends."""

    def __init__(self, folder: Path, rows: int, fields: Mapping[str, FieldRecord]) -> None:
        self.folder = folder
        self.rows = rows
        self.fields = fields
        self.ids = Strings(folder / IDS, rows)
        self.texts = Strings(folder / TEXTS, rows)
        self.columns = Columns(folder, rows, fields)
        table = np.memmap(folder / LOOKUP, dtype=np.uint8, mode="r")
        if table.size != rows * (HASH.itemsize + ROW.itemsize):
            raise IndexFolderError(
                f"{folder / LOOKUP} has {table.size} bytes, which do not fit {rows} rows.", REBUILD
            )
        split = rows * HASH.itemsize
        self.hashes: NDArray[np.uint64] = np.asarray(table[:split].view(HASH))
        self._hashed_rows: NDArray[np.uint32] = np.asarray(table[split:].view(ROW))

    @property
    def files(self) -> list[str]:
        """The names of its files, those of its vectors left out."""
        return [*FILES, *column_files(self.fields)]

    def between(self, start: int, stop: int) -> list[Candidate]:
        """The candidates of the rows from `start` to before `stop`."""
        columns = (
            self.ids.between(start, stop),
            self.texts.between(start, stop),
            self.columns.metadata(start, stop),
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
        """The rows whose candidate has this id, deleted or not; several only before a commit."""
        value = int.from_bytes(hash_of(identifier.encode("utf-8", "surrogatepass")), "little")
        return sorted(row for row in self.with_hash(value) if self.ids[row] == identifier)


def hash_of(encoded_id: bytes) -> bytes:
    """The hash of an id, 8 bytes, the same in every process."""
    return hashlib.blake2b(encoded_id, digest_size=HASH.itemsize).digest()


def encoded(candidate: Candidate, text: str) -> bytes:
    """`text` as UTF-8. Raises DataError where it holds half of a surrogate pair."""
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


def tombstone_name(generation: int) -> str:
    """The name of the file that a generation writes."""
    return f"deleted-{generation}{SUFFIX}"


def write_deleted(path: Path, deleted: NDArray[np.bool_]) -> None:
    """Write which rows are deleted: (rows,)."""
    with open(path, "wb", buffering=0) as handle:
        write_all(handle, np.packbits(deleted, bitorder="little").tobytes())


def read_deleted(folder: Path, record: ShardRecord) -> NDArray[np.bool_]:
    """Which rows of a shard of the index `folder` are deleted: (rows,)."""
    if record.deleted is None:
        return np.zeros(record.rows, np.bool_)
    path = folder / record.deleted
    bits = np.fromfile(path, dtype=np.uint8)
    if len(bits) == -(-record.rows // 8):
        deleted = np.unpackbits(bits, count=record.rows, bitorder="little").astype(np.bool_)
        if int(deleted.sum()) == record.rows - record.live:
            return deleted
    raise IndexFolderError(f"{path} is damaged: it does not fit its shard.", REBUILD)
