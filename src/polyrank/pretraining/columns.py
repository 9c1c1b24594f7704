"""Columns of numbers and of texts on the disk, mapped: memory does not grow with their length.

    NAME.u32, NAME.u64           little-endian whole numbers
    NAME.utf8, NAME.ends.u64     texts one after the other, and where each one ends

Knows nothing of what they mean. Random access costs less than a microsecond and loads no numpy.
"""

from __future__ import annotations

import mmap
import os
import sys
from array import array
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Literal

from polyrank.errors import DataError, UsageError
from polyrank.storage import storage_errors

BLOCK = 1 << 16
CODES: dict[str, Literal["I", "Q"]] = {"u32": "I", "u64": "Q"}

Numbers = memoryview
"""A mapped column of whole numbers; behaves as a sequence of int."""


def mapped(path: Path) -> mmap.mmap | bytes:
    """The bytes of a file, mapped. Raises DataError if it cannot be read."""
    try:
        with open(path, "rb") as handle:
            if not os.fstat(handle.fileno()).st_size:
                return b""  # an empty file cannot be mapped
            return mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError as error:
        raise DataError(
            f"The table cannot be read: {error.strerror}.",
            "Remove its folder; it is built again when next needed.",
            path=path,
        ) from error


def numbers(folder: Path, name: str) -> Numbers:
    """A column of numbers; `name` ends in .u32 or .u64."""
    data = memoryview(mapped(folder / name))
    return data.cast(CODES[name.rpartition(".")[2]])


class Texts:
    """A column of texts."""

    def __init__(self, folder: Path, name: str) -> None:
        self._data = mapped(folder / f"{name}.utf8")
        self._ends = numbers(folder, f"{name}.ends.u64")

    def __len__(self) -> int:
        return len(self._ends)

    def __getitem__(self, number: int) -> str:
        start = self._ends[number - 1] if number else 0
        return self._data[start : self._ends[number]].decode()


class Writer:
    """Appends to the columns of a folder; memory stays at a block a column.

    Raises StorageError if the disk refuses.
    """

    def __init__(self, folder: Path) -> None:
        if sys.byteorder != "little":
            raise UsageError(
                "Tables of a corpus are little-endian, and this machine is not.",
                "Pre-train on another machine.",
            )
        self._folder = folder
        self._waiting: dict[str, array[int]] = {}
        self._texts: dict[str, bytearray] = {}
        self._ends: dict[str, int] = {}

    def __enter__(self) -> Writer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is None:
            for name in list(self._waiting):
                self._flush(name)
            for name in list(self._texts):
                self._flush_text(name)

    def declare(self, *names: str) -> None:
        """Begin columns of numbers, empty so far."""
        for name in names:
            self._waiting[name] = array(CODES[name.rpartition(".")[2]])
            (self._folder / name).touch()

    def declare_texts(self, *names: str) -> None:
        """Begin columns of texts, empty so far."""
        for name in names:
            self._texts[name] = bytearray()
            self._ends[name] = 0
            (self._folder / f"{name}.utf8").touch()
            self.declare(f"{name}.ends.u64")

    def append(self, name: str, values: Iterable[int]) -> None:
        """Add numbers to a column."""
        waiting = self._waiting[name]
        waiting.extend(values)
        if len(waiting) >= BLOCK:
            self._flush(name)

    def append_text(self, name: str, text: str) -> None:
        """Add a text to a column; a lone surrogate becomes a question mark."""
        encoded = text.encode("utf-8", "replace")
        self._texts[name] += encoded
        self._ends[name] += len(encoded)
        self.append(f"{name}.ends.u64", [self._ends[name]])
        if len(self._texts[name]) >= 16 * BLOCK:
            self._flush_text(name)

    def _flush(self, name: str) -> None:
        path = self._folder / name
        with storage_errors(path), open(path, "ab") as handle:
            self._waiting[name].tofile(handle)
        del self._waiting[name][:]

    def _flush_text(self, name: str) -> None:
        path = self._folder / f"{name}.utf8"
        with storage_errors(path), open(path, "ab") as handle:
            handle.write(self._texts[name])
        self._texts[name].clear()
