"""Tables on the disk: Arrow IPC files, written block by block and read where they lie.

    with TableWriter(path, {"id": "text", "parent": "uint32"}) as writer:
        writer.append("id", b"a")
        writer.append("parent", 0)
    table = Table(path, damaged)
    table.texts("id")[0], table.numbers("parent")[0]

The columns of a file have one length; columns of other lengths are other files. Files are not
compressed, so that nothing is read before it is asked for, and pyarrow, polars and DuckDB read
them without this package. Knows nothing of what the rows mean. Loads pyarrow when a table is
written or opened, and numpy only for arrays and digests.
"""

from __future__ import annotations

import hashlib
import mmap
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import accumulate, pairwise
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from polyrank.storage import storage_errors, write_all

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

ColumnType = Literal["text", "uint32", "uint64"]
CODES: Mapping[ColumnType, Literal["I", "Q"]] = {"uint32": "I", "uint64": "Q"}
BLOCK_BYTES = 1 << 23
"""A block is written when the columns hold this much."""

Damaged: TypeAlias = Callable[[Path, str], Exception]
"""From a file and what is wrong with it to the error that is raised."""


class TableWriter:
    """Writes a table; memory stays at one block as long as the columns grow together.

    The file can be read after `finish`, which leaving a `with` block without an error calls.
    Raises StorageError if the disk refuses.
    """

    def __init__(self, path: Path, columns: Mapping[str, ColumnType]) -> None:
        import pyarrow as pa

        types = {"text": pa.large_string(), "uint32": pa.uint32(), "uint64": pa.uint64()}
        self._columns = {
            name: TextBlock() if kind == "text" else NumberBlock(CODES[kind])
            for name, kind in columns.items()
        }
        fields = [pa.field(name, types[kind], nullable=False) for name, kind in columns.items()]
        self._schema = pa.schema(fields)
        self._waiting = 0  # bytes
        self._file = ArrowFile(path, self._schema)

    def __enter__(self) -> TableWriter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is None:
            self.finish()
        else:
            self.close()

    def append(self, name: str, value: Any) -> None:
        """Add one value to a column: a whole number, or a text as UTF-8."""
        self._waiting += self._columns[name].append(value)
        if self._waiting >= BLOCK_BYTES:
            self._write_even()

    def extend(self, name: str, values: Iterable[Any]) -> None:
        """Add several values to a column."""
        self._waiting += self._columns[name].extend(values)
        if self._waiting >= BLOCK_BYTES:
            self._write_even()

    def finish(self) -> None:
        """Write what is still in memory and close the file."""
        lengths = {name: len(column) for name, column in self._columns.items()}
        assert len(set(lengths.values())) == 1, f"columns of different lengths: {lengths}"
        try:
            self._write_block()
            self._file.finish()
        finally:
            self.close()

    def close(self) -> None:
        """Close the file, finished or not."""
        self._file.close()

    def _write_even(self) -> None:
        if len({len(column) for column in self._columns.values()}) == 1:
            self._write_block()

    def _write_block(self) -> None:
        import pyarrow as pa

        self._waiting = 0
        if not all(map(len, self._columns.values())):
            return
        arrays = []
        for field, column in zip(self._schema, self._columns.values(), strict=True):
            rows = len(column)
            buffers = [None, *map(pa.py_buffer, column.take())]
            arrays.append(pa.Array.from_buffers(field.type, rows, buffers))
        self._file.write_block(pa.record_batch(arrays, schema=self._schema))


class TextBlock:
    """The texts of a column that are not written yet."""

    def __init__(self) -> None:
        self._ends = array("q", [0])
        self._utf8 = bytearray()

    def __len__(self) -> int:
        return len(self._ends) - 1

    def append(self, value: bytes) -> int:
        """Add a text as UTF-8 and return the bytes that it takes."""
        self._utf8 += value
        self._ends.append(len(self._utf8))
        return len(value) + 8

    def extend(self, values: Iterable[bytes]) -> int:
        """Add texts as UTF-8 and return the bytes that they take."""
        pieces = list(values)
        before = self._ends.pop()
        self._ends.extend(accumulate(map(len, pieces), initial=before))
        self._utf8 += b"".join(pieces)
        return len(self._utf8) - before + 8 * len(pieces)

    def take(self) -> list[Any]:
        """Its buffers, as Arrow has them; the block is empty then."""
        buffers = [self._ends, self._utf8]
        self._ends, self._utf8 = array("q", [0]), bytearray()
        return buffers


class NumberBlock:
    """The numbers of a column that are not written yet."""

    def __init__(self, code: Literal["I", "Q"]) -> None:
        self._values = array(code)

    def __len__(self) -> int:
        return len(self._values)

    def append(self, value: int) -> int:
        """Add a number and return the bytes that it takes."""
        self._values.append(value)
        return self._values.itemsize

    def extend(self, values: Iterable[int]) -> int:
        """Add numbers and return the bytes that they take."""
        before = len(self._values)
        self._values.extend(values)
        return (len(self._values) - before) * self._values.itemsize

    def take(self) -> list[Any]:
        """Its buffers, as Arrow has them; the block is empty then."""
        values, self._values = self._values, array(self._values.typecode)
        return [values]


class ArrowFile:
    """An Arrow IPC file under way; each block goes to the disk in one piece.

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
    """A table that is read where it lies; opening it reads what its blocks are, not what they hold.

    What cannot be read raises the error that `damaged` makes, then or when the rows are asked for.
    """

    def __init__(self, path: Path, damaged: Damaged) -> None:
        import pyarrow as pa

        self._path = path
        self._damaged = damaged
        try:
            # not pyarrow's own map, which asks the system to read every block ahead
            with open(path, "rb") as handle:
                data = mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ)
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

    def numbers(self, name: str) -> Numbers:
        """A column of whole numbers."""
        return Numbers(self.arrays(name, "uint32", "uint64"))

    def arrays(self, name: str, *types: str) -> list[Any]:
        """A column as Arrow arrays, one of each block; of one of these types, if any are given."""
        place = self.schema.get_field_index(name)
        found = str(self.schema.field(place).type) if place >= 0 else None
        if found is None or (types and found not in types):
            raise self.fault(f"its column {name!r} is {found}, not {' or '.join(types)}")
        return [block.column(place) for block in self._blocks]

    def fault(self, problem: str) -> Exception:
        """The error of a file that holds something else than it must."""
        return self._damaged(self._path, problem)


def reason(error: Exception) -> str:
    """The first line of an error of Arrow or of the system."""
    return (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")


class Texts:
    """A column of texts, mapped."""

    def __init__(self, arrays: Iterable[Any], fault: Callable[[str], Exception]) -> None:
        self._fault = fault
        self._blocks: list[tuple[memoryview, memoryview]] = []
        self._starts = [0]
        for column in arrays:
            _, ends, utf8 = column.buffers()
            self._blocks.append((view(ends, "q"), view(utf8, "B")))
            self._starts.append(self._starts[-1] + len(column))

    def __len__(self) -> int:
        return self._starts[-1]

    def __getitem__(self, row: int) -> str:
        if not 0 <= row < self._starts[-1]:
            raise IndexError(row)
        block = bisect_right(self._starts, row) - 1
        ends, utf8 = self._blocks[block]
        row -= self._starts[block]
        try:
            return str(utf8[ends[row] : ends[row + 1]], "utf-8")
        except UnicodeDecodeError:
            raise self._fault("a text is not UTF-8") from None

    def between(self, start: int, stop: int) -> list[str]:
        """The texts of the rows from `start` to before `stop`."""
        texts: list[str] = []
        try:
            for ends, utf8 in self._ranges(start, stop):
                first = ends[0]
                data = bytes(utf8[first : ends[-1]])
                places = [end - first for end in ends.tolist()]
                texts += [data[a:b].decode() for a, b in pairwise(places)]
        except UnicodeDecodeError:
            raise self._fault("a text is not UTF-8") from None
        return texts

    def digest(self, start: int, stop: int) -> str:
        """The SHA-256 of the rows from `start` to before `stop`: of their lengths and bytes.

        It does not depend on how the table is cut into blocks.
        """
        import numpy as np

        digest = hashlib.sha256()
        for ends, _ in self._ranges(start, stop):
            digest.update(np.diff(np.frombuffer(ends, np.int64)).astype("<i8").tobytes())
        for ends, utf8 in self._ranges(start, stop):
            digest.update(utf8[ends[0] : ends[-1]])
        return digest.hexdigest()

    def _ranges(self, start: int, stop: int) -> Iterator[tuple[memoryview, memoryview]]:
        """Of each block that has some of the rows, where they end, and its texts."""
        for (ends, utf8), (first, last) in zip(self._blocks, pairwise(self._starts), strict=True):
            if start < last and first < stop:
                begin, end = max(start, first) - first, min(stop, last) - first
                yield ends[begin : end + 1], utf8


class Numbers:
    """A column of whole numbers, mapped."""

    def __init__(self, arrays: Iterable[Any]) -> None:
        self._blocks: list[memoryview] = []
        self._starts = [0]
        self._code = "Q"
        for column in arrays:
            code = "I" if str(column.type) == "uint32" else "Q"
            self._blocks.append(view(column.buffers()[1], code))
            self._starts.append(self._starts[-1] + len(column))

    def __len__(self) -> int:
        return self._starts[-1]

    def __getitem__(self, row: int) -> int:
        if not 0 <= row < self._starts[-1]:
            raise IndexError(row)
        block = bisect_right(self._starts, row) - 1
        return self._blocks[block][row - self._starts[block]]

    def between(self, start: int, stop: int) -> list[int]:
        """The numbers of the rows from `start` to before `stop`."""
        numbers: list[int] = []
        for block, (first, last) in zip(self._blocks, pairwise(self._starts), strict=True):
            if start < last and first < stop:
                numbers += block[max(start - first, 0) : stop - first].tolist()
        return numbers

    def numpy(self) -> NDArray[np.generic]:
        """All of them; not copied where the file has one block."""
        import numpy as np

        arrays = [np.frombuffer(block, block.format) for block in self._blocks]
        return arrays[0] if len(arrays) == 1 else np.concatenate(arrays or [np.zeros(0, np.uint64)])


def view(buffer: Any, code: Any) -> memoryview:
    """A buffer of Arrow as a sequence of numbers."""
    return memoryview(buffer if buffer is not None else b"").cast("B").cast(code)
