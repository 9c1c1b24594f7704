"""The engine of an index folder: memory-mapped shards on the local disk."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import cast

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from polyrank.errors import IndexFolderError, StorageError, UsageError
from polyrank.records import Candidate, Hit
from polyrank.retrieval.engine import Encode, Found, SearchReport, Strategy
from polyrank.retrieval.filters import Filter
from polyrank.retrieval.search.approximate import search_approximate
from polyrank.retrieval.search.exact import search_exact
from polyrank.retrieval.search.graph import GraphKind
from polyrank.retrieval.search.structure import (
    FEWEST_ROWS,
    SampleContexts,
    Structure,
    read_structure,
    tuning_contexts,
    write_structure,
)
from polyrank.retrieval.source import Candidates
from polyrank.retrieval.store.cache import CandidateCache
from polyrank.retrieval.store.changes import add, compact, delete, merge_small, restructure
from polyrank.retrieval.store.commit import Change, changing
from polyrank.retrieval.store.manifest import (
    Manifest,
    check_sums,
    read_manifest,
    require_same_maker,
)
from polyrank.scoring.poly import Attention
from polyrank.scoring.topk import Ranked

SELECTIVE = 0.1
"""If fewer than this share of the rows pass a filter, a graph is mostly dead ends."""


class FolderEngine:
    """The candidates of an index folder.

    It shows the state that was committed when it was opened or last refreshed. Implements Engine.
    """

    def __init__(
        self,
        folder: Path,
        sample: SampleContexts | None = None,
        *,
        cache: CandidateCache | None = None,
    ) -> None:
        """`sample` gives contexts to tune a search structure with if none are stored.

        `cache` is the state to show, by default the committed one.
        """
        self.folder = folder
        self._sample = sample
        self._cache: CandidateCache | None = cache or CandidateCache.open(folder)
        self._structure: Structure | None = None

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
        self, contexts: Tensor, top_k: int, *, exact: bool, filter: Filter | None
    ) -> list[Found]:
        """The best `top_k` of the candidates that pass the filter, for each context (B, m, d).

        Certified if asked for, and always if the index has no search structure.
        """
        structure = None if exact else self.structure  # an exact search asks no graph
        cache = self.cache
        allowed = cache.alive if filter is None else cache.allowed(filter)
        count = len(cache) if filter is None or allowed is None else int(np.count_nonzero(allowed))
        if not count:
            report = SearchReport(strategy="scan", num_candidates=0, num_scored=0, certified=True)
            return [Found([], report) for _ in contexts]
        ranked, strategy = ranked_rows(
            contexts, cache, structure, min(top_k, count), allowed=allowed
        )
        return [found(cache, each, strategy, count) for each in ranked]

    @property
    def structure(self) -> Structure | None:
        """The search structure, read when it is first asked for."""
        if self._structure is None:
            try:
                self._structure = read_structure(self.folder, self.manifest)
            except IndexFolderError:
                if not self.refresh():
                    raise
                return self.structure  # another process has built it anew
        return self._structure

    def add(self, candidates: Iterable[Candidate], encode: Encode, *, replace: bool) -> int:
        """Add candidates and return their number. If anything fails, none is added.

        Errors name the line of a candidate if `Candidates` knows its file.
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
        """Delete candidates by id and return their number. If anything fails, none is deleted."""
        with self._changing() as change:
            count = delete(change, identifiers)
        self.refresh()
        return count

    def compact(self) -> None:
        """Write all shards again, full and without deleted candidates."""
        contexts = tuning_contexts(self.folder, self.manifest)
        with self._changing() as change:
            compact(change)
        self.refresh()
        search = self.manifest.search
        if search is not None and not search["rows"]:
            sample = self._sample if contexts is None else lambda _: contexts
            if sample is not None:
                model = self.manifest.model.fingerprint
                give_structure(self.folder, model, search["kind"], search["target"], sample)
                self.refresh()

    def refresh(self) -> bool:
        """Show what has been committed since; return whether anything changed.

        Raises IndexFolderError if the index was built again by another model.
        """
        old = self.manifest
        if read_manifest(self.folder).checksum == old.checksum:
            return False
        cache = CandidateCache.open(self.folder)
        require_same_maker(self.folder, cache.manifest, old.model.fingerprint)
        self._cache = cache
        self._structure = None
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
        """Close the files."""
        self._cache = None
        self._structure = None

    def _changing(self) -> AbstractContextManager[Change]:
        return changing(self.folder, self.manifest.model.fingerprint)


def ranked_rows(
    contexts: Tensor,
    cache: CandidateCache,
    structure: Structure | None,
    top_k: int,
    *,
    allowed: NDArray[np.bool_] | None,
) -> tuple[list[Ranked], Strategy]:
    """The best `top_k` of the `allowed` rows for each context (B, m, d), and how they were found.

    At least `top_k` rows are allowed. The search is approximate if there is a `structure` and it
    pays, and exact otherwise.
    """
    attention = cast("Attention", cache.manifest.model.attention)
    selective = allowed is not None and allowed.mean() < SELECTIVE
    if structure is not None and not selective:
        graph, effort = structure
        ranked = search_approximate(contexts, attention, cache, graph, effort, top_k, allowed)
        if all(len(each.rows) == top_k for each in ranked):
            return ranked, "approximate"
    return search_exact(contexts, attention, cache, top_k, allowed=allowed)


def found(cache: CandidateCache, ranked: Ranked, strategy: Strategy, count: int) -> Found:
    """The hits of one context, with ids and texts."""
    hits = []
    for row, score in zip(ranked.rows, ranked.scores, strict=True):
        hits.append(Hit(cache.id(row), score, cache.text(row)))
    report = SearchReport(
        strategy=strategy,
        num_candidates=count,
        num_scored=ranked.num_scored,
        certified=strategy != "approximate",
    )
    return Found(hits, report)


def give_structure(
    folder: Path, fingerprint: str, kind: GraphKind, target: float, sample: SampleContexts
) -> None:
    """Build a search structure over an index folder, tuned for a recall, as one commit.

    An index with few candidates only records that it wants one.
    """
    with changing(folder, fingerprint) as change:
        cache = CandidateCache(folder, change.manifest)
        if cache.num_rows < FEWEST_ROWS:
            wanted = {"kind": kind, "target": target, "rows": 0}
            change.commit(change.manifest.shards, [], change.manifest.fields, search=wanted)
            return
        contexts = sample(cache)
        restructure(change, lambda into: write_structure(into, cache, kind, contexts, target))
