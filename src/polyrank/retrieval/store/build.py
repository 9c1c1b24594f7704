"""Builds an index folder: texts first, then vectors, then the manifest; then renames it into place.

A build that resumes keeps every block of vectors that still fits.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

from polyrank.errors import DataError
from polyrank.folder_files import FileRecord
from polyrank.jobs import working
from polyrank.retrieval.source import Candidates, Source
from polyrank.retrieval.store.manifest import (
    LOCK,
    MANIFEST,
    MODEL_FOLDER,
    SHARDS,
    Manifest,
    ModelRecord,
    ShardLayout,
    Storage,
    build_job,
    new_records,
    write_manifest,
)
from polyrank.retrieval.store.metadata import FieldKinds
from polyrank.retrieval.store.shard import Shard, require_unique_ids
from polyrank.retrieval.store.writing import (
    encode_shards,
    encoding_identity,
    is_encoded_block,
    remove_leftovers,
    require_space,
    shard_record,
    write_texts,
)
from polyrank.retrieval.vector_model import VectorModel
from polyrank.storage import exclusive, storage_errors

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
    may change the folder before it is moved to `path`. Raises DataError, StorageError, ModelError;
    an error leaves `path` as it was.
    """
    dimension = model.dimension
    identity = encoding_identity(model.fingerprint(), dimension, storage, layout)
    with working(build_job(path, identity), other="discard") as work:
        journal = work.journal(is_encoded_block)
        with unchanged(path):
            fresh = work.folder / "index"
            candidates = Candidates(source)
            kinds = FieldKinds({}, candidates.blame)
            shards = write_texts(candidates, fresh, layout, kinds)
            require_some(shards, candidates)
            require_unique_ids(shards, candidates)
            rows = sum(shard.rows for shard in shards)
            require_space(fresh, rows, storage, dimension, shards=shards)
            encode_shards(
                model.encode_candidates_for_scoring, shards, journal, layout, storage, dimension
            )
            remove_leftovers(shards, fresh, storage)
            finish_folder(
                model,
                fresh,
                path,
                model_from,
                shards,
                fields=kinds.known,
                layout=layout,
                storage=storage,
            )
            complete(fresh)
            work.place_folder(fresh)


@contextlib.contextmanager
def unchanged(path: Path) -> Iterator[None]:
    """Lock the index at `path`, if any, against writers. Raises UsageError."""
    with contextlib.ExitStack() as held:
        if (path / MANIFEST).is_file():
            problem = f"The index {path} is being changed by another process."
            remedy = "Wait for it, or write to another folder."
            held.enter_context(exclusive(path / LOCK, problem, remedy))
        yield


def require_some(shards: list[Shard], candidates: Candidates) -> None:
    """Raise DataError if there are no candidates."""
    if not shards:
        raise DataError(
            "There are no candidates to index.", "Give at least one text.", path=candidates.path
        )


def finish_folder(
    model: VectorModel,
    folder: Path,
    path: Path,
    model_from: Path | None,
    shards: list[Shard],
    *,
    fields: Mapping[str, str],
    layout: ShardLayout,
    storage: Storage,
    known: Mapping[str, FileRecord] = NOTHING_KNOWN,
) -> None:
    """Turn a folder of shards into the index for `path`.

    `known` holds records of files that are known already. Raises StorageError.
    """
    record = name_model(model, path, model_from)
    with storage_errors(folder):
        for left in folder.iterdir():  # by an interrupted run
            if left.is_dir() and left.name != SHARDS:
                shutil.rmtree(left)
            elif left.is_file():
                left.unlink()
        copy_model(model, folder, record)
        (folder / LOCK).touch()
        files = {file for file in folder.rglob("*") if file.is_file()}
        outside = {folder / MANIFEST, folder / LOCK, *(folder / name for name in known)}
        records = {**known, **new_records(folder, files - outside)}
    manifest = Manifest(
        generation=1,
        model=record,
        count=sum(shard.rows for shard in shards),
        dimension=model.dimension,
        storage=storage,
        layout=layout,
        fields=dict(sorted(fields.items())),
        shards=tuple(shard_record(folder, shard) for shard in shards),
        files=dict(sorted(records.items())),
    )
    write_manifest(folder, manifest)


def name_model(model: VectorModel, path: Path, model_from: Path | None) -> ModelRecord:
    """Record which model the index at `path` has, and where it is."""
    relative = MODEL_FOLDER if model_from is None else os.path.relpath(model_from, path)
    return ModelRecord(
        fingerprint=model.fingerprint(),
        architecture=model.config.architecture,
        num_vectors=model.num_vectors,
        attention=model.attention,
        folder=Path(relative).as_posix(),
        absolute=None if model_from is None else str(model_from),
    )


def copy_model(model: VectorModel, folder: Path, record: ModelRecord) -> None:
    """Save the model below a folder that will be renamed, unless its record names another."""
    if record.absolute is None:
        model.save_copy(folder / MODEL_FOLDER)
