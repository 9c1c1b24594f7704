"""One change of an index folder, visible at once or not at all.

    hold the lock → write new files beside the old → flush them → replace the manifest → flush it

Files of shards never change once a manifest names them, so a reader of the old state keeps reading
it. Files that no manifest names, of a change that failed or of an old state, are removed by the
next change. Knows nothing of candidates.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from polyrank.errors import IndexFolderError
from polyrank.folder_files import FileRecord, require_own_files
from polyrank.retrieval.store.manifest import (
    LOCK,
    SEARCH,
    SHARDS,
    Manifest,
    ShardRecord,
    new_records,
    read_manifest,
    require_same_maker,
    write_manifest,
)
from polyrank.retrieval.store.shard import DELETED
from polyrank.storage import exclusive, storage_errors, synchronise, synchronise_folder


class Change:
    """A change of an index folder in progress; `commit` makes it visible, once."""

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        self.folder = folder
        self.manifest = manifest

    @property
    def generation(self) -> int:
        """The number of the state that this change makes."""
        return self.manifest.generation + 1

    @property
    def next_shard(self) -> int:
        """The first number that no shard has."""
        names = [PurePosixPath(shard.folder).name for shard in self.manifest.shards]
        return max((int(name) for name in names), default=-1) + 1

    def commit(
        self,
        shards: Sequence[ShardRecord],
        new: Sequence[Path],
        fields: Mapping[str, str],
        *,
        search: Mapping[str, Any] | None,
    ) -> Manifest:
        """Make `shards` the index; `new` are the files that were written for it.

        `search` describes the search structure, whose files lie in its "folder".
        Raises StorageError; the old state then remains.
        """
        with storage_errors(self.folder):
            for file in new:
                synchronise(file)
            for folder in sorted({folder for file in new for folder in self.above(file)}):
                synchronise_folder(folder)
            records = new_records(self.folder, new)
        old = self.manifest
        kept = {name: record for name, record in old.files.items() if belongs(name, shards, search)}
        return write_manifest(
            self.folder,
            dataclasses.replace(
                old,
                generation=self.generation,
                count=sum(shard.live for shard in shards),
                fields=dict(sorted(fields.items())),
                shards=tuple(shards),
                files=dict(sorted({**kept, **records}.items())),
                search=search,
            ),
        )

    def above(self, file: Path) -> list[Path]:
        """The folders from a file up to the index folder."""
        return [parent for parent in file.parents if parent.is_relative_to(self.folder)]


def belongs(name: str, shards: Sequence[ShardRecord], search: Mapping[str, Any] | None) -> bool:
    """Whether a file of the old state also belongs to the new one."""
    path = PurePosixPath(name)
    if path.parts[0] == SEARCH:
        own = (search or {}).get("folder")
        return own is not None and PurePosixPath(own) in path.parents
    if path.parts[0] != SHARDS:
        return True
    owner = next((shard for shard in shards if shard.folder == path.parent.as_posix()), None)
    return owner is not None and (not path.name.startswith(DELETED) or owner.deleted == name)


@contextlib.contextmanager
def changing(folder: Path, fingerprint: str) -> Iterator[Change]:
    """Hold the index folder exclusively for a change.

    Raises UsageError while another process holds it, and IndexFolderError if the index is not, or
    no longer, from the model with this fingerprint.
    """
    read_manifest(folder)
    problem = f"The index {folder} is being changed by another process."
    with exclusive(folder / LOCK, problem, "Wait for it; searches still work."):
        require_own_files(folder, IndexFolderError)
        manifest = read_manifest(folder)
        require_same_maker(folder, manifest, fingerprint)
        remove_unnamed(folder, manifest.files)
        try:
            yield Change(folder, manifest)
        finally:
            with contextlib.suppress(IndexFolderError):
                remove_unnamed(folder, read_manifest(folder).files)


def remove_unnamed(folder: Path, files: Mapping[str, FileRecord]) -> None:
    """Remove shards and search structures, or files of them, that no manifest names.

    What cannot be removed stays for the next change.
    """
    named = {os.path.join(folder, name) for name in files}
    needed = set[str]()
    for name in files:
        while name := os.path.dirname(name):
            needed.add(os.path.join(folder, name))
    for part in (SHARDS, SEARCH):
        for parent, folders, names in os.walk(folder / part):
            for name in names:
                path = os.path.join(parent, name)
                if path not in named:
                    with contextlib.suppress(OSError):
                        os.unlink(path)
            for name in list(folders):
                path = os.path.join(parent, name)
                if path not in needed:
                    folders.remove(name)
                    if os.path.islink(path):
                        os.unlink(path)
                    else:
                        shutil.rmtree(path, ignore_errors=True)
