"""The manifest of an index folder: what is in it, by whom it was made, and every checksum.

Knows names, sizes and checksums of files; knows nothing of what the files hold.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from polyrank._version import __version__
from polyrank.errors import IndexFolderError
from polyrank.progress import bar
from polyrank.storage import sha256_of, storage_errors, synchronise

MANIFEST = "manifest.json"
FORMAT = "polyrank-index"
VERSION = 1
REBUILD = "Build the index again, or restore the folder from a copy."


@dataclass(frozen=True, kw_only=True, slots=True)
class ShardRecord:
    """A shard: its folder below the index, and its number of candidates."""

    folder: str
    rows: int


@dataclass(frozen=True, kw_only=True, slots=True)
class FileRecord:
    """What a file must be: its size in bytes and its SHA-256."""

    bytes: int
    sha256: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelRecord:
    """The model that made the vectors, and where it lies.

    `folder` is relative to the index folder; `absolute` is there only where the index keeps no
    copy of its model.
    """

    fingerprint: str
    architecture: str
    folder: str
    absolute: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Manifest:
    """All that is known of an index without opening its shards."""

    model: ModelRecord
    backend: str
    count: int
    dimension: int
    dtype: str
    shards: tuple[ShardRecord, ...]
    files: Mapping[str, FileRecord]


def file_records(folder: Path) -> dict[str, FileRecord]:
    """The size and checksum of every file below `folder`, the manifest left out."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {
        path.relative_to(folder).as_posix(): FileRecord(
            bytes=path.stat().st_size, sha256=sha256_of(path)
        )
        for path in files
        if path != folder / MANIFEST
    }


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write the manifest, the same bytes for the same contents. Raises StorageError."""
    plain = {"format": FORMAT, "version": VERSION, "polyrank": __version__}
    plain |= dataclasses.asdict(manifest)
    with storage_errors(folder):
        path = folder / MANIFEST
        path.write_text(json.dumps(plain, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        synchronise(path)


def read_manifest(folder: Path) -> Manifest:
    """Read the manifest. Raises IndexFolderError for anything but an index of this version."""
    plain = read_plain(folder)
    version = plain.get("version")
    if version != VERSION:
        raise IndexFolderError(
            f"{folder} is an index of format version {version!r}; this polyrank reads {VERSION}.",
            f"It was written by polyrank {plain.get('polyrank')}: install that, or build again.",
        )
    try:
        manifest = Manifest(
            model=ModelRecord(**plain["model"]),
            backend=str(plain["backend"]),
            count=int(plain["count"]),
            dimension=int(plain["dimension"]),
            dtype=str(plain["dtype"]),
            shards=tuple(ShardRecord(**shard) for shard in plain["shards"]),
            files={name: FileRecord(**record) for name, record in plain["files"].items()},
        )
        rows = sum(shard.rows for shard in manifest.shards)
        outside = [name for name in manifest.files if leaves(name)]
        outside += [shard.folder for shard in manifest.shards if leaves(shard.folder)]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise IndexFolderError(
            f"The manifest {folder / MANIFEST} is damaged: {error!r}.", REBUILD
        ) from error
    if rows != manifest.count or manifest.count < 1 or outside:
        fault = f"{outside[0]!r} lies outside" if outside else f"{rows} rows, not {manifest.count}"
        raise IndexFolderError(f"The manifest {folder / MANIFEST} is damaged: {fault}.", REBUILD)
    return manifest


def read_plain(folder: Path) -> dict[str, Any]:
    """The manifest as JSON. Raises IndexFolderError if it is none, or none of an index."""
    path = folder / MANIFEST
    try:
        plain = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        found = "has no manifest.json" if folder.is_dir() else "does not exist"
        if folder.is_file():
            found = "is a file"
        remedy = "Give the folder that `polyrank index` wrote."
        if work_folder(folder).is_dir():
            remedy = "It was being built and that was interrupted: build it again, which goes on."
        raise IndexFolderError(f"{folder} is no index: it {found}.", remedy) from None
    except OSError as error:
        raise IndexFolderError(
            f"{path} cannot be read: {error.strerror}.", "Check its permissions."
        ) from error
    except ValueError as error:
        raise IndexFolderError(
            f"The manifest {path} is damaged: it is not JSON ({error}).", REBUILD
        ) from error
    if not isinstance(plain, dict) or plain.get("format") != FORMAT:
        raise IndexFolderError(
            f"{folder} is no index: its manifest.json is of another program.",
            "Give the folder that `polyrank index` wrote.",
        )
    return plain


def work_folder(folder: Path) -> Path:
    """Where an index is built before it takes its place."""
    return folder.with_name(f".{folder.name}.building")


def leaves(name: str) -> bool:
    """Whether a name of the manifest points out of the index folder."""
    path = PurePosixPath(name)
    return path.is_absolute() or ".." in path.parts


def check_sizes(folder: Path, manifest: Manifest) -> None:
    """Raise IndexFolderError if a file of the index is missing or has another size."""
    for name, record in manifest.files.items():
        path = folder / name
        if not path.is_file():
            raise IndexFolderError(f"The file {path} of the index is missing.", REBUILD)
        size = path.stat().st_size
        if size != record.bytes:
            raise IndexFolderError(
                f"The file {path} of the index has {size} bytes instead of {record.bytes}.",
                REBUILD,
            )


def check_sums(folder: Path, manifest: Manifest) -> None:
    """Raise IndexFolderError if a file of the index is not, byte for byte, what was written."""
    check_sizes(folder, manifest)
    total = sum(record.bytes for record in manifest.files.values())
    with bar("Verifying bytes", total=total) as advance:
        for name, record in manifest.files.items():
            if sha256_of(folder / name) != record.sha256:
                raise IndexFolderError(
                    f"The file {folder / name} of the index is damaged: its checksum differs.",
                    REBUILD,
                )
            advance(record.bytes)
