"""The vectors of a shard in one of four types, written in blocks and mapped where they lie.

    vectors.TYPE      rows x d, row by row, little-endian
    sketch.int8       with types but int8: the same in 8 bits, which exact search reads first
    scales.float32    what each row in 8 bits is multiplied with
    norms.float32     the norm of that product
    errors.float32    with types but int8: the norm of what the vector has beyond it

A score is computed from what is stored, converted to float32. Knows nothing of candidates.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from polyrank.errors import IndexFolderError
from polyrank.retrieval.store.manifest import REBUILD, Storage
from polyrank.scoring.screen import ScreenRows, quantised
from polyrank.storage import storage_errors, write_all

STORAGES: tuple[Storage, ...] = get_args(Storage)

DTYPES: dict[str, torch.dtype] = {name: getattr(torch, name) for name in STORAGES}
MAPPED = {"float32": "<f4", "bfloat16": "<i2", "float16": "<f2", "int8": "i1"}
"""What numpy maps them as; it has no bfloat16."""

SCALE = np.dtype("<f4")
SCALES = "scales.float32"
SKETCH = "sketch.int8"
NORMS = "norms.float32"
ERRORS = "errors.float32"


class Rows(NamedTuple):
    """Vectors as they are stored: (n, d), and with int8 a scale for each, (n,)."""

    vectors: Tensor
    scales: Tensor | None

    def parts(self) -> list[bytes]:
        """The bytes for each file of a shard."""
        if self.scales is None:
            sketch = quantised(self.vectors)
            assert sketch.scales is not None
            assert sketch.errors is not None
            tensors = [self.vectors, sketch.values, sketch.scales, sketch.norms, sketch.errors]
        else:
            tensors = [self.vectors, self.scales, restored(*self).norm(dim=1)]
        return [tensor.contiguous().view(torch.uint8).numpy().tobytes() for tensor in tensors]


def rounded(vectors: Tensor, storage: Storage) -> Rows:
    """Vectors (n, d), float32, in a type of storage; infinite where the type is too small."""
    if not has_scales(storage):
        return Rows(vectors.to(DTYPES[storage]), None)
    sketch = quantised(vectors)
    return Rows(sketch.values, sketch.scales)


def restored(vectors: Tensor, scales: Tensor | None) -> Tensor:
    """Stored vectors as float32: (n, d) and, with int8, (n,) → (n, d)."""
    values = vectors.to(torch.float32)
    return values if scales is None else values * scales[:, None]


def has_scales(storage: str) -> bool:
    """Whether each vector has a scale."""
    return storage == "int8"


def vector_files(storage: str) -> list[str]:
    """The names of the files of a shard's vectors."""
    own = f"vectors.{storage}"
    return [own, SCALES, NORMS] if has_scales(storage) else [own, SKETCH, SCALES, NORMS, ERRORS]


def row_bytes(storage: str, dimension: int) -> list[int]:
    """The bytes of a row in each of the files."""
    own, single = np.dtype(MAPPED[storage]).itemsize * dimension, SCALE.itemsize
    return [own, single, single] if has_scales(storage) else [own, dimension, *[single] * 3]


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
        stored = mapped(folder / names[0], np.dtype(MAPPED[storage]), *shape)
        self.components = stored.view(DTYPES[storage])
        self.sketch_scales = mapped(folder / SCALES, SCALE, rows)
        self.scales: Tensor | None = None
        self.errors: Tensor | None = None
        if has_scales(storage):
            self.scales, self.sketch = self.sketch_scales, self.components
        else:
            self.sketch = mapped(folder / SKETCH, np.dtype("i1"), *shape)
            self.errors = mapped(folder / ERRORS, SCALE, rows)
        self.norms = mapped(folder / NORMS, SCALE, rows)

    def __len__(self) -> int:
        return len(self.components)

    def rows(self, start: int, stop: int) -> Rows:
        """Some rows, not copied."""
        return Rows(self.components[start:stop], self.scales_of(start, stop))

    def gather(self, rows: NDArray[np.int64]) -> Rows:
        """Any rows, copied: (n,) → (n, d)."""
        places = torch.from_numpy(rows)
        scales = None if self.scales is None else self.scales[places]
        return Rows(self.components[places], scales)

    def screened(self, start: int, stop: int, *, sketches: bool) -> ScreenRows:
        """Some rows for a screen, as sketches or as they are stored; not copied."""
        norms = self.norms[start:stop]
        errors = None if self.errors is None else self.errors[start:stop]
        if sketches:
            scales = self.sketch_scales[start:stop]
            return ScreenRows(self.sketch[start:stop], scales, norms, errors)
        norms = norms if errors is None else norms + errors
        return ScreenRows(self.components[start:stop], self.scales_of(start, stop), norms)

    def scales_of(self, start: int, stop: int) -> Tensor | None:
        """The scales of some rows, where the type of storage has them."""
        return None if self.scales is None else self.scales[start:stop]


def mapped(path: Path, dtype: np.dtype[Any], *shape: int) -> Tensor:
    """A file as a tensor, not read."""
    return torch.from_numpy(np.asarray(np.memmap(path, dtype=dtype, mode="c", shape=shape)))
