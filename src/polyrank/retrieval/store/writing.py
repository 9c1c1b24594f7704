"""Candidates to shard folders: their texts first, then their vectors, block by block.

All texts are written before the first is encoded, so that bad data shows at once, the number of
candidates is known, and memory does not grow with it. Knows nothing of commits.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import torch

from polyrank.errors import ModelError, StorageError
from polyrank.progress import bar
from polyrank.retrieval.engine import Encode
from polyrank.retrieval.source import Candidates, in_blocks
from polyrank.retrieval.store.columns import Kinds
from polyrank.retrieval.store.manifest import SHARDS, ShardLayout, ShardRecord, Storage
from polyrank.retrieval.store.shard import Shard, ShardWriter
from polyrank.retrieval.store.vectors import Rows, restored, rounded, row_bytes
from polyrank.storage import storage_errors


def shard_folder(folder: Path, number: int) -> Path:
    """Where the shard of this number lies."""
    return folder / SHARDS / f"{number:05d}"


def write_texts(
    candidates: Candidates, folder: Path, layout: ShardLayout, kinds: Kinds, *, first: int = 0
) -> list[Shard]:
    """Write ids, texts and metadata to shards numbered from `first`; other files stay as they are.

    Raises DataError for bad data.
    """
    shards: list[Shard] = []
    writer: ShardWriter | None = None
    try:
        with bar("Reading candidates") as advance:
            for block in in_blocks(candidates, layout.block_rows):
                for candidate in block:
                    kinds.take(candidate)
                with storage_errors(folder):
                    if writer is None:
                        writer = ShardWriter(shard_folder(folder, first + len(shards)))
                    writer.extend(block)
                    if len(writer) == layout.shard_rows:
                        shards.append(writer.finish())
                        writer = None
                advance(len(block))
        if writer is not None:
            with storage_errors(folder):
                shards.append(writer.finish())
    finally:
        if writer is not None:
            writer.close()
    return shards


def require_space(folder: Path, rows: int, storage: str, dimension: int, *, there: int = 0) -> None:
    """Raise StorageError if the vectors cannot fit; `there` bytes of them lie there already."""
    needed = rows * sum(row_bytes(storage, dimension)) - there
    with storage_errors(folder):
        free = shutil.disk_usage(folder).free
    if needed > free:
        raise StorageError(
            f"The vectors need {needed / 1e6:,.0f} MB more and the disk has {free / 1e6:,.0f} MB.",
            "Nothing that was there before has changed; free some space or choose another place.",
        )


def encode_rows(
    encode: Encode, shard: Shard, start: int, stop: int, storage: Storage, dimension: int
) -> Rows:
    """The vectors of some rows as they are stored. Raises ModelError if one is no number."""
    with torch.inference_mode():
        vectors = encode(shard.texts.between(start, stop)).to("cpu", torch.float32)  # (rows, d)
        assert vectors.shape == (stop - start, dimension), vectors.shape
        rows = rounded(vectors, storage)
        require_finite(shard, start, vectors, "The weights are damaged or the training diverged;")
        require_finite(
            shard,
            start,
            restored(*rows),
            f"It is too large for {storage}; choose another type of storage, or",
        )
    return rows


def shard_record(folder: Path, shard: Shard) -> ShardRecord:
    """The record of a new shard of the index `folder`, nothing of which is deleted."""
    name = shard.folder.relative_to(folder).as_posix()
    return ShardRecord(folder=name, rows=shard.rows, live=shard.rows, fields=dict(shard.fields))


def require_finite(shard: Shard, start: int, vectors: torch.Tensor, remedy: str) -> None:
    """Raise ModelError, naming the candidate, if a vector is not finite: (rows, d)."""
    finite = vectors.isfinite().all(dim=1)
    if not finite.all():
        identifier = shard.ids[start + int(finite.int().argmin())]
        raise ModelError(
            f"The model's vector of the candidate {identifier!r} is not finite.",
            f"{remedy} use another checkpoint.",
        )
