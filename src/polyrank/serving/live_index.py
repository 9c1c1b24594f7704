"""An index that changes while it is searched: it follows what others commit, and is replaced by
another without disturbing those who use it.

Knows an index and its model; knows nothing of HTTP.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import torch
from numpy.typing import NDArray

from polyrank.errors import IndexFolderError, StorageError, UsageError
from polyrank.records import Candidate
from polyrank.retrieval.engine import Found
from polyrank.retrieval.filters import Filter
from polyrank.retrieval.index import Index
from polyrank.serving.failures import RequestError
from polyrank.serving.group_commit import Change, Changed, GroupCommit
from polyrank.serving.logs import LOG
from polyrank.serving.pipeline import Served
from polyrank.serving.scheduling.flow import Flow
from polyrank.serving.scheduling.scheduler import Scheduler
from polyrank.serving.search_lane import Query, SearchLane

T = TypeVar("T")

SHARE = 0.9
"""Of the time that a request has, what a store may take."""

STORE_THREADS = 8
"""Requests of a vector database that are under way at once."""


class LiveIndex:
    """An index, the model that made it, and everything that uses them while they are served."""

    def __init__(self, index: Index, served: Served) -> None:
        self.index = index
        self.served = served
        self.engine = index.engine
        self.is_folder = self.engine.manifest is not None
        """Whether the candidates are on this machine, and a search takes its cores."""
        self.commits = GroupCommit(self.engine)
        self._lane = SearchLane(self)
        self._threads = ThreadPoolExecutor(STORE_THREADS, thread_name_prefix="store")
        self._lock = threading.Lock()
        self._num_users = 0
        self._is_retired = False
        self._fault = ""

    @contextlib.contextmanager
    def in_use(self) -> Iterator[LiveIndex]:
        """Stay open until the end of the block, whatever replaces it meanwhile."""
        with self._lock:
            self._num_users += 1
        try:
            yield self
        finally:
            with self._lock:
                self._num_users -= 1
                is_last = self._is_retired and not self._num_users
            if is_last:
                self._close_later()

    def retire(self) -> None:
        """Close when nobody uses it any more."""
        with self._lock:
            self._is_retired = True
            is_free = not self._num_users
        if is_free:
            self._close_later()

    def close(self) -> None:
        """Commit what waits, and close files and connections. Blocks."""
        self.commits.close()
        self._threads.shutdown()
        self.index.close()

    def _close_later(self) -> None:
        threading.Thread(target=self.close, name="close-index").start()

    def follow(self) -> None:
        """Show what was committed last.

        If that cannot be shown, because another model made it or it is damaged, the last state that
        could stays: its files are mapped.
        """
        if not self.is_folder:
            return  # a vector database shows it anyhow
        fault = ""
        try:
            self.engine.refresh()
        except IndexFolderError as error:
            fault = str(error)
        if fault and fault != self._fault:
            LOG.warning("searches see an earlier state of the index: %s", fault)
        self._fault = fault

    def find(
        self, contexts: NDArray[Any], top_k: int, *, exact: bool, filter: Filter | None
    ) -> list[Found]:
        """What the newest state has for each context (B, m, d), with metadata. Blocks.

        Raises RequestError for a filter that does not fit the index, StorageError if the store does
        not answer.
        """
        self.follow()
        vectors = torch.from_numpy(contexts)
        try:
            return self.engine.search(vectors, top_k, exact=exact, filter=filter, metadata=True)
        except UsageError as error:
            raise wrong_filter(error) from error

    async def search(
        self, query: Query, contexts: NDArray[Any], flow: Flow, scheduler: Scheduler
    ) -> list[Found]:
        """What is found for each context (B, m, d), together with those of other requests."""
        if not self.is_folder:
            try:
                return await self.apart(lambda: self.find(contexts, **query._asdict()), flow)
            except IndexFolderError as error:
                raise IndexReplacedError(error) from error
        items = [(query, context) for context in contexts]
        job = scheduler.job(
            flow, tokens=sum(self._lane.costs(items)), finish=lambda: list(work.results)
        )
        work = job.work(self._lane, len(items))
        scheduler.submit(work, items)
        found: list[Found] = await scheduler.result(job)
        return found

    async def get(self, identifier: str, flow: Flow) -> Candidate | None:
        """The candidate with this id in the newest state, if there is one."""

        def get() -> Candidate | None:
            self.follow()
            return self.engine.get(identifier)

        return await self.apart(get, flow)

    async def apart(self, work: Callable[[], T], flow: Flow) -> T:
        """What `work` returns, in a thread of its own: it waits for a disk or a server.

        Raises StorageError a little before the deadline, so that the answer can say what is late.
        """
        started = time.monotonic()
        waiting = asyncio.get_running_loop().run_in_executor(self._threads, work)
        try:
            return await asyncio.wait_for(waiting, SHARE * flow.remaining)
        except asyncio.TimeoutError as error:
            raise StorageError(
                "The store of the index did not answer in time.", "See whether it is there."
            ) from error
        finally:
            flow.times.search += time.monotonic() - started

    async def change(self, change: Change, flow: Flow) -> Changed:
        """Make a change, and return when it is on disk; see `GroupCommit.commit`."""
        try:
            return await self.commits.commit(change, flow)
        except IndexFolderError as error:
            raise IndexReplacedError(error) from error


class IndexReplacedError(RequestError):
    """The index is not there any more as it was opened."""

    def __init__(self, cause: IndexFolderError) -> None:
        LOG.warning("the index cannot be used: %s", cause)
        super().__init__(
            503,
            "The index was built again by another model, or it is damaged.",
            "Reload it with POST /reload; the server's log says more.",
            code="index_replaced",
            retry_after=5,
        )


def wrong_filter(error: UsageError) -> RequestError:
    """The error of a filter that cannot be read, or does not fit the index."""
    return RequestError(400, error.problem, error.remedy, code="invalid_filter", param="filter")
