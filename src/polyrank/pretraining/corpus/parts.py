"""The Parquet files of a corpus while it is made, and the journal of those that are finished."""

from __future__ import annotations

import dataclasses
import os
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from polyrank.folder_files import sha256_of
from polyrank.jobs import Note, Work
from polyrank.pretraining.corpus.batches import ConvertedBatch, from_bytes
from polyrank.pretraining.corpus.manifest import DroppedCounter, Part
from polyrank.pretraining.corpus.redirects import Resolve, with_targets
from polyrank.pretraining.corpus.schema import Kind, load_pyarrow, schema_of
from polyrank.storage import storage_errors, synchronise, synchronise_folder


@dataclass(frozen=True, kw_only=True)
class Finished:
    """What some batches gave: a part, or none if everything in them was dropped."""

    num_batches: int
    kind: Kind | None
    part: Part | None
    counts: dict[str, int]
    dropped: dict[str, Any]


class Parts:
    """The finished parts in the folder of a job; the next is added by `write`."""

    def __init__(self, work: Work) -> None:
        self.folder = work.folder
        self.journal = work.journal(lambda note: is_whole(part_of(note), work.folder))
        self.finished = [Finished(**{**note, "part": part_of(note)}) for note in self.journal.notes]

    @property
    def num_batches(self) -> int:
        """How many batches are done."""
        return sum(finished.num_batches for finished in self.finished)

    @property
    def parts(self) -> list[Part]:
        """Those that have documents."""
        return [finished.part for finished in self.finished if finished.part is not None]

    @property
    def num_documents(self) -> int:
        """How many documents the finished parts hold."""
        return sum(part.rows for part in self.parts)

    @property
    def kind(self) -> Kind:
        """What the documents are, if there are any."""
        return next(finished.kind for finished in self.finished if finished.kind is not None)

    def counts(self) -> dict[str, int]:
        """How many sections, links, … there are, by name."""
        counts: dict[str, int] = {}
        for finished in self.finished:
            add_counts(counts, finished.counts)
        return counts

    def dropped(self) -> DroppedCounter:
        """What was dropped, by reason."""
        dropped = DroppedCounter()
        for finished in self.finished:
            dropped.merge(finished.dropped)
        return dropped

    def write(self, converted: Iterable[ConvertedBatch]) -> Iterator[int]:
        """Write one part of some batches, yielding the documents of each; note it when it is whole.

        Raises StorageError.
        """
        counts: dict[str, int] = {}
        dropped, num_batches, rows = DroppedCounter(), 0, 0
        kind: Kind | None = None
        name = f"part-{len(self.parts):05d}.parquet"
        fresh = self.folder / f"{name}.new"
        writer = None
        try:
            for batch in converted:
                num_batches += 1
                dropped.merge(batch.dropped)
                add_counts(counts, batch.counts)
                if batch.rows is not None and batch.kind is not None:
                    kind = batch.kind
                    with storage_errors(fresh):
                        writer = writer or open_writer(fresh, kind)
                        write_row_group(writer, from_bytes(batch.rows))
                    rows += batch.num_documents
                yield batch.num_documents
        finally:
            if writer is not None:
                with storage_errors(fresh):
                    writer.close()
        if num_batches:
            part = None if writer is None else settle(fresh, self.folder / name, rows)
            self.note(
                Finished(
                    num_batches=num_batches,
                    kind=kind,
                    part=part,
                    counts=counts,
                    dropped=dropped.plain(),
                )
            )

    def note(self, finished: Finished) -> None:
        """Write down that a part is whole."""
        self.journal.append(dataclasses.asdict(finished))
        self.finished.append(finished)


def part_of(note: Note) -> Part | None:
    """The part that a note of the journal speaks of."""
    return None if note["part"] is None else Part(**note["part"])


def is_whole(part: Part | None, folder: Path) -> bool:
    """Whether a part is still what was noted."""
    if part is None:
        return True
    path = folder / part.file
    return path.is_file() and describe_part(path, part.rows) == part


def add_counts(counts: dict[str, int], more: dict[str, int]) -> None:
    """Add numbers to those of the same names."""
    for name, number in more.items():
        counts[name] = counts.get(name, 0) + number


def open_writer(path: Path, kind: Kind) -> Any:
    """A Parquet file to write documents to."""
    pa = load_pyarrow()
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
        return describe_part(path, rows)


def describe_part(path: Path, rows: int) -> Part:
    """What `corpus.json` says of a file."""
    size = path.stat().st_size
    return Part(file=path.name, rows=rows, bytes=size, sha256=sha256_of(path))


def place_part(part: Part, work: Path, fresh: Path) -> Part:
    """Put a part into the new folder as it is."""
    with storage_errors(fresh):
        try:
            os.link(work / part.file, fresh / part.file)
        except OSError:  # a disk without links
            shutil.copyfile(work / part.file, fresh / part.file)
    return part


def place_resolved(part: Part, work: Path, fresh: Path, resolve: Resolve) -> tuple[Part, int]:
    """Write a part with its links' targets resolved; and how many of the links have changed."""
    pa = load_pyarrow()
    path = fresh / part.file
    changed = 0
    with storage_errors(path), pa.parquet.ParquetFile(work / part.file) as file:
        with open_writer(path, "articles") as writer:
            for group in range(file.num_row_groups):
                table = file.read_row_group(group, use_threads=False).combine_chunks()
                for batch in table.to_batches():
                    batch, count = with_targets(batch, resolve)
                    write_row_group(writer, batch)
                    changed += count
        return describe_part(path, part.rows), changed
