"""Which rows of a shard are deleted: a file of bits, the first row the lowest bit of a byte."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from polyrank.errors import IndexFolderError
from polyrank.retrieval.store.manifest import REBUILD, ShardRecord
from polyrank.retrieval.store.strings import write_all

SUFFIX = ".bits"


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
