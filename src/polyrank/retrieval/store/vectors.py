"""The vectors of a shard in one of four types, written in blocks and mapped where they lie.

    vectors.TYPE      rows x d, row by row, little-endian
    scales.float32    with int8: what each row is multiplied with

A score is computed from what is stored, converted to float32. Knows nothing of candidates.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from polyrank.errors import IndexFolderError
from polyrank.retrieval.store.manifest import REBUILD, Storage
from polyrank.retrieval.store.strings import write_all
from polyrank.storage import storage_errors

STORAGES: tuple[Storage, ...] = get_args(Storage)

DTYPES: dict[str, torch.dtype] = {name: getattr(torch, name) for name in STORAGES}
MAPPED = {"float32": "<f4", "bfloat16": "<i2", "float16": "<f2", "int8": "i1"}
"""What numpy maps them as; it has no bfloat16."""

SCALE = np.dtype("<f4")
SCALES = "scales.float32"
LARGEST_INT8 = 127


class Rows(NamedTuple):
    """Vectors as they are stored: (n, d), and with int8 a scale for each, (n,)."""

    vectors: Tensor
    scales: Tensor | None

    def parts(self) -> list[bytes]:
        """The bytes for each file of a shard."""
        tensors = [self.vectors] if self.scales is None else [self.vectors, self.scales]
        return [tensor.contiguous().view(torch.uint8).numpy().tobytes() for tensor in tensors]


def rounded(vectors: Tensor, storage: Storage) -> Rows:
    """Vectors (n, d), float32, in a type of storage; infinite where the type is too small."""
    if not has_scales(storage):
        return Rows(vectors.to(DTYPES[storage]), None)
    scales = vectors.abs().amax(dim=1) / LARGEST_INT8  # (n,)
    divisor = torch.where(scales > 0, scales, 1.0)[:, None]
    steps = (vectors / divisor).round().clamp(-LARGEST_INT8, LARGEST_INT8)
    return Rows(steps.to(torch.int8), scales)


def restored(vectors: Tensor, scales: Tensor | None) -> Tensor:
    """Stored vectors as float32: (n, d) and, with int8, (n,) → (n, d)."""
    values = vectors.to(torch.float32)
    return values if scales is None else values * scales[:, None]


def has_scales(storage: str) -> bool:
    """Whether each vector has a scale."""
    return storage == "int8"


def vector_files(storage: str) -> list[str]:
    """The names of the files of a shard's vectors."""
    return [f"vectors.{storage}", *([SCALES] if has_scales(storage) else [])]


def row_bytes(storage: str, dimension: int) -> list[int]:
    """The bytes of a row in each of the files."""
    sizes = [np.dtype(MAPPED[storage]).itemsize * dimension]
    return [*sizes, SCALE.itemsize] if has_scales(storage) else sizes


class VectorWriter:
    """Writes the vectors of a shard, or goes on with those that lie there."""

    def __init__(self, folder: Path, storage: Storage, dimension: int) -> None:
        self._folder = folder
        with storage_errors(folder):
            self._handles = [
                open(  # noqa: SIM115 - `close` closes it
                    os.open(folder / name, os.O_RDWR | os.O_CREAT, 0o666), "r+b", buffering=0
                )
                for name in vector_files(storage)
            ]
        self._sizes = row_bytes(storage, dimension)

    def read(self, start: int, stop: int) -> list[bytes]:
        """What lies in some rows, for each file."""
        found = []
        for handle, size in zip(self._handles, self._sizes, strict=True):
            handle.seek(start * size)
            found.append(handle.read((stop - start) * size))
        return found

    def write(self, start: int, parts: list[bytes]) -> None:
        """Put rows in their place. Raises StorageError."""
        with storage_errors(self._folder):
            for handle, size, data in zip(self._handles, self._sizes, parts, strict=True):
                handle.seek(start * size)
                write_all(handle, data)

    def synchronise(self) -> None:
        """Ask the system to put what was written on the disk itself. Raises StorageError."""
        with storage_errors(self._folder):
            for handle in self._handles:
                os.fsync(handle.fileno())

    def finish(self, rows: int) -> None:
        """Cut off what lies behind the last row. Raises StorageError."""
        with storage_errors(self._folder):
            for handle, size in zip(self._handles, self._sizes, strict=True):
                handle.truncate(rows * size)

    def close(self) -> None:
        """Close the files."""
        for handle in self._handles:
            handle.close()


@contextlib.contextmanager
def vector_writer(folder: Path, storage: Storage, dimension: int) -> Iterator[VectorWriter]:
    """A writer that is closed in the end."""
    writer = VectorWriter(folder, storage, dimension)
    try:
        yield writer
    finally:
        writer.close()


class Vectors:
    """The vectors of a shard, mapped and not read.

    Copy-on-write, though nobody writes: torch warns of tensors over read-only memory.
    """

    def __init__(self, folder: Path, storage: Storage, rows: int, dimension: int) -> None:
        names = vector_files(storage)
        for name, size in zip(names, row_bytes(storage, dimension), strict=True):
            found = (folder / name).stat().st_size
            if found != rows * size:
                raise IndexFolderError(
                    f"{folder / name} has {found} bytes instead of {rows * size}.", REBUILD
                )
        shape = (rows, dimension)
        self.mapped = np.memmap(folder / names[0], dtype=MAPPED[storage], mode="c", shape=shape)
        self.components = torch.from_numpy(np.asarray(self.mapped)).view(DTYPES[storage])
        self.scales: Tensor | None = None
        if has_scales(storage):
            scales = np.memmap(folder / SCALES, dtype=SCALE, mode="c", shape=(rows,))
            self.scales = torch.from_numpy(np.asarray(scales))

    def __len__(self) -> int:
        return len(self.components)

    def rows(self, start: int, stop: int) -> Rows:
        """Some rows, not copied."""
        scales = None if self.scales is None else self.scales[start:stop]
        return Rows(self.components[start:stop], scales)

    def gather(self, rows: NDArray[np.int64]) -> Rows:
        """Any rows, copied: (n,) → (n, d)."""
        places = torch.from_numpy(rows)
        scales = None if self.scales is None else self.scales[places]
        return Rows(self.components[places], scales)
