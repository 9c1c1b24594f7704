"""Whether the files of an index folder are what its manifest says."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from polyrank.errors import IndexFolderError
from polyrank.progress import bar
from polyrank.retrieval.store.manifest import REBUILD, FileRecord
from polyrank.storage import sha256_of


def file_records(folder: Path, files: Iterable[Path]) -> dict[str, FileRecord]:
    """The size and checksum of files below `folder`, by their names in the manifest."""
    return {
        path.relative_to(folder).as_posix(): FileRecord(
            bytes=path.stat().st_size, sha256=sha256_of(path)
        )
        for path in sorted(files)
    }


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
    """Raise IndexFolderError if a file of the index is not, byte for byte, what was written."""
    check_sizes(folder, files)
    total = sum(record.bytes for record in files.values())
    with bar("Verifying bytes", total=total) as advance:
        for name, record in files.items():
            try:
                same = sha256_of(folder / name) == record.sha256
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
            advance(record.bytes)
