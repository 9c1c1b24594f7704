"""The parts of a bulk encoding: their folders, and the manifest of each.

    DIR/source.json               what was found in the file of candidates (see `survey`)
    DIR/part-00003/part.json      the manifest of part 3, counted from 0
    DIR/part-00003/shards/N/      ids, texts, metadata and vectors, as in an index folder
    DIR/.part-00003.encoding/     the part while it is made

Knows names, sizes and checksums of files; knows nothing of what the files hold.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from polyrank._version import __version__
from polyrank.errors import IndexFolderError, UsageError
from polyrank.folder_files import FileRecord, leaves, read_json, require_own_files
from polyrank.jobs import Job
from polyrank.retrieval.store.manifest import (
    ShardLayout,
    ShardRecord,
    Storage,
    checksum_of,
    shard_from_plain,
)
from polyrank.storage import write_text

PART = "part.json"
FORMAT = "polyrank-part"
VERSION = 2
NAME = re.compile(r"part-(\d{5,})")


@dataclass(frozen=True, kw_only=True, slots=True)
class SourceRecord:
    """A file of candidates: its size, SHA-256, number of candidates and kinds of fields.

    `path` is where it was read; a copy elsewhere is the same source.
    """

    path: str = field(compare=False)
    bytes: int
    sha256: str
    rows: int
    fields: Mapping[str, str]


@dataclass(frozen=True, kw_only=True, slots=True)
class BulkJob:
    """What all parts have in common: the model, the source, and how it is divided and stored."""

    fingerprint: str
    architecture: str
    num_vectors: int
    attention: str
    dimension: int
    storage: Storage
    layout: ShardLayout
    num_parts: int
    source: SourceRecord

    def rows_of(self, index: int) -> tuple[int, int]:
        """The places, from the first to before the last, of a part.

        Parts are cut between blocks if there is at least one block for each. Then a block has the
        same texts as in a build by one process, and its vectors are bit for bit the same.
        """
        rows, block = self.source.rows, self.layout.block_rows
        unit = block if rows >= self.num_parts * block else 1
        units = -(-rows // unit)
        start, stop = (number * units // self.num_parts * unit for number in (index, index + 1))
        return min(start, rows), min(stop, rows)


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """A finished part; `start` and `stop` are its places in the source."""

    job: BulkJob
    index: int
    start: int
    stop: int
    shards: tuple[ShardRecord, ...]
    files: Mapping[str, FileRecord]

    @property
    def rows(self) -> int:
        """The number of its candidates."""
        return self.stop - self.start


def part_folder(output: Path, index: int) -> Path:
    """The folder of a part."""
    return output / f"part-{index:05d}"


def part_job(output: Path, index: int, identity: Mapping[str, Any]) -> Job:
    """The job that makes a part."""
    folder = part_folder(output, index)
    return Job(output=folder, doing="encoding", noun="encoding", identity=identity)


def finished_parts(output: Path) -> dict[int, Part]:
    """The finished parts, by index. Raises IndexFolderError for a damaged one."""
    found = [path for path in output.glob("part-*") if NAME.fullmatch(path.name)]
    parts = [read_part(path) for path in sorted(found)]
    return {part.index: part for part in parts}


def write_part(folder: Path, part: Part) -> None:
    """Write the manifest of a part that is about to be moved into place. Raises StorageError."""
    plain = {"format": FORMAT, "version": VERSION, "polyrank": __version__}
    plain |= dataclasses.asdict(part)
    plain["checksum"] = checksum_of(plain)
    write_text(folder / PART, json.dumps(plain, indent=1, ensure_ascii=False) + "\n")


def read_part(folder: Path) -> Part:
    """Read the manifest of a part. Raises IndexFolderError for anything else."""
    path = folder / PART
    remedy = "Remove that folder and encode the part again."
    require_own_files(folder, IndexFolderError)
    try:
        plain = read_json(path)
        if plain["format"] != FORMAT:
            raise ValueError(f"its format is {plain['format']!r}")
        if plain["version"] != VERSION:
            remedy = f"Install polyrank {plain['polyrank']}, which wrote it, or encode it again."
            raise ValueError(f"its version is {plain['version']!r}, not {VERSION}")
        if plain["checksum"] != checksum_of(plain):
            raise ValueError("its checksum differs")
        part = part_from_plain(plain)
        if part_folder(folder.parent, part.index).name != folder.name:
            raise ValueError(f"it is of the part {part.index}")
        if any(leaves(name) for name in part.files):
            raise ValueError("a file lies outside")
    except OSError as error:
        raise IndexFolderError(f"{path} cannot be read: {error.strerror}.", remedy) from error
    except (KeyError, TypeError, ValueError, AttributeError, UsageError) as error:
        raise IndexFolderError(
            f"{path} is not a manifest of the part in {folder.name}: {error}.", remedy
        ) from error
    return part


def part_from_plain(plain: Mapping[str, Any]) -> Part:
    """The part of what JSON holds."""
    job = dict(plain["job"])
    job["layout"] = ShardLayout(**job["layout"])
    job["source"] = SourceRecord(**job["source"])
    return Part(
        job=BulkJob(**job),
        index=int(plain["index"]),
        start=int(plain["start"]),
        stop=int(plain["stop"]),
        shards=tuple(shard_from_plain(shard) for shard in plain["shards"]),
        files={name: FileRecord(**record) for name, record in plain["files"].items()},
    )


def require_same_job(folder: Path, found: BulkJob, wanted: BulkJob) -> None:
    """Raise UsageError, naming what differs, for a part of another job."""
    differences = {
        f"by the model {found.fingerprint[:12]} with m = {found.num_vectors}, not by "
        f"{wanted.fingerprint[:12]} with m = {wanted.num_vectors}": found.fingerprint
        != wanted.fingerprint,
        f"as one of {found.num_parts} parts, not of {wanted.num_parts}": found.num_parts
        != wanted.num_parts,
        f"as {found.storage}, not as {wanted.storage}": found.storage != wanted.storage,
        f"from {found.source.path} with {found.source.rows:,} candidates and the SHA-256 "
        f"{found.source.sha256[:12]}, not from {wanted.source.path} with "
        f"{wanted.source.rows:,} and {wanted.source.sha256[:12]}": found.source != wanted.source,
    }
    faults = [words for words, differs in differences.items() if differs]
    if not faults and found != wanted:
        faults = [f"with the layout {found.layout}, not {wanted.layout}"]
    if faults:
        raise UsageError(
            f"{folder} was encoded {faults[0]}.",
            "Write to another folder, or remove this one to encode all parts again.",
        )
