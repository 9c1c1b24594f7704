"""Arrow files of one block: their columns grow in files of their own, then become one table.

A column of one block is one sequence in the file, whatever its length, so random access needs no
search for a block. Memory stays at a buffer for each column. Knows nothing of what the
rows mean.
"""

from __future__ import annotations

import mmap
import os
from array import array
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from polyrank.errors import DataError
from polyrank.storage import storage_errors
from polyrank.tables import Table, TextSequence, view

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

ColumnType = Literal["text", "uint32", "uint64"]
CODES: Mapping[ColumnType, Literal["I", "Q"]] = {"uint32": "I", "uint64": "Q"}
NUMBERS, BYTES = 1 << 16, 1 << 20
"""How many numbers, and bytes of texts, of a column wait in memory."""
Columns = Mapping[str, ColumnType]
"""The columns of a table, by name."""
REMEDY = "Delete the folder of the tables; it is rebuilt when it is next needed."


class OneBlockTable(Table):
    """NAME.arrow of a folder. Raises DataError if it cannot be read."""

    def __init__(self, folder: Path, name: str) -> None:
        super().__init__(folder / f"{name}.arrow", damaged)

    def sequence(self, name: str) -> memoryview:
        """A column of whole numbers, as it is in the file."""
        (column,) = self.arrays(name, "uint32", "uint64")
        return view(column.buffers()[1], "I" if str(column.type) == "uint32" else "Q")

    def text_sequence(self, name: str) -> TextSequence:
        """A column of texts, as it is in the file."""
        (column,) = self.arrays(name, "large_string")
        return TextSequence(column)


def damaged(path: Path, problem: str) -> DataError:
    """The error of a table that cannot be read."""
    return DataError(f"The table cannot be read: {problem}.", REMEDY, path=path)


class NumberColumn:
    """Whole numbers. Raises StorageError if the disk refuses."""

    def __init__(self, path: Path, kind: ColumnType) -> None:
        self._path = path
        self._waiting = array(CODES.get(kind, "Q"))
        self._written = 0
        path.touch()

    def __len__(self) -> int:
        return self._written + len(self._waiting)

    def append(self, value: int) -> None:
        """Add a number."""
        self._waiting.append(value)
        if len(self._waiting) >= NUMBERS:
            self.flush()

    def extend(self, values: Iterable[int]) -> None:
        """Add numbers."""
        self._waiting.extend(values)
        if len(self._waiting) >= NUMBERS:
            self.flush()

    def flush(self) -> None:
        """Write what waits in memory."""
        with storage_errors(self._path), open(self._path, "ab") as handle:
            self._waiting.tofile(handle)
        self._written += len(self._waiting)
        del self._waiting[:]

    def numpy(self) -> NDArray[np.generic]:
        """All numbers so far, mapped."""
        import numpy as np

        return np.frombuffer(self.mapped(), self._waiting.typecode)

    def mapped(self) -> mmap.mmap | bytes:
        """The bytes of all numbers so far, mapped."""
        self.flush()
        return mapped(self._path)

    def buffers(self) -> list[Any]:
        """What Arrow makes the column of."""
        return [self.mapped()]


class TextColumn:
    """Texts, one after the other in UTF-8, and where each one ends."""

    def __init__(self, path: Path, kind: ColumnType) -> None:
        self._path = path
        self._waiting = bytearray()
        self._size = 0
        self._ends = NumberColumn(path.with_name(f"{path.name}.ends"), "uint64")
        self._ends.append(0)
        path.touch()

    def __len__(self) -> int:
        return len(self._ends) - 1

    def append(self, text: str) -> None:
        """Add a text; a lone surrogate becomes a question mark."""
        encoded = text.encode("utf-8", "replace")
        self._waiting += encoded
        self._size += len(encoded)
        self._ends.append(self._size)
        if len(self._waiting) >= BYTES:
            self.flush()

    def extend(self, texts: Iterable[str]) -> None:
        """Add texts."""
        for text in texts:
            self.append(text)

    def flush(self) -> None:
        """Write what waits in memory."""
        with storage_errors(self._path), open(self._path, "ab") as handle:
            handle.write(self._waiting)
        self._waiting.clear()

    def buffers(self) -> list[Any]:
        """What Arrow makes the column of."""
        self.flush()
        return [self._ends.mapped(), mapped(self._path)]


class Spool:
    """The columns of one table, in files of a folder."""

    def __init__(self, folder: Path, name: str, columns: Columns) -> None:
        self._kinds = columns
        self._columns = {
            column: (TextColumn if kind == "text" else NumberColumn)(
                folder / f"{name}.{column}", kind
            )
            for column, kind in columns.items()
        }

    def __getitem__(self, column: str) -> Any:
        """A column, to add values to."""
        return self._columns[column]

    def write(self, path: Path) -> None:
        """Write the table, straight from the files of its columns. Raises StorageError."""
        import pyarrow as pa

        lengths = {name: len(column) for name, column in self._columns.items()}
        assert len(set(lengths.values())) == 1, f"columns of different lengths: {lengths}"
        types = {"text": pa.large_string(), "uint32": pa.uint32(), "uint64": pa.uint64()}
        fields, arrays = [], []
        for name, kind in self._kinds.items():
            buffers = [None, *map(pa.py_buffer, self._columns[name].buffers())]
            fields.append(pa.field(name, types[kind], nullable=False))
            arrays.append(pa.Array.from_buffers(types[kind], lengths[name], buffers))
        schema = pa.schema(fields)
        with (
            storage_errors(path),
            pa.OSFile(str(path), "wb") as file,
            pa.ipc.new_file(file, schema) as writer,
        ):
            writer.write_batch(pa.record_batch(arrays, schema=schema))


def mapped(path: Path) -> mmap.mmap | bytes:
    """The bytes of a file, mapped."""
    with open(path, "rb") as handle:
        if not os.fstat(handle.fileno()).st_size:
            return b""  # an empty file cannot be mapped
        return mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ)
