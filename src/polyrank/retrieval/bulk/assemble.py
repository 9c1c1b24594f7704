"""Joins parts that were encoded in bulk into an index folder: files are linked, nothing is encoded.

The files of a finished part never change, so an index may share them with the part. If the system
cannot link, they are copied. Memory does not grow with the candidates.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

from polyrank.errors import IndexFolderError, UsageError
from polyrank.folder_files import FileRecord, sha256_of
from polyrank.jobs import working
from polyrank.progress import bar
from polyrank.retrieval.bulk.parts import (
    BulkJob,
    Part,
    finished_parts,
    part_folder,
    require_same_job,
)
from polyrank.retrieval.source import Candidates
from polyrank.retrieval.store.build import Complete, finish_folder, nothing_more, unchanged
from polyrank.retrieval.store.manifest import build_job
from polyrank.retrieval.store.shard import Shard, require_unique_ids
from polyrank.retrieval.store.writing import shard_folder
from polyrank.retrieval.vector_model import VectorModel
from polyrank.storage import storage_errors

SHOWN_PARTS = 10


def assemble_folder(
    model: VectorModel,
    encoded: Path,
    path: Path,
    *,
    model_from: Path | None,
    complete: Complete = nothing_more,
) -> None:
    """Write an index of all parts in the folder `encoded` to `path`, replacing an index there.

    `model_from` is the folder to name as the model's; with None the index keeps a copy. `complete`
    may change the folder before it is moved to `path`. Raises IndexFolderError, UsageError,
    DataError, StorageError; an error leaves `path` as it was.
    """
    parts = all_parts(encoded)
    common = parts[0].job
    require_model(encoded, common, model)
    job = build_job(path, {"encoded": str(encoded)})
    with working(job, other="discard") as work, unchanged(path):
        fresh = work.folder / "assembled"
        with storage_errors(path):
            shutil.rmtree(fresh, ignore_errors=True)  # of a process that was killed
            fresh.mkdir()
        shards, files = take_over(encoded, parts, fresh)
        require_unique_ids(shards, candidates_of(common))
        finish_folder(
            model,
            fresh,
            path,
            model_from,
            shards,
            fields=common.source.fields,
            layout=common.layout,
            storage=common.storage,
            known=files,
        )
        complete(fresh)
        work.place_folder(fresh)


def all_parts(encoded: Path) -> list[Part]:
    """Every part of a job, in order.

    Raises IndexFolderError for a damaged part, and UsageError if there are none, if one is missing,
    or if they belong to different jobs.
    """
    found = finished_parts(encoded)
    if not found:
        raise UsageError(
            f"There are no encoded parts in {encoded}.",
            "Give the folder that `polyrank encode` wrote.",
        )
    first = found[min(found)].job
    for index, part in found.items():
        folder = part_folder(encoded, index)
        require_same_job(folder, part.job, first)
        rows = sum(shard.rows for shard in part.shards)
        if (part.start, part.stop) != first.rows_of(index) or rows != part.rows:
            raise IndexFolderError(
                f"The part {folder} has {rows:,} candidates from place {part.start:,} on, which "
                "are not those it must have.",
                "Remove that folder and encode the part again.",
            )
    missing = [index for index in range(first.num_parts) if index not in found]
    if missing:
        raise missing_parts(encoded, first, missing)
    return [found[index] for index in range(first.num_parts)]


def missing_parts(encoded: Path, job: BulkJob, missing: list[int]) -> UsageError:
    """The error that names the missing parts and the command that makes one."""
    shown = ", ".join(map(str, missing[:SHOWN_PARTS]))
    shown += f" and {len(missing) - SHOWN_PARTS} more" if len(missing) > SHOWN_PARTS else ""
    several = len(missing) > 1
    return UsageError(
        f"Of the {job.num_parts} parts in {encoded}, {len(missing)} {'are' if several else 'is'} "
        f"missing: {shown}.",
        f"Encode {'them' if several else 'it'}: polyrank encode MODEL --candidates "
        f"{job.source.path} --output {encoded} --storage {job.storage} --num-parts "
        f"{job.num_parts} --part-index {missing[0]}.",
    )


def require_model(encoded: Path, job: BulkJob, model: VectorModel) -> None:
    """Raise IndexFolderError if the parts were encoded by another model."""
    fingerprint = model.fingerprint()
    if (job.fingerprint, job.num_vectors) != (fingerprint, model.num_vectors):
        raise IndexFolderError(
            f"The parts in {encoded} were encoded by the {job.architecture}-encoder "
            f"{job.fingerprint[:12]} with m = {job.num_vectors}, not by {fingerprint[:12]} with "
            f"m = {model.num_vectors}.",
            "Give the model that encoded them, or encode them again.",
        )


def take_over(
    encoded: Path, parts: list[Part], fresh: Path
) -> tuple[list[Shard], dict[str, FileRecord]]:
    """Link or copy the shards of all parts to the folder `fresh`, numbered through, and check
    every byte. Raises IndexFolderError for a damaged file, StorageError.
    """
    shards: list[Shard] = []
    files: dict[str, FileRecord] = {}
    total = sum(record.bytes for part in parts for record in part.files.values())
    with bar("Verifying parts", total=total, unit="bytes") as advance:
        for part in parts:
            folder = part_folder(encoded, part.index)
            for record in part.shards:
                target = shard_folder(fresh, len(shards))
                with storage_errors(fresh):
                    target.mkdir(parents=True)
                mine = of_folder(part.files, record.folder)
                for name, expected in mine.items():
                    link(folder / record.folder / name, target / name, expected, advance)
                    files[(target / name).relative_to(fresh).as_posix()] = expected
                shards.append(Shard(target, record.rows, record.fields))
    return shards, files


def of_folder(files: Mapping[str, FileRecord], folder: str) -> dict[str, FileRecord]:
    """The files of a folder, by their names in it."""
    start = f"{folder}/"
    return {name.removeprefix(start): r for name, r in files.items() if name.startswith(start)}


def link(file: Path, target: Path, expected: FileRecord, advance: Callable[[int], None]) -> None:
    """Link a file to `target`, or copy it; `advance` is told how many bytes were verified.

    Raises IndexFolderError if the file is not as recorded.
    """
    fault = None
    if not file.is_file():
        fault = "is missing"
    else:
        with storage_errors(target):
            try:
                os.link(file.resolve(), target)
            except OSError:  # another disk, or one without links
                shutil.copyfile(file, target)
            same_size = target.stat().st_size == expected.bytes
            if not same_size or sha256_of(target, advance) != expected.sha256:
                fault = "is damaged: its checksum differs"
    if fault is not None:
        raise IndexFolderError(
            f"The file {file} of an encoded part {fault}.",
            "Remove the folder of that part and encode the part again.",
        )


def candidates_of(job: BulkJob) -> Candidates:
    """The file of candidates, if it still exists, to name its lines."""
    path = Path(job.source.path)
    there = path.is_file() and path.stat().st_size == job.source.bytes
    return Candidates(path if there else ())
