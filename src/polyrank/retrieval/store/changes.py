"""The changes of an index folder: add (and replace), delete, compact, another search structure.

Each change is one commit. Adding writes new shards, deleting writes a new file of bits for each
shard it touches, and compacting rewrites live rows.
"""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polyrank.errors import DataError
from polyrank.progress import Task, bar
from polyrank.retrieval.engine import Encode
from polyrank.retrieval.source import Candidates
from polyrank.retrieval.store.cache import CandidateCache
from polyrank.retrieval.store.commit import Change
from polyrank.retrieval.store.manifest import (
    SEARCH,
    Manifest,
    ShardRecord,
    check_sums,
    of_shards,
    unbuilt,
)
from polyrank.retrieval.store.metadata import FieldKinds
from polyrank.retrieval.store.shard import (
    Shard,
    common_ids,
    deleted_name,
    require_unique_ids,
    write_deleted,
)
from polyrank.retrieval.store.vectors import StoredVectors, vector_files, vector_writer
from polyrank.retrieval.store.writing import (
    ENCODING,
    UNIT,
    encode_rows,
    require_space,
    shard_record,
    write_texts,
)
from polyrank.storage import storage_errors

SMALL_SHARDS = 8
"""This many small shards are merged into one."""

Deleted = dict[int, NDArray[np.bool_]]
"""For each shard by its number in the manifest, which rows are deleted: (rows,)."""


def add(
    change: Change,
    candidates: Candidates,
    encode: Encode,
    *,
    replace: bool,
    earlier: CandidateCache | None = None,
) -> int:
    """Add candidates and return their number.

    What is mapped of an `earlier` state is not mapped again. Raises DataError for ids given twice,
    or already in the index without `replace`.
    """
    manifest = change.manifest
    cache = CandidateCache(change.folder, manifest, earlier)
    kinds = FieldKinds(manifest.fields, candidates.blame)
    first = change.next_shard
    shards = write_texts(candidates, change.folder, manifest.layout, kinds, first=first)
    if not shards:
        return 0
    require_unique_ids(shards, candidates)
    deleted = replaced_rows(cache, shards, candidates, replace=replace)
    total = sum(shard.rows for shard in shards)
    require_space(change.folder, total, manifest.storage, manifest.dimension)
    with bar(ENCODING, total=total, unit=UNIT) as task:
        for shard in shards:
            blocks = encoded_blocks(shard, manifest, encode, task)
            write_vectors(shard, manifest, blocks, task)
    records, new = write_deleted_rows(change, cache, deleted)
    records += [shard_record(change.folder, shard) for shard in shards]
    new += [shard.folder / name for shard in shards for name in files_of(shard, manifest)]
    change.commit(records, new, kinds.known, search=manifest.search)
    return total


def replaced_rows(
    cache: CandidateCache, shards: Sequence[Shard], candidates: Candidates, *, replace: bool
) -> Deleted:
    """The live rows whose ids are given again. Without `replace`, DataError for the first."""
    deleted: Deleted = {}
    for shard in shards:
        given_again = []
        for number, old in enumerate(cache.shards):
            gone = cache.deleted(number)
            for row, new_row in common_ids(old, shard):
                if not gone[row]:
                    mark(deleted, cache, number, row)
                    given_again.append(new_row)
        if given_again and not replace:
            identifier = shard.ids[min(given_again)]
            raise candidates.blame(
                identifier,
                f"The id {identifier!r} is in the index already.",
                "Give the candidate another id, or replace the one in the index (--replace).",
            )
    return deleted


def mark(deleted: Deleted, cache: CandidateCache, number: int, row: int) -> None:
    """Also delete a row of this shard."""
    if number not in deleted:
        deleted[number] = cache.deleted(number)
    deleted[number][row] = True


def delete(
    change: Change, identifiers: Sequence[str], earlier: CandidateCache | None = None
) -> int:
    """Delete candidates by id. Raises DataError for an unknown id, or one given twice."""
    cache = CandidateCache(change.folder, change.manifest, earlier)
    deleted: Deleted = {}
    seen: set[str] = set()
    for identifier in identifiers:
        row = cache.row(identifier)
        if identifier in seen or row is None:
            raise DataError(
                f"The id {identifier!r} is given twice."
                if identifier in seen
                else f"There is no candidate with the id {identifier!r} in the index.",
                "Nothing was deleted; leave the id out.",
            )
        seen.add(identifier)
        mark(deleted, cache, *cache.place(row))
    if not deleted:
        return 0
    records, new = write_deleted_rows(change, cache, deleted)
    change.commit(records, new, change.manifest.fields, search=change.manifest.search)
    return len(seen)


def write_deleted_rows(
    change: Change, cache: CandidateCache, deleted: Deleted
) -> tuple[list[ShardRecord], list[Path]]:
    """The records of the old shards with more rows deleted, and the files that mark them."""
    records, new = list(change.manifest.shards), []
    for number, rows in deleted.items():
        record = records[number]
        name = f"{record.folder}/{deleted_name(change.generation)}"
        with storage_errors(change.folder):
            write_deleted(change.folder / name, rows)
        new.append(change.folder / name)
        live = record.rows - int(np.count_nonzero(rows))
        records[number] = dataclasses.replace(record, live=live, deleted=name)
    return records, new


def compact(change: Change) -> bool:
    """Rewrite all live rows in full shards; return whether there was anything to do."""
    manifest = change.manifest
    full = all(shard.rows == manifest.layout.shard_rows for shard in manifest.shards[:-1])
    if full and all(shard.live == shard.rows for shard in manifest.shards):
        return False
    rewrite(change, 0, search=unbuilt(manifest.search))
    return True


def first_small(manifest: Manifest) -> int | None:
    """The shard from which on `merge_small` merges; None if it does not pay.

    A shard is included if it is no larger than all behind it together, so a row is rewritten about
    log₂ N times. Rows that a search structure covers stay.
    """
    covered = int((manifest.search or {}).get("rows", 0))
    start = sum(shard.rows for shard in manifest.shards)
    first = len(manifest.shards)
    total = 0
    for number in range(first - 1, -1, -1):
        shard = manifest.shards[number]
        start -= shard.rows
        small = shard.live <= max(total, 1) and shard.rows < manifest.layout.shard_rows
        if start < covered or not small:
            break
        first, total = number, total + shard.live
    return first if len(manifest.shards) - first >= SMALL_SHARDS else None


def merge_small(change: Change) -> bool:
    """Merge the last shards if many are small; return whether any were merged."""
    first = first_small(change.manifest)
    if first is None:
        return False
    rewrite(change, first, search=change.manifest.search)
    return True


def rewrite(change: Change, first: int, *, search: Mapping[str, Any] | None) -> None:
    """Rewrite the live rows of the shards from `first` on, in full shards.

    Copies get new checksums, so the old ones are compared first.
    """
    manifest = change.manifest
    check_sums(change.folder, of_shards(manifest, manifest.shards[first:]))
    cache = CandidateCache(change.folder, manifest)
    rows = cache.live_rows(first)
    require_space(change.folder, len(rows), manifest.storage, manifest.dimension)
    copied = Candidates(cache.candidates(first))
    kinds = FieldKinds({} if first == 0 else manifest.fields, copied.blame)
    shards = write_texts(copied, change.folder, manifest.layout, kinds, first=change.next_shard)
    most = manifest.layout.shard_rows
    with bar("Copying candidates", total=len(rows), unit=UNIT) as task:
        for number, shard in enumerate(shards):
            mine = rows[number * most : number * most + shard.rows]
            write_vectors(shard, manifest, stored_blocks(cache, mine), task)
    new = [shard.folder / name for shard in shards for name in files_of(shard, manifest)]
    records = [shard_record(change.folder, shard) for shard in shards]
    change.commit([*manifest.shards[:first], *records], new, kinds.known, search=search)


def restructure(change: Change, write: Callable[[Path], Mapping[str, Any]]) -> None:
    """Give the index another search structure.

    `write` puts its files into a folder and describes it. The description's "rows" is how many rows
    it covers, from the first on; "folder", where the files are, is added.
    """
    name = f"{SEARCH}/{change.generation:05d}"
    folder = change.folder / name
    with storage_errors(change.folder):
        shutil.rmtree(folder, ignore_errors=True)  # what a killed process has left
        folder.mkdir(parents=True)
    search = {**write(folder), "folder": name}
    new = [path for path in folder.rglob("*") if path.is_file()]
    manifest = change.manifest
    change.commit(manifest.shards, new, manifest.fields, search=search)


def encoded_blocks(
    shard: Shard, manifest: Manifest, encode: Encode, task: Task
) -> Iterator[StoredVectors]:
    """The vectors of a shard's texts, block by block; `task` counts them as they are encoded."""
    for start in range(0, shard.rows, manifest.layout.block_rows):
        stop = min(start + manifest.layout.block_rows, shard.rows)
        with task.folding():
            rows = encode_rows(encode, shard, start, stop, manifest.storage, manifest.dimension)
        yield rows


def stored_blocks(cache: CandidateCache, rows: NDArray[np.int64]) -> Iterator[StoredVectors]:
    """The vectors of rows of the index, block by block."""
    size = cache.manifest.layout.block_rows
    for start in range(0, len(rows), size):
        yield cache.stored(rows[start : start + size])


def write_vectors(
    shard: Shard,
    manifest: Manifest,
    blocks: Iterable[StoredVectors],
    task: Task,
) -> None:
    """Write the vectors of a shard, block after block."""
    before = task.done
    storage, dimension = manifest.storage, manifest.dimension
    with vector_writer(shard.folder, storage, dimension, shard.rows) as writer:
        start = 0
        for block in blocks:
            writer.write(start, block.file_bytes())
            start += len(block.vectors)
            task.reach(before + start)


def files_of(shard: Shard, manifest: Manifest) -> list[str]:
    """The names of a new shard's files."""
    return [*shard.files, *vector_files(manifest.storage)]
