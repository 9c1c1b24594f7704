"""Arrays on the disk: `.npy` files, which `numpy.load(path, mmap_mode="r")` opens."""

from __future__ import annotations

import io
import mmap
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from polyrank.retrieval.store.manifest import damaged
from polyrank.storage import write_all


def array_header(dtype: DTypeLike, shape: tuple[int, ...]) -> bytes:
    """The bytes of a `.npy` file before its data."""
    descr = np.lib.format.dtype_to_descr(np.dtype(dtype))
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        header, {"descr": descr, "fortran_order": False, "shape": shape}
    )
    return header.getvalue()


def write_array(path: Path, array: NDArray[Any]) -> None:
    """Write an array that is in memory. Raises OSError."""
    with open(path, "wb", buffering=0) as handle:
        write_all(handle, array_header(array.dtype, array.shape) + array.tobytes())


def map_array(path: Path, dtype: DTypeLike, shape: tuple[int, ...]) -> NDArray[Any]:
    """An array of this type and shape, mapped rather than read.

    Copy-on-write, though nobody writes, because torch warns about tensors over read-only memory.
    Raises OSError, and IndexFolderError if the file holds something else.
    """
    header = array_header(dtype, shape)
    with open(path, "rb") as handle:
        try:
            data = mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_COPY)
        except ValueError:  # an empty file cannot be mapped
            raise damaged(path, "it is empty") from None
    dtype = np.dtype(dtype)
    size = len(header) + dtype.itemsize * int(np.prod(shape, dtype=np.int64))
    if data[: len(header)] != header or len(data) != size:
        raise damaged(path, f"it is not an array of {dtype} of the shape {shape}")
    return np.frombuffer(data, dtype, offset=len(header)).reshape(shape)
