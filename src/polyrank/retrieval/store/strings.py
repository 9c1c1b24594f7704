"""A column of strings in one file, memory-mapped: the UTF-8 of all, then where each ends.

    ┌────────────┬───────────────────┬──────────────────────────────┐
    │ UTF-8 blob │ zeros, to 8 bytes │ offsets, rows + 1 times <u8  │
    └────────────┴───────────────────┴──────────────────────────────┘

The offsets come last, so that a column of any size is written in one pass. Knows nothing of what
the strings mean.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from polyrank.errors import IndexFolderError
from polyrank.storage import write_all

OFFSET = np.dtype("<u8")


class StringsWriter:
    """Writes a column, block by block. Holds only the offsets in memory."""

    def __init__(self, path: Path) -> None:
        self._handle = open(path, "wb", buffering=0)  # noqa: SIM115 - `close` closes it
        self._offsets = array("Q", [0])

    def extend(self, encoded: Iterable[bytes]) -> None:
        """Append strings, given as UTF-8."""
        pieces = list(encoded)
        end = self._offsets[-1]
        for piece in pieces:
            end += len(piece)
            self._offsets.append(end)
        write_all(self._handle, b"".join(pieces))

    def finish(self) -> None:
        """Write the offsets behind the strings and close the file."""
        write_all(self._handle, bytes(-self._offsets[-1] % OFFSET.itemsize))
        write_all(self._handle, np.array(self._offsets, dtype=OFFSET).tobytes())
        self.close()

    def close(self) -> None:
        """Close the file, finished or not."""
        self._handle.close()


class Strings:
    """A column that is read where it lies on the disk."""

    def __init__(self, path: Path, rows: int) -> None:
        self._path = path
        table = (rows + 1) * OFFSET.itemsize
        mapped = np.memmap(path, dtype=np.uint8, mode="r")
        if mapped.size < table or mapped.size % OFFSET.itemsize:
            raise self._damaged()
        self._blob: NDArray[np.uint8] = np.asarray(mapped[:-table])
        self._offsets: NDArray[np.uint64] = np.asarray(mapped[-table:].view(OFFSET))
        if self._offsets[0] != 0 or self._offsets[-1] > self._blob.size:
            raise self._damaged()

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def __getitem__(self, row: int) -> str:
        return self.between(row, row + 1)[0]

    def between(self, start: int, stop: int) -> list[str]:
        """The strings of the rows from `start` to before `stop`."""
        offsets: list[int] = self._offsets[start : stop + 1].tolist()
        first = offsets[0]
        blob = self._blob[first : offsets[-1]].tobytes()
        ends = [offset - first for offset in offsets]
        try:
            return [blob[a:b].decode("utf-8") for a, b in pairwise(ends)]
        except UnicodeDecodeError:
            raise self._damaged() from None

    def digest(self, start: int, stop: int) -> str:
        """The SHA-256 of the rows from `start` to before `stop`: of their lengths and bytes."""
        offsets = self._offsets[start : stop + 1]
        lengths = np.diff(offsets).astype(OFFSET)
        digest = hashlib.sha256(lengths.tobytes())
        digest.update(self._blob[int(offsets[0]) : int(offsets[-1])].tobytes())
        return digest.hexdigest()

    def _damaged(self) -> IndexFolderError:
        return IndexFolderError(
            f"{self._path} is damaged: its offsets and its strings do not fit together.",
            "Build the index again.",
        )
