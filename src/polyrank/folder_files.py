"""Reads the files of a folder that anybody may have made: JSON, names, kinds, sizes, checksums.

Knows nothing of what the files mean.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PureWindowsPath
from typing import Any

from polyrank.errors import InputError
from polyrank.json_text import parse_json

FOLLOW_LINKS = "POLYRANK_FOLLOW_LINKS"
"""The variable that, set to 1, lets links of a folder lead outside of it."""
SPECIAL = "is a device or a pipe"


def read_json(path: Path) -> Any:
    """The value in a file of JSON.

    Raises OSError if there is no such file or it is a device or a pipe, which might never end;
    ValueError if it is not JSON.
    """
    if is_special(path.stat().st_mode):
        raise OSError(errno.EINVAL, f"it {SPECIAL}")
    return parse_json(path.read_text(encoding="utf-8"))


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object in a file; an empty one where none can be read."""
    try:
        found = read_json(path)
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def leaves(name: str) -> bool:
    """Whether a name that a folder gives for one of its files points outside of it, anywhere."""
    path = PureWindowsPath(name)  # it knows both separators
    return bool(path.anchor) or ".." in path.parts


def is_utf8(path: str | Path) -> bool:
    """Whether a path is UTF-8, as safetensors and Arrow require."""
    try:
        str(path).encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def is_special(mode: int) -> bool:
    """Whether the mode of a file is that of a device or a pipe, whose reading might never end."""
    return stat.S_ISFIFO(mode) or stat.S_ISCHR(mode) or stat.S_ISBLK(mode)


def require_own_files(folder: Path, kind: type[InputError]) -> None:
    """Raise an error of this kind for a folder with an entry, at any depth, that is not its own.

    That is a device or a pipe, or a link that leads out of the folder. Links into the blobs of the
    hub's cache may stay, and with POLYRANK_FOLLOW_LINKS=1 all links to files.
    """
    homes = [os.path.realpath(folder), *blobs_of(folder)]
    follows = os.environ.get(FOLLOW_LINKS) == "1"
    for entry in entries_of(homes[0]):
        try:
            mode = os.lstat(entry).st_mode
            if stat.S_ISLNK(mode):
                target = os.path.realpath(entry)
                mode = os.stat(entry).st_mode
                if not follows and not any(is_below(target, home) for home in homes):
                    raise kind(
                        f"{entry} is a link to {target}, outside of the folder.",
                        "If you trust it, put the file itself in its place, or set "
                        f"{FOLLOW_LINKS}=1.",
                    )
        except OSError:  # removed meanwhile, or a link that leads nowhere
            continue
        if is_special(mode):
            raise kind(f"{entry} {SPECIAL}, not a file.", "Remove it, if you trust the rest.")


def entries_of(folder: str) -> Iterator[str]:
    """The paths of all files, folders and links below a folder; links are not followed."""
    for parent, folders, files in os.walk(folder):
        for name in sorted([*folders, *files]):
            yield os.path.join(parent, name)


def blobs_of(folder: Path) -> list[str]:
    """Where the hub's cache keeps the files of a model whose snapshot this folder is, or is in."""
    real = Path(os.path.realpath(folder))
    snapshots = [each for each in (real, *real.parents) if each.name == "snapshots"]
    return [str(each.parent / "blobs") for each in snapshots[:1]]


def is_below(path: str, folder: str) -> bool:
    """Whether a path is a folder's or one in it; both are absolute and without links."""
    return path == folder or path.startswith(folder.rstrip(os.sep) + os.sep)


def sha256_of(path: Path, advance: Callable[[int], None] = lambda _: None) -> str:
    """The SHA-256 of a file, in hexadecimal; `advance` is told how many bytes were read."""
    digest = hashlib.sha256()
    with open(path, "rb") as handle:
        while block := handle.read(1 << 20):
            digest.update(block)
            advance(len(block))
    return digest.hexdigest()


@dataclass(frozen=True, kw_only=True, slots=True)
class FileRecord:
    """What a file must have: its size in bytes and its SHA-256."""

    bytes: int
    sha256: str


def file_records(
    folder: Path, files: Iterable[Path], advance: Callable[[int], None] = lambda _: None
) -> dict[str, FileRecord]:
    """The size and checksum of files below `folder`, by their names there."""
    return {
        path.relative_to(folder).as_posix(): FileRecord(
            bytes=path.stat().st_size, sha256=sha256_of(path, advance)
        )
        for path in sorted(files)
    }


def checksums_of(
    folder: Path, *, without: str, advance: Callable[[int], None] = lambda _: None
) -> dict[str, str]:
    """The SHA-256 of each file below a folder, by its name there, except for that of `without`."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    named = {file.relative_to(folder).as_posix(): file for file in files}
    return {name: sha256_of(file, advance) for name, file in named.items() if name != without}
