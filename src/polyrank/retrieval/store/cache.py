"""The candidate cache: every candidate's id, text, metadata and vector, memory-mapped.

It shows one committed state of an index folder. The shards follow one another, so each candidate
has one row number; deleted rows count, too. Knows nothing of contexts and scores.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from itertools import accumulate
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from polyrank.errors import IndexFolderError
from polyrank.folder_files import require_own_files
from polyrank.records import Candidate, Value
from polyrank.retrieval.filters import Condition, Filter, evaluate, require_fields
from polyrank.retrieval.store.manifest import (
    REBUILD,
    Manifest,
    ShardRecord,
    Storage,
    check_sizes,
    check_sums,
    of_data,
    read_manifest,
)
from polyrank.retrieval.store.shard import Shard, read_deleted
from polyrank.retrieval.store.vectors import (
    DTYPES,
    STORAGES,
    StoredVectors,
    Vectors,
    has_scales,
    restored,
)
from polyrank.scoring.screen import ScreenRows

READ_ROWS = 1024


def opened_shard(
    folder: Path, record: ShardRecord, storage: Storage, dimension: int
) -> tuple[Shard, Vectors]:
    """A shard and its vectors, mapped."""
    shard = Shard(folder, record.rows, record.fields)
    return shard, Vectors(folder, storage, record.rows, dimension)


class CandidateCache:
    """The shards of an index folder, seen as one sequence of candidates."""

    def __init__(
        self, folder: Path, manifest: Manifest, earlier: CandidateCache | None = None
    ) -> None:
        """Map the files of a state; those that it shares with an `earlier` one stay mapped."""
        kept = {} if earlier is None else earlier.unchanged(manifest)
        check_sizes(folder, of_data(manifest.files))
        if manifest.storage not in STORAGES:
            raise IndexFolderError(
                f"The vectors of {folder} are {manifest.storage}; this polyrank reads "
                f"{', '.join(STORAGES)}.",
                "Build the index again, or install a newer polyrank.",
            )
        self.manifest = manifest
        storage, dimension = manifest.storage, manifest.dimension
        try:
            opened = [
                kept.get(s.folder) or opened_shard(folder / s.folder, s, storage, dimension)
                for s in manifest.shards
            ]
            self.shards = [shard for shard, _ in opened]
            self.vectors = [vectors for _, vectors in opened]
            deleted = [read_deleted(folder, record) for record in manifest.shards]
            bits = [record.deleted for record in manifest.shards if record.deleted is not None]
            check_sums(folder, {name: manifest.files[name] for name in bits})
        except (OSError, ValueError) as error:
            raise IndexFolderError(
                f"A shard of {folder} cannot be opened: {error}.", REBUILD
            ) from error
        self._starts = list(accumulate((s.rows for s in self.shards), initial=0))
        self.alive: NDArray[np.bool_] | None = None
        """Which rows are not deleted, (num_rows,); None if no row is deleted."""
        if len(self) < self.num_rows:
            self.alive = ~np.concatenate(deleted)

    @classmethod
    def open(cls, folder: Path, earlier: CandidateCache | None = None) -> CandidateCache:
        """The committed state, even while others are writing.

        If another commit comes between reading the manifest and opening its files, it opens them
        again. What is unchanged since an `earlier` state stays mapped. Raises IndexFolderError.
        """
        if earlier is None:
            require_own_files(folder, IndexFolderError)
        manifest = read_manifest(folder)
        while True:
            try:
                cache, fault = cls(folder, manifest, earlier), None
            except IndexFolderError as error:
                cache, fault = None, error
            again = read_manifest(folder)
            if again.checksum == manifest.checksum:
                if cache is None:
                    assert fault is not None
                    raise fault
                return cache
            manifest = again

    def unchanged(self, manifest: Manifest) -> dict[str, tuple[Shard, Vectors]]:
        """The shards that another state has too, by their folder, whatever it deletes in them."""
        kept = {}
        fields = {record.folder: record.fields for record in manifest.shards}
        for record, shard, vectors in zip(
            self.manifest.shards, self.shards, self.vectors, strict=True
        ):
            names = [f"{record.folder}/{path}" for path in (*shard.files, *vectors.files)]
            same = all(self.manifest.files[name] == manifest.files.get(name) for name in names)
            if same and record.fields == fields.get(record.folder):
                kept[record.folder] = shard, vectors
        return kept

    def __len__(self) -> int:
        return self.manifest.count

    @property
    def num_rows(self) -> int:
        """The number of rows, including deleted ones."""
        return self._starts[-1]

    def __iter__(self) -> Iterator[Candidate]:
        return self.candidates(0)

    def candidates(self, first_shard: int) -> Iterator[Candidate]:
        """The candidates from this shard on."""
        places = list(zip(self._starts, self.shards, strict=False))
        for first, shard in places[first_shard:]:
            for start in range(0, shard.rows, READ_ROWS):
                candidates = shard.between(start, min(start + READ_ROWS, shard.rows))
                for row, candidate in enumerate(candidates, start=first + start):
                    if self.alive is None or self.alive[row]:
                        yield candidate

    def candidate(self, row: int) -> Candidate:
        """The candidate in this row."""
        shard, inner = self.place(row)
        return self.shards[shard].candidate(inner)

    def id(self, row: int) -> str:
        """The id of the candidate in this row."""
        shard, inner = self.place(row)
        return self.shards[shard].ids[inner]

    def text(self, row: int) -> str:
        """The text of the candidate in this row."""
        shard, inner = self.place(row)
        return self.shards[shard].texts[inner]

    def metadata(self, row: int) -> Mapping[str, Value]:
        """The metadata of the candidate in this row."""
        shard, inner = self.place(row)
        return self.shards[shard].metadata[inner]

    def row(self, identifier: str) -> int | None:
        """The row of the candidate with this id, if there is one."""
        for first, shard in zip(self._starts, self.shards, strict=False):
            for inner in shard.rows_with_id(identifier):
                if self.alive is None or self.alive[first + inner]:
                    return first + inner
        return None

    def screened(
        self, rows: int, *, start: int = 0, sketches: bool
    ) -> Iterator[tuple[int, ScreenRows]]:
        """The rows from `start` in blocks of at most `rows`, each with the number of its first.

        As sketches or as stored, including deleted ones; mapped, not copied.
        """
        for first, vectors in zip(self._starts, self.vectors, strict=False):
            for begin in range(max(start - first, 0), len(vectors), rows):
                end = min(begin + rows, len(vectors))
                yield first + begin, vectors.screened(begin, end, sketches=sketches)

    def gather(self, rows: NDArray[np.int64]) -> Tensor:
        """The vectors of any rows, as float32: (n,) → (n, d)."""
        return restored(*self.stored(rows))

    def stored(self, rows: NDArray[np.int64]) -> StoredVectors:
        """The vectors of any rows, as stored: (n,) → (n, d)."""
        if len(self.vectors) == 1:
            return self.vectors[0].gather(rows)
        manifest = self.manifest
        vectors = torch.empty(len(rows), manifest.dimension, dtype=DTYPES[manifest.storage])
        scales = torch.empty(len(rows)) if has_scales(manifest.storage) else None
        owners = np.searchsorted(self._starts, rows, side="right") - 1
        for shard in np.unique(owners).tolist():
            places = np.flatnonzero(owners == shard)
            found = self.vectors[shard].gather(rows[places] - self._starts[shard])
            vectors[torch.from_numpy(places)] = found.vectors
            if scales is not None and found.scales is not None:
                scales[torch.from_numpy(places)] = found.scales
        return StoredVectors(vectors, scales)

    def allowed(self, filter: Filter) -> NDArray[np.bool_]:
        """Which rows pass a filter: (num_rows,); deleted ones do not.

        Raises UsageError for a field that the index does not have, or that has another kind.
        """
        require_fields(filter, self.manifest.fields)

        def leaf(condition: Condition) -> NDArray[np.bool_]:
            nothing = np.zeros(0, np.bool_)
            return np.concatenate([nothing, *(s.metadata.passing(condition) for s in self.shards)])

        passing = evaluate(filter, leaf)
        return passing if self.alive is None else passing & self.alive

    def live_rows(self, first_shard: int) -> NDArray[np.int64]:
        """The rows of `candidates`: (n,)."""
        first = self._starts[first_shard]
        if self.alive is None:
            return np.arange(first, self.num_rows)
        return np.flatnonzero(self.alive[first:]) + first

    def deleted(self, shard: int) -> NDArray[np.bool_]:
        """A copy of which rows of this shard are deleted: (rows,)."""
        first, last = self._starts[shard : shard + 2]
        return np.zeros(last - first, np.bool_) if self.alive is None else ~self.alive[first:last]

    def place(self, row: int) -> tuple[int, int]:
        """A row as (shard, row of the shard)."""
        if not 0 <= row < self.num_rows:
            raise IndexError(row)
        shard = bisect_right(self._starts, row) - 1
        return shard, row - self._starts[shard]
