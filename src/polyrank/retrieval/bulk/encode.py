"""Bulk encoding: a file of candidates in N parts, each encoded by any free process.

    polyrank encode … --num-parts 4 --part-index 0     on one machine
    polyrank encode … --num-parts 4 --part-index 1     on another
    polyrank index build … --encoded DIR                 all parts to an index (see `assemble`)

Parts are not the shards of an index. Finished parts are skipped, interrupted ones resume. Processes
share nothing but the folder of the parts.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple, get_args

from polyrank.config import require_choice
from polyrank.errors import DataError, UsageError
from polyrank.jobs import Work, has_leftovers, tidy, working
from polyrank.progress import bar
from polyrank.retrieval.bulk.parts import (
    BulkJob,
    Part,
    finished_parts,
    part_folder,
    part_job,
    read_part,
    require_same_job,
    write_part,
)
from polyrank.retrieval.bulk.survey import survey
from polyrank.retrieval.source import Candidates
from polyrank.retrieval.store.manifest import (
    MANIFEST,
    SHARDS,
    ShardLayout,
    Storage,
    new_records,
)
from polyrank.retrieval.store.metadata import FieldKinds
from polyrank.retrieval.store.shard import Shard, require_unique_ids
from polyrank.retrieval.store.writing import (
    ENCODING,
    UNIT,
    encode_shards,
    encoding_identity,
    is_encoded_block,
    remove_leftovers,
    require_space,
    shard_record,
    write_texts,
)
from polyrank.retrieval.vector_model import VectorModel, require_vectors
from polyrank.storage import storage_errors

PartState = Literal["encoded", "there", "busy"]
"""encoded: by this call. there: finished before. busy: another process is encoding it."""


class EncodedPart(NamedTuple):
    """The state of a part after a call."""

    part_index: int
    num_candidates: int
    state: PartState
    folder: Path


def encode_part(
    model: VectorModel,
    source: str | Path,
    output: str | Path,
    num_parts: int,
    part_index: int,
    *,
    storage: Storage = "float32",
    layout: ShardLayout | None = None,
) -> EncodedPart:
    """Encode one of `num_parts` contiguous parts of a file of candidates, unless it is finished.

    The same call resumes an interrupted one. Raises UsageError if the folder `output` has parts of
    another model, source, number of parts or type of storage, or if another process is encoding
    this part; DataError for bad candidates; ModelError; StorageError if the disk is full.
    """
    encoder = BulkEncoder(model, source, output, num_parts, storage=storage, layout=layout)
    part = encoder.encode(part_index)
    if part.state == "busy":
        raise UsageError(
            f"The part {part.folder} is being encoded by another process.",
            "Wait for it, or encode another part.",
        )
    return part


class BulkEncoder:
    """Encodes parts of one job with one model. Several encoders may share one folder of parts."""

    def __init__(
        self,
        model: VectorModel,
        source: str | Path,
        output: str | Path,
        num_parts: int,
        *,
        storage: Storage = "float32",
        layout: ShardLayout | None = None,
    ) -> None:
        require_vectors(model)
        if num_parts < 1:
            raise UsageError(f"There must be at least one part, got {num_parts}.", "Give more.")
        require_choice("storage", storage, get_args(Storage))
        self.model = model
        self.source = Path(source)
        self.output = Path(os.path.realpath(output))
        require_free(self.output)
        self._seen = look_of(self.source)
        record = survey(self.source, self.output)
        self.job = BulkJob(
            fingerprint=model.fingerprint(),
            architecture=model.config.architecture,
            num_vectors=model.num_vectors,
            attention=model.attention,
            dimension=model.dimension,
            storage=storage,
            layout=layout or ShardLayout(),
            num_parts=num_parts,
            source=record,
        )
        job = self.job
        self._identity = encoding_identity(job.fingerprint, job.dimension, job.storage, job.layout)
        for index, part in finished_parts(self.output).items():
            require_same_job(part_folder(self.output, index), part.job, self.job)

    def encode_all(self) -> Iterator[EncodedPart]:
        """Encode every part that is missing and that no other process is encoding."""
        done = rows_done(self.output)
        with bar(ENCODING, total=self.job.source.rows, unit=UNIT, done=done) as task:
            for index in range(self.job.num_parts):
                with task.folding():
                    part = self.encode(index)
                yield part

    def encode(self, index: int) -> EncodedPart:
        """Encode a part, unless it is finished or another process is encoding it."""
        if not 0 <= index < self.job.num_parts:
            raise UsageError(
                f"There is no part {index} of {self.job.num_parts}.",
                f"Parts are counted from 0: give one from 0 to {self.job.num_parts - 1}.",
            )
        folder = part_folder(self.output, index)
        job = part_job(self.output, index, self._identity)
        if not folder.exists():
            with contextlib.ExitStack() as held:
                try:
                    work = held.enter_context(working(job, other="discard"))
                except UsageError:
                    if not folder.exists():
                        return self._result(index, "busy")
                else:
                    if not folder.exists():  # another process may just have finished it
                        self._write(index, work)
                        return self._result(index, "encoded")
        if has_leftovers(job):  # of a process that was killed when it had finished
            tidy(job)
        require_same_job(folder, read_part(folder).job, self.job)
        return self._result(index, "there")

    def _result(self, index: int, state: PartState) -> EncodedPart:
        start, stop = self.job.rows_of(index)
        return EncodedPart(index, stop - start, state, part_folder(self.output, index))

    def _write(self, index: int, work: Work) -> None:
        job, fresh = self.job, work.folder / "part"
        journal = work.journal(is_encoded_block)
        with storage_errors(fresh):
            fresh.mkdir(exist_ok=True)
        shards = self._write_texts(index, fresh)
        rows = sum(shard.rows for shard in shards)
        require_space(fresh, rows, job.storage, job.dimension, shards=shards)
        encode = self.model.encode_candidates_for_scoring
        encode_shards(encode, shards, journal, job.layout, job.storage, job.dimension)
        remove_leftovers(shards, fresh, job.storage)
        write_part(fresh, self._finished(index, fresh, shards))
        work.place_folder(fresh)

    def _write_texts(self, index: int, fresh: Path) -> list[Shard]:
        start, stop = self.job.rows_of(index)
        candidates = Candidates(self.source, start=start, stop=stop)
        kinds = FieldKinds({}, candidates.blame)
        shards = write_texts(candidates, fresh, self.job.layout, kinds) if start < stop else []
        if look_of(self.source) != self._seen:
            raise DataError(
                "The file changed while it was being read.", "Start again.", path=self.source
            )
        require_unique_ids(shards, candidates)
        return shards

    def _finished(self, index: int, fresh: Path, shards: list[Shard]) -> Part:
        start, stop = self.job.rows_of(index)
        with storage_errors(fresh):
            files = new_records(fresh, fresh.glob(f"{SHARDS}/*/*"))
        return Part(
            job=self.job,
            index=index,
            start=start,
            stop=stop,
            shards=tuple(shard_record(fresh, shard) for shard in shards),
            files=files,
        )


def rows_done(output: Path) -> int:
    """How many candidates the finished parts in a folder have."""
    return sum(part.rows for part in finished_parts(output).values())


def look_of(path: Path) -> tuple[int, int] | None:
    """What changes when a file is written again: its size and time; None if there is no file."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_size, found.st_mtime_ns


def require_free(output: Path) -> None:
    """Raise UsageError for a place where no folder of parts can be."""
    kind = "a file" if output.is_file() else "an index" if (output / MANIFEST).exists() else None
    if kind is not None:
        raise UsageError(f"{output} is {kind}, not a folder for parts.", "Choose another folder.")
