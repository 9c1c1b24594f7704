"""Tables on disk: Arrow IPC files, written block by block and memory-mapped.

    writer = TableWriter(path, ["id", "text"])
    writer.extend({"id": [b"a"], "text": [b"An apple."]})
    writer.finish()
    Table(path, damaged).texts("text")[0]

Files are not compressed, so only what is asked for is read; pyarrow, polars and DuckDB read them
without this package. Knows nothing of what the rows mean. Imports pyarrow when a table is written
or opened, and numpy only for digests.
"""

from __future__ import annotations

import hashlib
import mmap
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, pairwise
from pathlib import Path
from struct import calcsize, unpack_from
from struct import error as StructError
from typing import Any, TypeAlias

from polyrank.storage import storage_errors, write_all

BLOCK_BYTES = 1 << 23
"""A block of a table is written when its columns hold this many bytes."""

FOOTER_END, BLOCK = 10, 24
"""Bytes after a footer: its length and `ARROW1`; and of the place of a block in it."""
DICTIONARIES, BLOCKS, HEADER, COMPRESSION = 2, 3, 2, 3
"""Fields of a footer, of a message and of a record batch, by their numbers."""

Damaged: TypeAlias = Callable[[Path, str], Exception]
"""Makes the error for a file, from its path and what is wrong."""


class TableWriter:
    """Writes columns of texts; one block is in memory.

    The file can be read after `finish`. Raises StorageError if the disk refuses.
    """

    def __init__(self, path: Path, columns: Sequence[str]) -> None:
        import pyarrow as pa

        self._blocks = {name: TextBlock() for name in columns}
        self._waiting = 0  # bytes
        fields = [pa.field(name, pa.large_string(), nullable=False) for name in columns]
        self._schema = pa.schema(fields)
        self._file = ArrowFile(path, self._schema)

    def extend(self, columns: Mapping[str, Sequence[bytes]]) -> None:
        """Add rows: the texts of every column, as UTF-8."""
        assert len(set(map(len, columns.values()))) == 1, "columns of different lengths"
        for name, block in self._blocks.items():
            self._waiting += block.extend(columns[name])
        if self._waiting >= BLOCK_BYTES:
            self._write_block()

    def finish(self) -> None:
        """Write what is still in memory and close the file."""
        try:
            self._write_block()
            self._file.finish()
        finally:
            self.close()

    def close(self) -> None:
        """Close the file, finished or not."""
        self._file.close()

    def _write_block(self) -> None:
        import pyarrow as pa

        if self._waiting:
            arrays = [block.take() for block in self._blocks.values()]
            self._file.write_block(pa.record_batch(arrays, schema=self._schema))
            self._waiting = 0


class TextBlock:
    """The texts of a column that are still to be written."""

    def __init__(self) -> None:
        self._ends = array("q", [0])
        self._utf8 = bytearray()

    def extend(self, texts: Sequence[bytes]) -> int:
        """Add texts and return the bytes that they take in the file."""
        before = self._ends.pop()
        self._ends.extend(accumulate(map(len, texts), initial=before))
        self._utf8 += b"".join(texts)
        return len(self._utf8) - before + self._ends.itemsize * len(texts)

    def take(self) -> Any:
        """The texts as an Arrow array; this empties the block."""
        import pyarrow as pa

        rows, buffers = len(self._ends) - 1, [None, *map(pa.py_buffer, (self._ends, self._utf8))]
        self._ends, self._utf8 = array("q", [0]), bytearray()
        return pa.Array.from_buffers(pa.large_string(), rows, buffers)


class ArrowFile:
    """An Arrow IPC file that is being written; each block goes to the disk in one piece.

    Raises StorageError if the disk refuses.
    """

    closed = False

    def __init__(self, path: Path, schema: Any) -> None:
        import pyarrow as pa

        self._path = path
        self._pieces: list[Any] = []
        with storage_errors(path):
            self._handle = open(path, "wb", buffering=0)  # noqa: SIM115 - `close` closes it
        self._writer = pa.ipc.new_file(self, schema)

    def write(self, data: Any) -> None:
        """Take what Arrow writes."""
        self._pieces.append(data)

    def flush(self) -> None:
        """Write what was taken."""
        data, self._pieces = b"".join(self._pieces), []
        with storage_errors(self._path):
            write_all(self._handle, data)

    def write_block(self, block: Any) -> None:
        """Write a record batch."""
        self._writer.write_batch(block)
        self.flush()

    def finish(self) -> None:
        """Write the footer, without which the file cannot be read."""
        self._writer.close()
        self.flush()

    def close(self) -> None:
        """Close the file, finished or not."""
        self._handle.close()


def write_block(path: Path, block: Any) -> None:
    """Write a table of one record batch. Raises StorageError."""
    file = ArrowFile(path, block.schema)
    try:
        file.write_block(block)
        file.finish()
    finally:
        file.close()


class Table:
    """A memory-mapped table; opening it reads where its blocks are, not what they hold.

    What cannot be read raises the error of `damaged`, on opening or when rows are read.
    """

    def __init__(self, path: Path, damaged: Damaged) -> None:
        import pyarrow as pa

        self._path = path
        self._damaged = damaged
        try:
            # not pyarrow's own map, which asks the system to read every block ahead
            with open(path, "rb") as handle:
                data = mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ)
            require_uncompressed(data)
            reader = pa.ipc.open_file(pa.BufferReader(pa.py_buffer(data)))
            self._blocks = [reader.get_batch(n) for n in range(reader.num_record_batches)]
            self.schema = reader.schema
            for block in self._blocks:
                block.validate()
        except (OSError, ValueError, pa.ArrowException) as error:
            raise damaged(path, f"it is not a whole Arrow file ({reason(error)})") from error

    def __len__(self) -> int:
        return sum(block.num_rows for block in self._blocks)

    def texts(self, name: str) -> Texts:
        """A column of texts."""
        return Texts(self.arrays(name, "large_string"), self.fault)

    def arrays(self, name: str, *types: str) -> list[Any]:
        """A column as Arrow arrays, one of each block; of one of these types, if any are given."""
        place = self.schema.get_field_index(name)
        found = str(self.schema.field(place).type) if place >= 0 else None
        if found is None or (types and found not in types):
            raise self.fault(f"its column {name!r} is {found}, not {' or '.join(types)}")
        return [block.column(place) for block in self._blocks]

    def fault(self, problem: str) -> Exception:
        """The error for a file with wrong contents."""
        return self._damaged(self._path, problem)


def require_uncompressed(data: bytes | mmap.mmap) -> None:
    """Raise ValueError for an Arrow file with a compressed block, which may fill the memory.

    pyarrow decompresses a block as soon as it opens it, and does not tell beforehand. The places
    are those of Arrow's File.fbs and Message.fbs, which are FlatBuffers.
    """

    def number(code: str, place: int) -> int:
        return int(unpack_from(code, data, place)[0])

    def target(place: int) -> int:  # of an offset
        return place + number("<I", place)

    def field(table: int, index: int) -> int | None:
        names = table - number("<i", table)
        is_there = 4 + 2 * index < number("<H", names)
        distance = number("<H", names + 4 + 2 * index) if is_there else 0
        return table + distance if distance else None

    try:
        end = len(data) - FOOTER_END
        footer = target(end - number("<i", end))
        for kind in (DICTIONARIES, BLOCKS):
            found = field(footer, kind)
            blocks = 0 if found is None else target(found)
            for block in range(number("<I", blocks) if blocks else 0):
                place = number("<q", blocks + 4 + BLOCK * block)
                message = target(place + (8 if number("<i", place) == -1 else 4))
                header = field(message, HEADER)
                if header is not None and field(target(header), COMPRESSION) is not None:
                    raise ValueError("a block is compressed")
    except (StructError, OverflowError) as error:
        raise ValueError("its footer is damaged") from error


def reason(error: Exception) -> str:
    """The first line of an error from Arrow or the system."""
    return (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")


class TextSequence:
    """The texts of one block by row, mapped. A text that is not UTF-8 raises UnicodeDecodeError."""

    def __init__(self, column: Any) -> None:
        _, ends, utf8 = column.buffers()
        self.ends = view(ends, "q")
        """Where each text ends in `utf8`; the first number is where the first text starts."""
        self.utf8 = view(utf8, "B")

    def __len__(self) -> int:
        return len(self.ends) - 1

    def __getitem__(self, row: int) -> str:
        ends = self.ends
        return str(self.utf8[ends[row] : ends[row + 1]], "utf-8")

    def between(self, start: int, stop: int) -> list[str]:
        """The texts of the rows from `start` to before `stop`."""
        ends = self.ends[start : stop + 1].tolist()
        first = ends[0]
        data = bytes(self.utf8[first : ends[-1]])
        return [data[a - first : b - first].decode() for a, b in pairwise(ends)]


class Texts:
    """A column of texts, mapped."""

    def __init__(self, arrays: Iterable[Any], fault: Callable[[str], Exception]) -> None:
        self._fault = fault
        self._blocks: list[TextSequence] = []
        self._starts = [0]
        for column in arrays:
            self._blocks.append(TextSequence(column))
            self._starts.append(self._starts[-1] + len(column))

    def __len__(self) -> int:
        return self._starts[-1]

    def __getitem__(self, row: int) -> str:
        if not 0 <= row < self._starts[-1]:
            raise IndexError(row)
        block = bisect_right(self._starts, row) - 1
        try:
            return self._blocks[block][row - self._starts[block]]
        except UnicodeDecodeError:
            raise self._fault("a text is not UTF-8") from None

    def between(self, start: int, stop: int) -> list[str]:
        """The texts of the rows from `start` to before `stop`."""
        texts: list[str] = []
        try:
            for block, begin, end in self._ranges(start, stop):
                texts += block.between(begin, end)
        except UnicodeDecodeError:
            raise self._fault("a text is not UTF-8") from None
        return texts

    def digest(self, start: int, stop: int) -> str:
        """The SHA-256 of the rows from `start` to before `stop`: of their lengths and bytes.

        It does not depend on how the table is cut into blocks.
        """
        import numpy as np

        digest = hashlib.sha256()
        ranges = list(self._ranges(start, stop))
        for block, begin, end in ranges:
            ends = np.frombuffer(block.ends[begin : end + 1], np.int64)
            digest.update(np.diff(ends).astype("<i8").tobytes())
        for block, begin, end in ranges:
            digest.update(block.utf8[block.ends[begin] : block.ends[end]])
        return digest.hexdigest()

    def _ranges(self, start: int, stop: int) -> Iterator[tuple[TextSequence, int, int]]:
        """The blocks that have some of the rows, and which of their own rows."""
        for block, (first, last) in zip(self._blocks, pairwise(self._starts), strict=True):
            if start < last and first < stop:
                yield block, max(start, first) - first, min(stop, last) - first


def view(buffer: Any, code: Any) -> memoryview:
    """A buffer of Arrow as a sequence of numbers."""
    data = memoryview(buffer if buffer is not None else b"").cast("B")
    return data[: len(data) // calcsize(code) * calcsize(code)].cast(code)
