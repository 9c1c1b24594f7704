"""The manifest of an index folder: its contents, the model that made it, and every checksum.

A manifest is one state of the index; replacing it is a commit. Knows names, sizes and checksums of
files; knows nothing of what the files hold.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from polyrank._version import __version__
from polyrank.errors import IndexFolderError, UsageError
from polyrank.folder_files import FileRecord, file_records, leaves, read_json, sha256_of
from polyrank.jobs import Job
from polyrank.progress import bar
from polyrank.storage import replace_file, storage_errors

MANIFEST = "manifest.json"
LOCK = "lock"
MODEL_FOLDER = "model"
SHARDS = "shards"
SEARCH = "search"
FORMAT = "polyrank-index"
VERSION = 3
Storage = Literal["float32", "bfloat16", "float16", "int8"]
REBUILD = "Build the index again, or restore the folder from a copy."


@dataclass(frozen=True, kw_only=True, slots=True)
class ShardLayout:
    """How candidates are cut: `shard_rows` per shard, `block_rows` encoded at once."""

    shard_rows: int = 1 << 18
    block_rows: int = 1 << 13

    def __post_init__(self) -> None:
        if self.block_rows < 1 or self.shard_rows < 1 or self.shard_rows % self.block_rows:
            raise UsageError(
                f"shard_rows must be a multiple of block_rows, got {self.shard_rows} and "
                f"{self.block_rows}.",
                "Leave them out, or choose powers of two.",
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class ShardRecord:
    """A shard: its folder below the index, its rows, and how many of them are not deleted.

    `fields` are its metadata columns and their kinds; `deleted` is the file that marks deleted
    rows, if there are any.
    """

    folder: str
    rows: int
    live: int
    fields: Mapping[str, str] = field(default_factory=dict)
    deleted: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelRecord:
    """The model that made the vectors, and where it is.

    `num_vectors` and `attention` are of its contexts. `folder` is relative to the index folder;
    `absolute` is set only if the index keeps no copy of its model.
    """

    fingerprint: str
    architecture: str
    num_vectors: int
    attention: str
    folder: str
    absolute: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Manifest:
    """All that is known of an index without opening its shards.

    `generation` counts commits. `fields` gives each metadata field its kind over all shards.
    `search` describes the search structure, whose files are in its "folder": its "kind", the
    "target" of its recall, and "rows", how many rows it covers from the first on, 0 until it is
    built.
    `checksum` is the manifest's own, and the name of this state of the index.
    """

    generation: int
    model: ModelRecord
    count: int
    dimension: int
    storage: Storage
    layout: ShardLayout
    fields: Mapping[str, str]
    shards: tuple[ShardRecord, ...]
    files: Mapping[str, FileRecord]
    search: Mapping[str, Any] | None = None
    checksum: str = ""


def unbuilt(search: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """The description of a search structure that has to be rebuilt."""
    if search is None:
        return None
    return {"kind": search["kind"], "target": search["target"], "rows": 0}


def write_manifest(folder: Path, manifest: Manifest) -> Manifest:
    """Replace the manifest atomically by this one, with its checksum.

    The same bytes for the same contents. Raises StorageError.
    """
    plain = {"format": FORMAT, "version": VERSION, "polyrank": __version__}
    plain |= dataclasses.asdict(manifest)
    checksum = checksum_of(plain)
    path = folder / MANIFEST
    with storage_errors(folder):
        text = json.dumps(plain | {"checksum": checksum}, indent=1, ensure_ascii=False) + "\n"
        replace_file(path, text, path.with_name(f".{MANIFEST}.new"))
    return dataclasses.replace(manifest, checksum=checksum)


def checksum_of(plain: Mapping[str, Any]) -> str:
    """The SHA-256 of a manifest without its checksum."""
    rest = {name: value for name, value in plain.items() if name != "checksum"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


def read_manifest(folder: Path) -> Manifest:
    """Read the manifest. Raises IndexFolderError for anything but an index of this version."""
    plain = read_plain(folder)
    require_version(folder, plain)
    try:
        if plain["checksum"] != checksum_of(plain):
            raise ValueError("its checksum differs")
        manifest = from_plain(plain)
        named = [*manifest.files, *(shard.folder for shard in manifest.shards)]
        named.append((manifest.search or {}).get("folder", ""))
        outside = [name for name in named if leaves(name)]
        live = sum(shard.live for shard in manifest.shards)
    except (KeyError, TypeError, ValueError, AttributeError, UsageError) as error:
        raise IndexFolderError(
            f"The manifest {folder / MANIFEST} is damaged: {error}.", REBUILD
        ) from error
    if live != manifest.count or outside:
        fault = f"{outside[0]!r} lies outside" if outside else f"{live} rows, not {manifest.count}"
        raise IndexFolderError(f"The manifest {folder / MANIFEST} is damaged: {fault}.", REBUILD)
    return manifest


def from_plain(plain: Mapping[str, Any]) -> Manifest:
    """The manifest from its JSON."""
    return Manifest(
        generation=int(plain["generation"]),
        model=ModelRecord(**plain["model"]),
        count=int(plain["count"]),
        dimension=int(plain["dimension"]),
        storage=plain["storage"],
        layout=ShardLayout(**plain["layout"]),
        fields=dict(plain["fields"]),
        shards=tuple(shard_from_plain(shard) for shard in plain["shards"]),
        files={name: FileRecord(**record) for name, record in plain["files"].items()},
        search=plain["search"],
        checksum=plain["checksum"],
    )


def shard_from_plain(plain: Mapping[str, Any]) -> ShardRecord:
    """A shard's record from its JSON."""
    return ShardRecord(**plain)


def require_version(folder: Path, plain: Mapping[str, Any]) -> None:
    """Raise IndexFolderError for a manifest of another version of the format."""
    version = plain.get("version")
    if version == VERSION:
        return
    writer = plain.get("polyrank")
    newer = isinstance(version, int) and version > VERSION
    raise IndexFolderError(
        f"{folder} is an index of format version {version!r}; this polyrank, {__version__}, reads "
        f"{VERSION}.",
        f"It was written by polyrank {writer}: install that version or a newer one."
        if newer
        else f"It was written by polyrank {writer}: install that, or build the index again.",
    )


def require_same_maker(folder: Path, manifest: Manifest, fingerprint: str) -> None:
    """Raise IndexFolderError if an index has been built by another model since it was opened."""
    if manifest.model.fingerprint != fingerprint:
        raise IndexFolderError(
            f"The index {folder} was built again by another model since it was opened.",
            "Open it again.",
        )


def read_plain(folder: Path) -> dict[str, Any]:
    """The manifest as JSON. Raises IndexFolderError for anything but the manifest of an index."""
    path = folder / MANIFEST
    try:
        plain = read_json(path)
    except (FileNotFoundError, NotADirectoryError):
        found = "has no manifest.json" if folder.is_dir() else "does not exist"
        if folder.is_file():
            found = "is a file"
        remedy = "Give the folder that `polyrank index build` wrote."
        if build_job(folder, {}).work.is_dir():
            remedy = "Its build was interrupted: run the same command again to resume."
        raise IndexFolderError(f"{folder} is not an index: it {found}.", remedy) from None
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
            f"{folder} is not an index: its manifest.json is of another program.",
            "Give the folder that `polyrank index build` wrote.",
        )
    return plain


def build_job(folder: Path, identity: Mapping[str, Any]) -> Job:
    """The job that makes the index at `folder`."""
    return Job(output=folder, doing="building", noun="build", identity=identity)


def of_model(files: Mapping[str, FileRecord]) -> dict[str, FileRecord]:
    """The files of the copy of the model."""
    return {n: record for n, record in files.items() if n.startswith(f"{MODEL_FOLDER}/")}


def of_data(files: Mapping[str, FileRecord]) -> dict[str, FileRecord]:
    """The files that are searched: all except the model's."""
    return {n: record for n, record in files.items() if not n.startswith(f"{MODEL_FOLDER}/")}


def of_shards(manifest: Manifest, shards: Sequence[ShardRecord]) -> dict[str, FileRecord]:
    """The files of some shards."""
    folders = {shard.folder for shard in shards}
    files = manifest.files.items()
    return {n: record for n, record in files if PurePosixPath(n).parent.as_posix() in folders}


def damaged(path: Path, problem: str) -> IndexFolderError:
    """The error for a file with wrong contents."""
    return IndexFolderError(f"{path} is damaged: {problem}.", REBUILD)


def new_records(folder: Path, files: Iterable[Path]) -> dict[str, FileRecord]:
    """The size and checksum of new files below `folder`, by their names in the manifest."""
    new = list(files)
    total = sum(path.stat().st_size for path in new)
    with bar("Computing checksums", total=total, unit="bytes") as advance:
        return file_records(folder, new, advance)


def check_sizes(folder: Path, files: Mapping[str, FileRecord]) -> None:
    """Raise IndexFolderError if a file of the index is missing or has another size."""
    for name, record in files.items():
        path = folder / name
        try:
            size = path.stat().st_size
        except OSError:
            raise IndexFolderError(f"The file {path} of the index is missing.", REBUILD) from None
        if size != record.bytes:
            raise IndexFolderError(
                f"The file {path} of the index has {size} bytes instead of {record.bytes}.",
                REBUILD,
            )


def check_sums(folder: Path, files: Mapping[str, FileRecord]) -> None:
    """Raise IndexFolderError if a file of the index is not byte for byte what was written."""
    check_sizes(folder, files)
    total = sum(record.bytes for record in files.values())
    with bar("Verifying the index", total=total, unit="bytes") as advance:
        for name, record in files.items():
            try:
                same = sha256_of(folder / name, advance) == record.sha256
            except OSError as error:
                raise IndexFolderError(
                    f"The file {folder / name} of the index cannot be read: {error.strerror}.",
                    REBUILD,
                ) from error
            if not same:
                raise IndexFolderError(
                    f"The file {folder / name} of the index is damaged: its checksum differs.",
                    REBUILD,
                )
