"""The vectors of a shard in one of four types, written in blocks and memory-mapped.

    vectors.npy    (rows, d); bfloat16, which numpy lacks, as uint16
    sketch.npy     (rows, d), int8, with types other than int8: what exact search reads first
    scales.npy     (rows,), float32: what each row in 8 bits is multiplied by
    norms.npy      (rows,), float32: the norm of that product
    errors.npy     (rows,), float32, with types other than int8: the norm of what it leaves out

A score is computed from what is stored, converted to float32. Knows nothing of candidates.
"""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, get_args

import numpy as np
import torch
from numpy.typing import DTypeLike, NDArray
from torch import Tensor

from polyrank.retrieval.store.arrays import array_header, map_array
from polyrank.retrieval.store.manifest import Storage
from polyrank.scoring.screen import ScreenRows, quantised
from polyrank.storage import storage_errors, write_all

STORAGES: tuple[Storage, ...] = get_args(Storage)

DTYPES: dict[str, torch.dtype] = {name: getattr(torch, name) for name in STORAGES}
NUMPY_DTYPES = {"float32": "<f4", "bfloat16": "<u2", "float16": "<f2", "int8": "|i1"}
SINGLE = "<f4"

VECTORS = "vectors.npy"
SKETCH = "sketch.npy"
SCALES = "scales.npy"
NORMS = "norms.npy"
ERRORS = "errors.npy"


class StoredVectors(NamedTuple):
    """Vectors as stored: (n, d), and with int8 a scale for each, (n,)."""

    vectors: Tensor
    scales: Tensor | None

    def file_bytes(self) -> list[bytes]:
        """What goes into each file of a shard."""
        if self.scales is None:
            sketch = quantised(self.vectors)
            assert sketch.scales is not None
            assert sketch.errors is not None
            tensors = [self.vectors, sketch.values, sketch.scales, sketch.norms, sketch.errors]
        else:
            tensors = [self.vectors, self.scales, restored(*self).norm(dim=1)]
        return [tensor.contiguous().view(torch.uint8).numpy().tobytes() for tensor in tensors]


def rounded(vectors: Tensor, storage: Storage) -> StoredVectors:
    """Float32 vectors (n, d) in a type of storage; infinite if the type is too small."""
    if not has_scales(storage):
        return StoredVectors(vectors.to(DTYPES[storage]), None)
    sketch = quantised(vectors)
    return StoredVectors(sketch.values, sketch.scales)


def restored(vectors: Tensor, scales: Tensor | None) -> Tensor:
    """Stored vectors as float32: (n, d) and, with int8, (n,) → (n, d)."""
    values = vectors.to(torch.float32)
    return values if scales is None else values * scales[:, None]


def has_scales(storage: str) -> bool:
    """Whether each vector has a scale."""
    return storage == "int8"


def vector_files(storage: str) -> list[str]:
    """The names of the files of a shard's vectors."""
    if has_scales(storage):
        return [VECTORS, SCALES, NORMS]
    return [VECTORS, SKETCH, SCALES, NORMS, ERRORS]


def row_types(storage: str, dimension: int) -> list[tuple[DTypeLike, tuple[int, ...]]]:
    """The type and shape of a row in each of the files."""
    vector: tuple[DTypeLike, tuple[int, ...]] = NUMPY_DTYPES[storage], (dimension,)
    if has_scales(storage):
        return [vector, (SINGLE, ()), (SINGLE, ())]
    return [vector, ("|i1", (dimension,)), (SINGLE, ()), (SINGLE, ()), (SINGLE, ())]


def row_bytes(storage: str, dimension: int) -> int:
    """The bytes of a row in all of the files."""
    types = row_types(storage, dimension)
    return sum(np.dtype(dtype).itemsize * int(np.prod(shape)) for dtype, shape in types)


class VectorWriter:
    """Writes the vectors of a shard block by block, beside those of an interrupted run."""

    def __init__(self, folder: Path, storage: Storage, dimension: int, rows: int) -> None:
        self._folder = folder
        self._rows = rows
        types = row_types(storage, dimension)
        self._sizes = [np.dtype(d).itemsize * int(np.prod(shape)) for d, shape in types]
        self._headers = [array_header(dtype, (rows, *shape)) for dtype, shape in types]
        with storage_errors(folder):
            self._handles = [
                open(  # noqa: SIM115 - `close` closes it
                    os.open(folder / name, os.O_RDWR | os.O_CREAT, 0o666), "r+b", buffering=0
                )
                for name in vector_files(storage)
            ]

    def read(self, start: int, stop: int) -> list[bytes]:
        """The contents of some rows, for each file."""
        found = []
        for handle, place, size in self._places(start):
            handle.seek(place)
            found.append(handle.read((stop - start) * size))
        return found

    def write(self, start: int, blocks: Sequence[bytes]) -> None:
        """Write rows at their place. Raises StorageError."""
        with storage_errors(self._folder):
            for (handle, place, _), block in zip(self._places(start), blocks, strict=True):
                handle.seek(place)
                write_all(handle, block)

    def synchronise(self) -> None:
        """Flush what was written to the disk itself. Raises StorageError."""
        with storage_errors(self._folder):
            for handle in self._handles:
                os.fsync(handle.fileno())

    def finish(self) -> None:
        """Write the headers and cut off what follows the last row. Raises StorageError."""
        with storage_errors(self._folder):
            for (handle, end, _), header in zip(
                self._places(self._rows), self._headers, strict=True
            ):
                handle.seek(0)
                write_all(handle, header)
                handle.truncate(end)

    def close(self) -> None:
        """Close the files."""
        for handle in self._handles:
            handle.close()

    def _places(self, row: int) -> Iterator[tuple[io.FileIO, int, int]]:
        """For each file, where a row begins, and its size."""
        for handle, header, size in zip(self._handles, self._headers, self._sizes, strict=True):
            yield handle, len(header) + row * size, size


@contextlib.contextmanager
def vector_writer(
    folder: Path, storage: Storage, dimension: int, rows: int
) -> Iterator[VectorWriter]:
    """A writer that is finished if there is no error, and always closed."""
    writer = VectorWriter(folder, storage, dimension, rows)
    try:
        yield writer
        writer.finish()
    finally:
        writer.close()


class Vectors:
    """The vectors of a shard, mapped rather than read."""

    def __init__(self, folder: Path, storage: Storage, rows: int, dimension: int) -> None:
        self.files, types = vector_files(storage), row_types(storage, dimension)
        mapped = {
            name: torch.from_numpy(map_array(folder / name, dtype, (rows, *shape)))
            for name, (dtype, shape) in zip(self.files, types, strict=True)
        }
        self.components = mapped[VECTORS].view(DTYPES[storage])
        self.sketch_scales, self.norms = mapped[SCALES], mapped[NORMS]
        self.sketch = mapped.get(SKETCH, self.components)
        self.errors = mapped.get(ERRORS)
        self.scales = self.sketch_scales if has_scales(storage) else None

    def __len__(self) -> int:
        return len(self.components)

    def gather(self, rows: NDArray[np.int64]) -> StoredVectors:
        """Any rows, copied: (n,) → (n, d)."""
        places = torch.from_numpy(rows)
        scales = None if self.scales is None else self.scales[places]
        return StoredVectors(self.components[places], scales)

    def screened(self, start: int, stop: int, *, sketches: bool) -> ScreenRows:
        """Some rows for a screen, as sketches or as stored; not copied."""
        norms = self.norms[start:stop]
        errors = None if self.errors is None else self.errors[start:stop]
        if sketches:
            scales = self.sketch_scales[start:stop]
            return ScreenRows(self.sketch[start:stop], scales, norms, errors)
        norms = norms if errors is None else norms + errors
        own_scales = None if self.scales is None else self.scales[start:stop]
        return ScreenRows(self.components[start:stop], own_scales, norms)
