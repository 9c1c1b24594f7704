"""Building an index folder: texts first, then vectors, then the manifest, then into place.

All texts are written before the first is encoded, so that bad data shows at once, the number of
candidates is known, and memory does not grow with it. The work lies in a hidden folder beside
the target, with a journal of the blocks that are encoded; the same build, run again after an
interruption, keeps every block that still fits.
"""

from __future__ import annotations

import contextlib
import glob
import hashlib
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from polyrank.errors import DataError, ModelError, StorageError, UsageError
from polyrank.progress import bar
from polyrank.retrieval.source import Source, in_blocks, read_source, require_unique_ids
from polyrank.retrieval.store.cache import DTYPE
from polyrank.retrieval.store.journal import Block, Job, Journal
from polyrank.retrieval.store.manifest import (
    Manifest,
    ModelRecord,
    ShardRecord,
    file_records,
    work_folder,
    write_manifest,
)
from polyrank.retrieval.store.shard import COMPONENT, FILES, VECTORS, Shard, ShardWriter
from polyrank.retrieval.store.strings import write_all
from polyrank.retrieval.vector_model import VectorModel
from polyrank.storage import storage_errors, swap_folders, synchronise

MODEL_FOLDER = "model"


@dataclass(frozen=True, kw_only=True, slots=True)
class Layout:
    """How candidates are cut: `shard_rows` a shard, `block_rows` encoded and journaled at once."""

    shard_rows: int = 1 << 18
    block_rows: int = 1 << 13

    def __post_init__(self) -> None:
        if self.block_rows < 1 or self.shard_rows < 1 or self.shard_rows % self.block_rows:
            raise UsageError(
                f"shard_rows must be a multiple of block_rows, got {self.shard_rows} and "
                f"{self.block_rows}.",
                "Leave them out, or choose powers of two.",
            )


def build_folder(
    model: VectorModel, source: Source, path: Path, *, model_from: Path | None, layout: Layout
) -> None:
    """Write an index of all candidates of `source` to `path`, replacing an index there.

    `model_from` is the folder to name as the model's; with None the index keeps a copy. Raises
    DataError, StorageError, ModelError; whatever is raised, what stood at `path` still does.
    """
    work = work_folder(path)
    fresh = work / "index"
    job = Job(
        fingerprint=model.fingerprint(),
        dimension=model.dimension,
        dtype=DTYPE,
        shard_rows=layout.shard_rows,
        block_rows=layout.block_rows,
    )
    with storage_errors(path):
        fresh.mkdir(parents=True, exist_ok=True)
    with exclusive(work, path):
        journal = Journal.open(work / "journal.jsonl", job)
        try:
            shards = write_texts(source, fresh, layout)
            require_unique_ids(shards, source)
            require_space(shards, job, fresh)
            encode_shards(model, shards, journal, job)
            finish(model, shards, fresh, job, name_model(model, job, path, model_from))
            with storage_errors(path):
                swap_folders(fresh, path)
        except BaseException as error:
            if not len(journal):
                shutil.rmtree(work, ignore_errors=True)
            elif isinstance(error, StorageError):
                raise StorageError(
                    error.problem,
                    "Nothing that was there before has changed; free some space and run the same "
                    f"again, which goes on from the part in {work}, or delete that folder.",
                ) from error
            raise
        for stale in path.parent.glob(f".{glob.escape(path.name)}.old-*"):
            shutil.rmtree(stale, ignore_errors=True)  # a swap was killed halfway
        shutil.rmtree(work, ignore_errors=True)


@contextlib.contextmanager
def exclusive(work: Path, path: Path) -> Iterator[None]:
    """Hold the work folder; raise UsageError if another process does."""
    try:
        import fcntl
    except ImportError:  # Windows: nobody guards the folder
        yield
        return
    with storage_errors(path):
        handle = open(work / "lock", "w")  # noqa: SIM115 - closed below
    with handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise UsageError(
                f"The index {path} is being built by another process.",
                "Wait for it, or write to another folder.",
            ) from None
        yield


def write_texts(source: Source, folder: Path, layout: Layout) -> list[Shard]:
    """Write the ids and texts of all candidates; vectors of an earlier run are left in place.

    Raises DataError for bad data or none.
    """
    rows: list[int] = []
    writer: ShardWriter | None = None
    try:
        with bar("Reading candidates") as advance:
            for block in in_blocks(read_source(source), layout.block_rows):
                with storage_errors(folder):
                    if writer is None:
                        writer = ShardWriter(shard_folder(folder, len(rows)))
                    writer.extend(block)
                    if len(writer) == layout.shard_rows:
                        rows.append(len(writer))
                        writer.finish()
                        writer = None
                advance(len(block))
        if writer is not None:
            rows.append(len(writer))
            with storage_errors(folder):
                writer.finish()
    finally:
        if writer is not None:
            writer.close()
    if not rows:
        raise DataError(
            "There are no candidates to index.",
            "Give at least one text.",
            path=source if isinstance(source, (str, Path)) else None,
        )
    return [Shard(shard_folder(folder, number), count) for number, count in enumerate(rows)]


def require_space(shards: list[Shard], job: Job, folder: Path) -> None:
    """Raise StorageError before the first text is encoded if the vectors cannot fit."""
    needed = sum(shard.rows for shard in shards) * job.dimension * COMPONENT.itemsize
    files = [shard.folder / VECTORS for shard in shards]
    needed -= sum(file.stat().st_size for file in files if file.exists())
    with storage_errors(folder):
        free = shutil.disk_usage(folder).free
    if needed > free:
        raise StorageError(
            f"The vectors need {needed / 1e6:,.0f} MB more and the disk has {free / 1e6:,.0f} MB.",
            "Free some space or choose another place.",
        )


def encode_shards(model: VectorModel, shards: list[Shard], journal: Journal, job: Job) -> None:
    """Encode every block that the journal does not hold."""
    with bar("Encoding candidates", total=sum(shard.rows for shard in shards)) as advance:
        for number, shard in enumerate(shards):
            with storage_errors(shard.folder):
                descriptor = os.open(shard.folder / VECTORS, os.O_RDWR | os.O_CREAT, 0o666)
            with open(descriptor, "r+b", buffering=0) as handle:
                for start in range(0, shard.rows, job.block_rows):
                    stop = min(start + job.block_rows, shard.rows)
                    texts = shard.texts.digest(start, stop)
                    place = start * job.dimension * COMPONENT.itemsize
                    size = (stop - start) * job.dimension * COMPONENT.itemsize
                    done = journal.find(number, start, texts)
                    handle.seek(place)
                    if done is None or sha256(handle.read(size)) != done.vectors:
                        data = encode(model, shard, start, stop, job.dimension)
                        with storage_errors(shard.folder):
                            handle.seek(place)
                            write_all(handle, data)
                            os.fsync(handle.fileno())
                        made = Block(shard=number, start=start, texts=texts, vectors=sha256(data))
                        journal.record(made)
                    advance(stop - start)
                with storage_errors(shard.folder):
                    handle.truncate(shard.rows * job.dimension * COMPONENT.itemsize)


def encode(model: VectorModel, shard: Shard, start: int, stop: int, dimension: int) -> bytes:
    """The vectors of some rows, as they lie on the disk. Raises ModelError if one is no number."""
    with torch.inference_mode():
        encoded = model.encode_candidates(shard.texts.between(start, stop))
    vectors = encoded.to("cpu", torch.float32).numpy()  # (rows, d)
    assert vectors.shape == (stop - start, dimension), vectors.shape
    finite = np.isfinite(vectors).all(axis=1)
    if not finite.all():
        identifier = shard.ids[start + int(np.argmin(finite))]
        raise ModelError(
            f"The model's vector of the candidate {identifier!r} is not finite.",
            "The model's weights are damaged or its training diverged; use another checkpoint.",
        )
    return vectors.astype(COMPONENT, order="C", copy=False).tobytes()


def name_model(model: VectorModel, job: Job, path: Path, model_from: Path | None) -> ModelRecord:
    """Say where the model of the index at `path` lies."""
    relative = MODEL_FOLDER if model_from is None else os.path.relpath(model_from, path)
    return ModelRecord(
        fingerprint=job.fingerprint,
        architecture=model.config.architecture,
        folder=Path(relative).as_posix(),
        absolute=None if model_from is None else str(model_from),
    )


def finish(
    model: VectorModel, shards: list[Shard], folder: Path, job: Job, record: ModelRecord
) -> None:
    """Add the model and the manifest, remove what an earlier run left, and flush all to disk."""
    with storage_errors(folder):
        wanted = {shard.folder for shard in shards}
        for other in set((folder / "shards").iterdir()) - wanted:
            shutil.rmtree(other)
        for stray in [
            file for s in shards for file in s.folder.iterdir() if file.name not in FILES
        ]:
            stray.unlink()
        shutil.rmtree(folder / MODEL_FOLDER, ignore_errors=True)
        if record.absolute is None:
            model.save_pretrained(folder / MODEL_FOLDER)
        for file in folder.rglob("*"):
            if file.is_file():
                synchronise(file)
        files = file_records(folder)
    manifest = Manifest(
        model=record,
        backend="exact",
        count=sum(shard.rows for shard in shards),
        dimension=job.dimension,
        dtype=job.dtype,
        shards=tuple(
            ShardRecord(folder=s.folder.relative_to(folder).as_posix(), rows=s.rows) for s in shards
        ),
        files=files,
    )
    write_manifest(folder, manifest)


def shard_folder(folder: Path, number: int) -> Path:
    """Where the shard of this number lies."""
    return folder / "shards" / f"{number:05d}"


def sha256(data: bytes) -> str:
    """The SHA-256 of some bytes, in hexadecimal."""
    return hashlib.sha256(data).hexdigest()
