"""Building an index folder: texts first, then vectors, then the manifest, then into place.

The work lies in a hidden folder beside the target, with a journal of the blocks that are encoded;
the same build, run again after an interruption, keeps every block that still fits.
"""

from __future__ import annotations

import contextlib
import glob
import hashlib
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

from polyrank.errors import DataError, StorageError
from polyrank.progress import bar
from polyrank.retrieval.source import Candidates, Source
from polyrank.retrieval.store.columns import Kinds
from polyrank.retrieval.store.journal import Block, Job, Journal
from polyrank.retrieval.store.manifest import (
    LOCK,
    MANIFEST,
    MODEL_FOLDER,
    SEARCH,
    SHARDS,
    FileRecord,
    Manifest,
    ModelRecord,
    ShardLayout,
    Storage,
    file_records,
    work_folder,
    write_manifest,
)
from polyrank.retrieval.store.shard import Shard, require_unique_ids
from polyrank.retrieval.store.vectors import vector_files, vector_writer
from polyrank.retrieval.store.writing import encode_rows, require_space, shard_record, write_texts
from polyrank.retrieval.vector_model import VectorModel
from polyrank.storage import (
    discard,
    exclusive,
    storage_errors,
    swap_folders,
    synchronise,
    synchronise_folder,
)

JOURNAL = "journal.jsonl"
ENCODING = "Encoding candidates"
Complete = Callable[[Path], None]
NOTHING_KNOWN: Mapping[str, FileRecord] = MappingProxyType({})


def nothing_more(_: Path) -> None:
    """Leave a folder as it is."""


def build_folder(
    model: VectorModel,
    source: Source,
    path: Path,
    *,
    model_from: Path | None,
    layout: ShardLayout,
    storage: Storage,
    complete: Complete = nothing_more,
) -> None:
    """Write an index of all candidates of `source` to `path`, replacing an index there.

    `model_from` is the folder to name as the model's; with None the index keeps a copy. `complete`
    may change the folder before it takes its place. Raises DataError, StorageError, ModelError;
    whatever is raised, what stood at `path` still does.
    """
    work = work_folder(path)
    fresh = work / "index"
    job = Job(
        fingerprint=model.fingerprint(),
        dimension=model.dimension,
        storage=storage,
        shard_rows=layout.shard_rows,
        block_rows=layout.block_rows,
    )
    with alone(work, path):
        with storage_errors(path):
            fresh.mkdir(parents=True, exist_ok=True)
        journal = Journal.open(work / JOURNAL, job)
        with resumable(work, path, journal):
            candidates = Candidates(source)
            kinds = Kinds({}, candidates.blame)
            shards = write_texts(candidates, fresh, layout, kinds)
            require_some(shards, candidates)
            require_unique_ids(shards, candidates)
            there = sum(file.stat().st_size for file in fresh.glob(f"{SHARDS}/*/vectors.{storage}"))
            rows = sum(shard.rows for shard in shards)
            require_space(fresh, rows, storage, job.dimension, there=there)
            encode_shards(model, shards, journal, job, storage)
            record = name_model(model, path, model_from)
            finish(model, shards, fresh, storage, record)
            write_manifest(fresh, first_manifest(fresh, job, layout, record, kinds.known, shards))
            complete(fresh)
            with storage_errors(path):
                swap_folders(fresh, path)
        clear_away(work, path)


def clear_away(work: Path, path: Path) -> None:
    """Remove what is no longer needed beside `path`."""
    for stale in replaced(path):
        shutil.rmtree(stale, ignore_errors=True)
    discard(work, path)


def replaced(path: Path) -> list[Path]:
    """The folders that a killed process was about to remove beside `path`."""
    return list(path.parent.glob(f".{glob.escape(path.name)}.old-*"))


@contextlib.contextmanager
def alone(work: Path, path: Path) -> Iterator[None]:
    """Keep other builds of the index away, and writers of the one that stands there."""
    remedy = "Wait for it, or write to another folder."
    with contextlib.ExitStack() as held:
        problem = f"The index {path} is being built by another process."
        held.enter_context(exclusive(work / LOCK, problem, remedy))
        if (path / MANIFEST).is_file():
            problem = f"The index {path} is being changed by another process."
            held.enter_context(exclusive(path / LOCK, problem, remedy))
        yield


@contextlib.contextmanager
def resumable(work: Path, path: Path, journal: Journal) -> Iterator[None]:
    """On an error, keep the work if vectors were made, and say so where the disk is full."""
    try:
        yield
    except BaseException as error:
        if not len(journal):
            discard(work, path)
        elif isinstance(error, StorageError):
            raise StorageError(
                error.problem,
                "Nothing that was there before has changed; free some space and run the same "
                f"again, which goes on from the part in {work}, or delete that folder.",
            ) from error
        raise


def require_some(shards: list[Shard], candidates: Candidates) -> None:
    """Raise DataError if there are no candidates."""
    if not shards:
        raise DataError(
            "There are no candidates to index.", "Give at least one text.", path=candidates.path
        )


def encode_shards(
    model: VectorModel, shards: list[Shard], journal: Journal, job: Job, storage: Storage
) -> None:
    """Encode every block that the journal does not hold."""
    encode, dimension = model.encode_candidates, job.dimension
    with bar(ENCODING, total=sum(shard.rows for shard in shards)) as advance:
        for number, shard in enumerate(shards):
            with vector_writer(shard.folder, storage, dimension) as writer:
                for start in range(0, shard.rows, job.block_rows):
                    stop = min(start + job.block_rows, shard.rows)
                    texts = shard.texts.digest(start, stop)
                    done = journal.find(number, start, texts)
                    if done is None or sha256(writer.read(start, stop)) != done.vectors:
                        parts = encode_rows(encode, shard, start, stop, storage, dimension).parts()
                        writer.write(start, parts)
                        writer.synchronise()
                        digest = sha256(parts)
                        journal.record(
                            Block(shard=number, start=start, texts=texts, vectors=digest)
                        )
                    advance(stop - start)
                writer.finish(shard.rows)


def name_model(model: VectorModel, path: Path, model_from: Path | None) -> ModelRecord:
    """Say which model the index at `path` has, and where it lies."""
    relative = MODEL_FOLDER if model_from is None else os.path.relpath(model_from, path)
    return ModelRecord(
        fingerprint=model.fingerprint(),
        architecture=model.config.architecture,
        num_vectors=model.num_vectors,
        attention=model.attention,
        folder=Path(relative).as_posix(),
        absolute=None if model_from is None else str(model_from),
    )


def finish(
    model: VectorModel, shards: list[Shard], folder: Path, storage: Storage, record: ModelRecord
) -> None:
    """Add the model, remove what an earlier run left, and flush all to the disk itself."""
    remove_leftovers(shards, folder, storage)
    add_model(model, folder, record)
    flush(folder)


def remove_leftovers(shards: list[Shard], folder: Path, storage: Storage) -> None:
    """Remove what an earlier run left among the shards."""
    with storage_errors(folder):
        shutil.rmtree(folder / SEARCH, ignore_errors=True)
        wanted = {shard.folder for shard in shards}
        for other in set((folder / SHARDS).glob("*")) - wanted:
            shutil.rmtree(other)
        for shard in shards:
            names = {*shard.files, *vector_files(storage)}
            for file in shard.folder.iterdir():
                if file.name not in names:
                    file.unlink()


def add_model(model: VectorModel, folder: Path, record: ModelRecord) -> None:
    """Put a copy of the model into a folder, unless its record names another place."""
    with storage_errors(folder):
        shutil.rmtree(folder / MODEL_FOLDER, ignore_errors=True)
        copy_model(model, folder, record)
        (folder / LOCK).touch()


def copy_model(model: VectorModel, folder: Path, record: ModelRecord) -> None:
    """Save the model below a folder that will be renamed, unless its record names another place."""
    if record.absolute is None:
        model.save_copy(folder / MODEL_FOLDER)


def flush(folder: Path) -> None:
    """Ask the system to put everything in a folder on the disk itself."""
    with storage_errors(folder):
        for path in [folder, *folder.rglob("*")]:
            (synchronise_folder if path.is_dir() else synchronise)(path)


def first_manifest(
    folder: Path,
    job: Job,
    layout: ShardLayout,
    record: ModelRecord,
    fields: Mapping[str, str],
    shards: list[Shard],
    known: Mapping[str, FileRecord] = NOTHING_KNOWN,
) -> Manifest:
    """The manifest of a complete folder; of the files in `known` the records are known already."""
    files = {path for path in folder.rglob("*") if path.is_file()}
    outside = {folder / MANIFEST, folder / LOCK, *(folder / name for name in known)}
    with storage_errors(folder):
        records = {**known, **file_records(folder, files - outside)}
    return Manifest(
        generation=1,
        model=record,
        count=sum(shard.rows for shard in shards),
        dimension=job.dimension,
        storage=job.storage,
        layout=layout,
        fields=dict(sorted(fields.items())),
        shards=tuple(shard_record(folder, shard) for shard in shards),
        files=dict(sorted(records.items())),
    )


def sha256(parts: list[bytes]) -> str:
    """The SHA-256 of some bytes, in hexadecimal."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.hexdigest()
