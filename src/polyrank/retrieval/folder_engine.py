"""The engine of an index folder: memory-mapped shards on the local disk."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, cast

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
from polyrank.retrieval.store.changes import (
    add,
    compact,
    delete,
    first_small,
    merge_small,
    restructure,
)
from polyrank.retrieval.store.commit import Change, changing
from polyrank.retrieval.store.manifest import (
    MANIFEST,
    SEARCH,
    Manifest,
    check_sums,
    read_manifest,
    require_same_maker,
)
from polyrank.scoring.poly import Attention
from polyrank.scoring.topk import Ranked

SELECTIVE = 0.1
"""If fewer than this share of the rows pass a filter, a graph is mostly dead ends."""

CLOCK_TICK = 50_000_000
"""Nanoseconds within which two commits may have one time of modification."""


Stamp: TypeAlias = tuple[int, ...]
"""What the system says of a manifest's file; another manifest has another."""


@dataclass(eq=False)
class State:
    """One committed state, as a search needs it."""

    cache: CandidateCache
    stamp: Stamp | None = None
    """That of its manifest, if it is certain."""
    structure: Structure | None = None
    """The search structure, once it has been read."""


class FolderEngine:
    """The candidates of an index folder.

    It shows the state that was committed when it was opened or last refreshed. Threads may search
    it while another refreshes or changes it: a search sees one state. Implements Engine.
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
        self._state: State | None = State(cache or CandidateCache.open(folder))
        self._refreshing = threading.RLock()

    @property
    def state(self) -> State:
        """The state that is shown. Raises UsageError after `close`."""
        if self._state is None:
            raise UsageError(f"The index {self.folder} is closed.", "Open it again.")
        return self._state

    @property
    def cache(self) -> CandidateCache:
        """The candidates of that state."""
        return self.state.cache

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

    def present(self, identifiers: Iterable[str]) -> set[str]:
        """Those of the ids that candidates have."""
        cache = self.cache
        return {identifier for identifier in identifiers if cache.row(identifier) is not None}

    def search(
        self,
        contexts: Tensor,
        top_k: int,
        *,
        exact: bool,
        filter: Filter | None,
        metadata: bool = False,
    ) -> list[Found]:
        """The best `top_k` of the candidates that pass the filter, for each context (B, m, d).

        Certified if asked for, and always if the index has no search structure.
        """
        state = self.state if exact else self._with_structure()  # an exact search asks no graph
        cache, structure = state.cache, None if exact else state.structure
        allowed = cache.alive if filter is None else cache.allowed(filter)
        count = len(cache) if filter is None or allowed is None else int(np.count_nonzero(allowed))
        if not count:
            report = SearchReport(strategy="scan", num_candidates=0, num_scored=0, certified=True)
            return [Found([], report) for _ in contexts]
        ranked, strategy = ranked_rows(
            contexts, cache, structure, min(top_k, count), allowed=allowed
        )
        return [found(cache, each, strategy, count, metadata) for each in ranked]

    @property
    def structure(self) -> Structure | None:
        """The search structure, read when it is first asked for."""
        return self._with_structure().structure

    def _with_structure(self) -> State:
        """The state that is shown, its search structure read."""
        while True:
            state = self.state
            try:
                state.structure = state.structure or read_structure(
                    self.folder, state.cache.manifest
                )
            except IndexFolderError:
                if not self.refresh():
                    raise
                continue  # another process has built it anew
            return state

    def add(self, candidates: Iterable[Candidate], encode: Encode, *, replace: bool) -> int:
        """Add candidates and return their number. If anything fails, none is added.

        Errors name the line of a candidate if `Candidates` knows its file.
        """
        if not isinstance(candidates, Candidates):
            candidates = Candidates(candidates)
        with self._changing() as change:
            count = add(change, candidates, encode, replace=replace, earlier=self.cache)
        self.refresh()
        if first_small(self.manifest) is not None:
            # what was added is committed, whatever becomes of the merge
            with contextlib.suppress(StorageError, UsageError), self._changing() as change:
                merge_small(change)
            self.refresh()
        return count

    def delete(self, identifiers: Sequence[str]) -> int:
        """Delete candidates by id and return their number. If anything fails, none is deleted."""
        with self._changing() as change:
            count = delete(change, identifiers, self.cache)
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

        It looks at the manifest's file, and reads it only if that is another one. Raises
        IndexFolderError if the index was built again by another model.
        """
        with self._refreshing:
            old = self.state
            stamp = manifest_stamp(self.folder)
            if stamp is not None and stamp == old.stamp:
                return False
            manifest = old.cache.manifest
            if read_manifest(self.folder).checksum == manifest.checksum:
                old.stamp = stamp
                return False
            cache = CandidateCache.open(self.folder, old.cache)
            require_same_maker(self.folder, cache.manifest, manifest.model.fingerprint)
            same = structure_files(manifest) == structure_files(cache.manifest)
            self._state = State(cache, stamp, old.structure if same else None)
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
        self._state = None

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


def manifest_stamp(folder: Path) -> Stamp | None:
    """The stamp of the manifest; None if it cannot tell the next commit from this one."""
    try:
        status = os.stat(folder / MANIFEST)
    except OSError:
        return None
    age = time.time_ns() - status.st_mtime_ns
    if 0 <= age < CLOCK_TICK:
        return None
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def structure_files(manifest: Manifest) -> tuple[Any, ...]:
    """What tells the search structure of one state from that of another."""
    files = {name: file for name, file in manifest.files.items() if name.startswith(f"{SEARCH}/")}
    return manifest.search, files


def found(
    cache: CandidateCache, ranked: Ranked, strategy: Strategy, count: int, metadata: bool
) -> Found:
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
    return Found(hits, report, [cache.metadata(row) for row in ranked.rows] if metadata else ())


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
