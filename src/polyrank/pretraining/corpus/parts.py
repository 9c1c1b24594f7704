"""The Parquet files of a corpus while it is made, and the journal of those that are finished."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from polyrank.pretraining.corpus.manifest import Part
from polyrank.pretraining.corpus.schema import Kind, require_pyarrow, schema_of
from polyrank.pretraining.corpus.tally import Tally
from polyrank.pretraining.corpus.tasks import Result, from_bytes
from polyrank.storage import sha256_of, storage_errors, synchronise, synchronise_folder

JOURNAL = "journal.jsonl"


@dataclass(frozen=True, kw_only=True)
class Finished:
    """What some tasks gave: a part, or none if all of them was dropped."""

    num_tasks: int
    kind: Kind | None
    part: Part | None
    counts: dict[str, int]
    dropped: dict[str, Any]


class Parts:
    """The finished parts in a work folder; the next is added by `write`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.finished = list(read_journal(folder))

    @property
    def num_tasks(self) -> int:
        """How many tasks are done."""
        return sum(finished.num_tasks for finished in self.finished)

    @property
    def parts(self) -> list[Part]:
        """Those that have documents."""
        return [finished.part for finished in self.finished if finished.part is not None]

    def write(self, results: Iterable[Result]) -> Iterator[int]:
        """Write one part of some tasks, yielding the documents of each; note it when it is whole.

        Raises StorageError.
        """
        counts: dict[str, int] = {}
        dropped, num_tasks, rows = Tally(), 0, 0
        kind: Kind | None = None
        name = f"part-{len(self.parts):05d}.parquet"
        fresh = self.folder / f"{name}.new"
        writer = None
        try:
            for result in results:
                num_tasks += 1
                dropped.merge(result.dropped)
                for counted, number in result.counts.items():
                    counts[counted] = counts.get(counted, 0) + number
                if result.batch is not None and result.kind is not None:
                    kind = result.kind
                    with storage_errors(fresh):
                        writer = writer or open_writer(fresh, kind)
                        write_row_group(writer, from_bytes(result.batch))
                    rows += result.num_documents
                yield result.num_documents
        finally:
            if writer is not None:
                with storage_errors(fresh):
                    writer.close()
        if num_tasks:
            part = None if writer is None else settle(fresh, self.folder / name, rows)
            self.note(
                Finished(
                    num_tasks=num_tasks,
                    kind=kind,
                    part=part,
                    counts=counts,
                    dropped=dropped.plain(),
                )
            )

    def note(self, finished: Finished) -> None:
        """Write down that a part is whole."""
        path = self.folder / JOURNAL
        with storage_errors(path), open(path, "ab") as handle:
            handle.write(json.dumps(dataclasses.asdict(finished)).encode() + b"\n")
            handle.flush()
            os.fsync(handle.fileno())
        self.finished.append(finished)


def open_writer(path: Path, kind: Kind) -> Any:
    """A Parquet file to write documents to."""
    pa = require_pyarrow()
    return pa.parquet.ParquetWriter(
        path, schema_of(kind), compression="zstd", use_dictionary=False, write_statistics=False
    )


def write_row_group(writer: Any, batch: Any) -> None:
    """Write a record batch as a row group of its own."""
    if batch.num_rows:
        writer.write_batch(batch, row_group_size=batch.num_rows)


def settle(fresh: Path, path: Path, rows: int) -> Part:
    """Give a whole file its name."""
    with storage_errors(path):
        synchronise(fresh)
        os.replace(fresh, path)
        synchronise_folder(path.parent)
        return described(path, rows)


def described(path: Path, rows: int) -> Part:
    """What `corpus.json` says of a file."""
    size = path.stat().st_size
    return Part(file=path.name, rows=rows, bytes=size, sha256=sha256_of(path))


def read_journal(folder: Path) -> Iterator[Finished]:
    """The notes of an earlier run, up to the first that is cut off or whose part is not whole.

    What follows is removed from the journal.
    """
    path = folder / JOURNAL
    kept = 0
    for line in path.read_bytes().splitlines(keepends=True) if path.is_file() else []:
        try:
            values = json.loads(line)
        except ValueError:
            break
        part = None if values["part"] is None else Part(**values["part"])
        if not line.endswith(b"\n") or not is_whole(folder, part):
            break
        kept += len(line)
        yield Finished(**{**values, "part": part})
    if path.is_file():
        with storage_errors(path):
            os.truncate(path, kept)


def is_whole(folder: Path, part: Part | None) -> bool:
    """Whether a part is still what was noted."""
    if part is None:
        return True
    path = folder / part.file
    return path.is_file() and described(path, part.rows) == part
