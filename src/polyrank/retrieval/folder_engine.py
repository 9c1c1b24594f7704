"""The engine of an index folder: shards on the local disk, read where they lie."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import cast

import numpy as np
from torch import Tensor

from polyrank.errors import IndexFolderError, StorageError, UsageError
from polyrank.records import Candidate, Hit
from polyrank.retrieval.engine import Encode
from polyrank.retrieval.filters import Filter
from polyrank.retrieval.results import Found, SearchReport
from polyrank.retrieval.search.scan import search_exact
from polyrank.retrieval.source import Candidates
from polyrank.retrieval.store.cache import CandidateCache
from polyrank.retrieval.store.changes import add, compact, delete, merge_small
from polyrank.retrieval.store.checksums import check_sums
from polyrank.retrieval.store.commit import Change, changing
from polyrank.retrieval.store.manifest import Manifest, read_manifest, require_same_maker
from polyrank.scoring.poly import Attention, poly_scores


class FolderEngine:
    """The candidates of an index folder.

    It shows the state that was committed when it was opened or last refreshed. Implements Engine.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._cache: CandidateCache | None = CandidateCache.open(folder)

    @property
    def cache(self) -> CandidateCache:
        """The state that is shown. Raises UsageError after `close`."""
        if self._cache is None:
            raise UsageError(f"The index {self.folder} is closed.", "Open it again.")
        return self._cache

    @property
    def manifest(self) -> Manifest:
        """The manifest of that state."""
        return self.cache.manifest

    @property
    def num_bytes(self) -> int:
        """The bytes of all files of that state."""
        return sum(record.bytes for record in self.manifest.files.values())

    def __len__(self) -> int:
        return len(self.cache)

    def __iter__(self) -> Iterator[Candidate]:
        return iter(self.cache)

    def get(self, identifier: str) -> Candidate | None:
        """The candidate with this id, if there is one."""
        cache = self.cache
        row = cache.row(identifier)
        return None if row is None else cache.candidate(row)

    def search(
        self, contexts: Tensor, top_k: int, *, exact: bool, where: Filter | None
    ) -> list[Found]:
        """The best `top_k` of the candidates that pass the filter, for each context (B, m, d).

        Every candidate is scored, so that the hits are certified with or without `exact`.
        """
        cache = self.cache
        allowed = None if where is None else cache.allowed(where)
        count = len(cache) if allowed is None else int(np.count_nonzero(allowed))
        score = partial(poly_scores, attention=cast("Attention", cache.manifest.model.attention))
        report = SearchReport(
            strategy="scan", num_candidates=count, num_scored=count, certified=True
        )
        if not count:
            return [Found([], report) for _ in contexts]
        ranked = search_exact(score, contexts, cache, min(top_k, count), allowed=allowed)
        return [
            Found([Hit(row.id, row.score, cache.candidate(row.row).text) for row in hits], report)
            for hits in ranked
        ]

    def add(self, candidates: Iterable[Candidate], encode: Encode, *, replace: bool) -> int:
        """Add candidates and return their number; all or, if anything fails, none.

        A `Candidates` can say in errors where each came from.
        """
        if not isinstance(candidates, Candidates):
            candidates = Candidates(candidates)
        with self._changing() as change:
            count = add(change, candidates, encode, replace=replace)
        # what was added is committed, whatever becomes of the merge
        with contextlib.suppress(StorageError, UsageError), self._changing() as change:
            merge_small(change)
        self.refresh()
        return count

    def delete(self, identifiers: Sequence[str]) -> int:
        """Delete candidates by id and return their number; all or none."""
        with self._changing() as change:
            count = delete(change, identifiers)
        self.refresh()
        return count

    def compact(self) -> None:
        """Write all shards again, full and without deleted candidates."""
        with self._changing() as change:
            compact(change)
        self.refresh()

    def refresh(self) -> bool:
        """See what has been committed since; whether there was anything.

        Raises IndexFolderError if the index was built again by another model.
        """
        old = self.manifest
        if read_manifest(self.folder).checksum == old.checksum:
            return False
        cache = CandidateCache.open(self.folder)
        require_same_maker(self.folder, cache.manifest, old.model.fingerprint)
        self._cache = cache
        return True

    def verify(self) -> None:
        """Compare every file of the committed state with its checksum.

        Raises IndexFolderError at the first difference.
        """
        while True:
            manifest = read_manifest(self.folder)
            try:
                check_sums(self.folder, manifest.files)
                CandidateCache(self.folder, manifest)
            except IndexFolderError:
                if read_manifest(self.folder).checksum == manifest.checksum:
                    raise
            else:
                return

    def close(self) -> None:
        """Let go of the files."""
        self._cache = None

    def _changing(self) -> AbstractContextManager[Change]:
        return changing(self.folder, self.manifest.model.fingerprint)
