"""Writes candidates to shard folders: their texts first, then their vectors, block by block.

All texts are written before the first is encoded, so bad data shows at once, the number of
candidates is known, and memory does not grow with it. Knows nothing of commits.
"""

from __future__ import annotations

import dataclasses
import hashlib
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from polyrank.display.words import size
from polyrank.errors import ModelError, StorageError
from polyrank.jobs import Journal, Note
from polyrank.progress import bar
from polyrank.retrieval.engine import Encode
from polyrank.retrieval.source import Candidates, in_blocks
from polyrank.retrieval.store.manifest import SHARDS, VERSION, ShardLayout, ShardRecord, Storage
from polyrank.retrieval.store.metadata import FieldKinds
from polyrank.retrieval.store.shard import Shard, ShardWriter
from polyrank.retrieval.store.vectors import (
    StoredVectors,
    restored,
    rounded,
    row_bytes,
    vector_files,
    vector_writer,
)
from polyrank.storage import storage_errors

ENCODING = "Encoding candidates"
UNIT = "candidates"


@dataclass(frozen=True, kw_only=True, slots=True)
class EncodedBlock:
    """A block of vectors on disk: its place, and the digests of its texts and vectors.

    It counts as done if these are the digests of what is at its place now, so the note stays true
    whatever happened to the input or the files in between.
    """

    shard: int
    start: int
    texts: str
    vectors: str


def is_encoded_block(note: Note) -> bool:
    """Whether a note of a journal is an EncodedBlock."""
    return note.keys() == {field.name for field in dataclasses.fields(EncodedBlock)}


def encoding_identity(
    fingerprint: str, dimension: int, storage: Storage, layout: ShardLayout
) -> dict[str, Any]:
    """What the vectors of a block depend on besides its texts, and where they are."""
    return {
        "format": VERSION,
        "fingerprint": fingerprint,
        "dimension": dimension,
        "storage": storage,
        "layout": dataclasses.asdict(layout),
    }


def shard_folder(folder: Path, number: int) -> Path:
    """The folder of the shard with this number."""
    return folder / SHARDS / f"{number:05d}"


def shard_record(folder: Path, shard: Shard) -> ShardRecord:
    """The record of a new shard of the index `folder`, without deleted rows."""
    name = shard.folder.relative_to(folder).as_posix()
    return ShardRecord(folder=name, rows=shard.rows, live=shard.rows, fields=dict(shard.fields))


def write_texts(
    candidates: Candidates, folder: Path, layout: ShardLayout, kinds: FieldKinds, *, first: int = 0
) -> list[Shard]:
    """Write ids, texts and metadata to shards numbered from `first`; keep other files.

    Raises DataError for bad data.
    """
    shards: list[Shard] = []
    writer: ShardWriter | None = None
    try:
        with bar("Reading candidates", unit=UNIT) as advance:
            for block in in_blocks(candidates, layout.block_rows):
                for candidate in block:
                    kinds.check(candidate)
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


def require_space(
    folder: Path, rows: int, storage: Storage, dimension: int, *, shards: Sequence[Shard] = ()
) -> None:
    """Raise StorageError if the vectors of this many rows do not fit on the disk.

    Vectors of `shards` that an interrupted run has written take no more space.
    """
    needed = rows * row_bytes(storage, dimension)
    with storage_errors(folder):
        free = shutil.disk_usage(folder).free
        for shard in shards:
            files = [shard.folder / name for name in vector_files(storage)]
            needed -= sum(file.stat().st_size for file in files if file.exists())
    if needed > free:
        raise StorageError(
            f"No space left on device: the vectors need {size(needed)}, and {size(free)} are free.",
            "Nothing that was there before has changed; free some space or choose another place.",
        )


def encode_shards(
    encode: Encode,
    shards: Sequence[Shard],
    journal: Journal,
    layout: ShardLayout,
    storage: Storage,
    dimension: int,
) -> None:
    """Encode every block that the journal does not list as done.

    Raises StorageError, and ModelError if a vector is not finite.
    """
    known = {(note["shard"], note["start"]): EncodedBlock(**note) for note in journal.notes}
    with bar(ENCODING, total=sum(shard.rows for shard in shards), unit=UNIT) as task:
        for number, shard in enumerate(shards):
            with vector_writer(shard.folder, storage, dimension, shard.rows) as writer:
                for start in range(0, shard.rows, layout.block_rows):
                    stop = min(start + layout.block_rows, shard.rows)
                    texts = shard.texts.digest(start, stop)
                    block = known.get((number, start))
                    if (
                        block is None
                        or block.texts != texts
                        or block.vectors != sha256(writer.read(start, stop))
                    ):
                        before = task.done
                        with task.folding():
                            rows = encode_rows(encode, shard, start, stop, storage, dimension)
                        found = rows.file_bytes()
                        writer.write(start, found)
                        writer.synchronise()
                        block = EncodedBlock(
                            shard=number, start=start, texts=texts, vectors=sha256(found)
                        )
                        journal.append(dataclasses.asdict(block))
                        task.reach(before + stop - start)
                    else:
                        task.skip(stop - start)


def encode_rows(
    encode: Encode, shard: Shard, start: int, stop: int, storage: Storage, dimension: int
) -> StoredVectors:
    """The vectors of some rows as stored. Raises ModelError if one is not finite."""
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


def require_finite(shard: Shard, start: int, vectors: torch.Tensor, remedy: str) -> None:
    """Raise ModelError, naming the candidate, if a vector is not finite: (rows, d)."""
    finite = vectors.isfinite().all(dim=1)
    if not finite.all():
        identifier = shard.ids[start + int(finite.int().argmin())]
        raise ModelError(
            f"The model's vector of the candidate {identifier!r} is not finite.",
            f"{remedy} use another checkpoint.",
        )


def remove_leftovers(shards: Sequence[Shard], folder: Path, storage: Storage) -> None:
    """Remove what an interrupted run with other candidates left in the shards of `folder`."""
    with storage_errors(folder):
        wanted = {shard.folder for shard in shards}
        for other in set((folder / SHARDS).glob("*")) - wanted:
            shutil.rmtree(other)
        for shard in shards:
            names = {*shard.files, *vector_files(storage)}
            for file in shard.folder.iterdir():
                if file.name not in names:
                    file.unlink()


def sha256(pieces: Iterable[bytes]) -> str:
    """The SHA-256 of some bytes, in hexadecimal."""
    digest = hashlib.sha256()
    for piece in pieces:
        digest.update(piece)
    return digest.hexdigest()
