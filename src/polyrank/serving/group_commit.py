"""Changes of an index, committed in groups: what arrives while one commit is under way waits for
the next.

A request is answered when its change is on disk. Changes of the same candidate keep their order. A
change that fails takes nobody else with it: the others of its group are committed without it.
Knows engines; knows nothing of models or HTTP.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from polyrank.errors import (
    DataError,
    IndexFolderError,
    LockedError,
    PolyrankError,
    StorageError,
)
from polyrank.records import Candidate
from polyrank.retrieval.engine import Engine
from polyrank.serving.failures import RequestError
from polyrank.serving.logs import log_failure
from polyrank.serving.scheduling.flow import Flow
from polyrank.serving.scheduling.scheduler import out_of_time, shutting_down

LONGEST_WAIT = 10.0
"""Seconds that a commit waits for another process that changes the index."""

PAUSE = 0.05
"""Seconds between two attempts."""

MOST_ATTEMPTS = 5
"""How often a deletion is tried of candidates that others delete at the same time."""


@dataclass(frozen=True)
class Upsert:
    """Candidates with different ids, and their vectors (n, d)."""

    candidates: Sequence[Candidate]
    vectors: NDArray[Any]

    @property
    def identifiers(self) -> frozenset[str]:
        """The ids that it touches."""
        return frozenset(candidate.id for candidate in self.candidates)


@dataclass(frozen=True)
class Delete:
    """Ids of candidates to delete, if they are there."""

    identifiers: frozenset[str]


Change = Upsert | Delete


@dataclass(frozen=True)
class Changed:
    """What became of a change: how many candidates, ids that were not there, and how many there are
    now.
    """

    count: int
    missing: frozenset[str]
    total: int


@dataclass(eq=False)
class Pending:
    """A change that waits, and whoever waits for it."""

    change: Change
    flow: Flow
    future: Future[Changed] = field(default_factory=Future)

    def begins(self) -> bool:
        """Whether somebody still waits; from now on it cannot be withdrawn."""
        if self.flow.cancelled:
            self.future.cancel()
        if not self.future.set_running_or_notify_cancel():
            return False
        if self.flow.remaining <= 0:
            self.future.set_exception(out_of_time())
            return False
        return True


class GroupCommit:
    """Commits changes of an engine in a thread of its own, which starts with the first change."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._inbox: SimpleQueue[Pending | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._is_closed = False
        self.num_commits = 0
        """How many commits there were."""

    async def commit(self, change: Change, flow: Flow) -> Changed:
        """Make a change, and return when it is on disk.

        Args:
            change: What to do.
            flow: The request. Until its change begins, it can be withdrawn.

        Returns:
            What became of it.

        Raises:
            RequestError: Another process does not stop changing the index (503), or there is no
                time left (504).
            DataError: A candidate does not fit the index.
            IndexFolderError: The index was built again by another model.
            StorageError: The disk is full, or the store does not answer.
        """
        if self._is_closed:
            raise shutting_down()
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, name="commits", daemon=True)
            self._thread.start()
        pending = Pending(change, flow)
        self._inbox.put(pending)
        return await asyncio.wrap_future(pending.future)

    def close(self) -> None:
        """Commit what waits, and end the thread."""
        self._is_closed = True
        if self._thread is not None:
            self._inbox.put(None)
            self._thread.join()

    def _serve(self) -> None:
        """Commit group after group, until the end."""
        is_open = True
        while is_open:
            waiting = [self._inbox.get()]
            try:
                while True:
                    waiting.append(self._inbox.get_nowait())
            except Empty:
                pass
            is_open = None not in waiting
            group = [each for each in waiting if each is not None and each.begins()]
            for run in runs_of(group):
                self._commit(run)

    def _commit(self, run: Sequence[Pending]) -> None:
        """Make changes of one kind in one commit, or each alone if that fails."""
        until = time.monotonic() + LONGEST_WAIT
        until = min(until, max(each.flow.deadline for each in run))
        try:
            apply = self._delete if isinstance(run[0].change, Delete) else self._upsert
            results = patiently(lambda: apply([each.change for each in run]), until)
            self.num_commits += 1
        except Exception as error:
            is_everybodys = isinstance(error, (RequestError, StorageError, IndexFolderError))
            if len(run) > 1 and not is_everybodys:
                for each in run:
                    self._commit([each])
                return
            if not isinstance(error, PolyrankError):
                log_failure("A commit", error)
            for each in run:
                each.future.set_exception(error)
            return
        for each, result in zip(run, results, strict=True):
            each.future.set_result(result)

    def _upsert(self, changes: Sequence[Any]) -> list[Changed]:
        """Add candidates, or replace them; of one id the last counts."""
        rows: dict[str, tuple[Candidate, NDArray[Any]]] = {}
        for change in changes:
            for candidate, vector in zip(change.candidates, change.vectors, strict=True):
                rows[candidate.id] = candidate, vector
        vectors = {candidate.text: vector for candidate, vector in rows.values()}
        self._engine.add(
            [candidate for candidate, _ in rows.values()], known(vectors), replace=True
        )
        total = len(self._engine)
        return [Changed(len(change.candidates), frozenset(), total) for change in changes]

    def _delete(self, changes: Sequence[Any]) -> list[Changed]:
        """Delete the candidates that are there; an id belongs to the first who deletes it."""
        wanted = frozenset[str]().union(*(change.identifiers for change in changes))
        for attempt in range(1, MOST_ATTEMPTS + 1):
            self._engine.refresh()
            there = self._engine.present(wanted)
            try:
                if there:
                    self._engine.delete(sorted(there))
                break
            except DataError:  # another process has deleted some of them
                if attempt == MOST_ATTEMPTS:
                    raise
        total = len(self._engine)
        results = []
        for change in changes:
            own = change.identifiers & there
            results.append(Changed(len(own), change.identifiers - own, total))
            there -= own
        return results


def runs_of(group: Sequence[Pending]) -> list[list[Pending]]:
    """Cut a group into runs of upserts and of deletions, each of which can be one commit.

    A change joins the earliest run of its kind that it can reach without passing a change of the
    same candidate.
    """
    runs: list[tuple[type[Change], list[Pending], set[str]]] = []
    for each in group:
        touched = each.change.identifiers
        reached = None
        for run in reversed(runs):
            if run[0] is type(each.change):
                reached = run
            if not touched.isdisjoint(run[2]):
                break
        if reached is None:
            reached = type(each.change), [], set()
            runs.append(reached)
        reached[1].append(each)
        reached[2].update(touched)
    return [members for _, members, _ in runs]


def known(vectors: Mapping[str, NDArray[Any]]) -> Callable[[Sequence[str]], Tensor]:
    """An encoder of texts whose vectors are known: (N, d)."""

    def encode(texts: Sequence[str]) -> Tensor:
        return torch.stack([torch.from_numpy(vectors[text]) for text in texts])

    return encode


def patiently(work: Callable[[], list[Changed]], until: float) -> list[Changed]:
    """What `work` returns, tried again while another process changes the index.

    `until` is on the clock of `time.monotonic`. Raises RequestError after it.
    """
    while True:
        try:
            return work()
        except LockedError as error:
            if time.monotonic() >= until:
                raise RequestError(
                    503,
                    "Another process is changing the index; searches still work.",
                    "Try again when it is done.",
                    code="index_locked",
                    retry_after=5,
                ) from error
            time.sleep(PAUSE)
