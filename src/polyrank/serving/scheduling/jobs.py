"""Jobs: what one coroutine waits for. Knows nothing of order or threads.

A job is one request's items in one or more lanes, and what is made of their results.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from polyrank.serving.scheduling.flow import Flow
from polyrank.serving.scheduling.lanes import Lane


def nothing() -> None:
    """What is left to do when a job is finished."""


class Job:
    """Items of one request that are awaited together.

    The compute thread owns everything but `future`, `is_dead` and `held`.
    """

    __slots__ = ("finish", "flow", "future", "held", "is_dead", "loop", "unfinished", "works")

    def __init__(self, flow: Flow, finish: Callable[[], Any]) -> None:
        """Begin a job, in a coroutine.

        Args:
            flow: The request.
            finish: What makes the job's result when all its items have theirs. Runs in the compute
                thread.
        """
        self.flow = flow
        self.finish = finish
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[Any] = self.loop.create_future()
        self.works: list[Work] = []
        self.unfinished = 0
        """Works that lack results."""
        self.is_dead = False
        """Whether nobody waits for it any more."""
        self.held = 0
        """Its share of the tokens that wait."""

    def forget(self) -> None:
        """Let go of everything but the future. A finished job does not wait to be found by Python's
        collector, with all its results.
        """
        self.works.clear()
        self.finish = nothing

    def work(self, lane: Lane, count: int) -> Work:
        """Announce a number of items, at least 1, for a lane."""
        work = Work(self, lane, count)
        self.works.append(work)
        self.unfinished += 1
        return work


class Work:
    """One request's items for one lane, in order, as far as they are known."""

    __slots__ = ("costs", "drawn", "items", "job", "lane", "missing", "pending", "results", "tags")

    def __init__(self, job: Job, lane: Lane, count: int) -> None:
        assert count > 0, "a work without items would never finish"
        self.job = job
        self.lane = lane
        self.results = lane.results(count)
        self.missing = count
        """Items without a result."""
        self.items: list[Any] = []
        self.costs: list[int] = []
        self.tags: list[float] = []
        self.drawn = 0
        """Items that have left the heap for the window of the lane."""
        self.pending = 0
        """Items that wait."""

    def settle(self, places: Sequence[int], values: Any) -> None:
        """Take the results of the items at some places."""
        if isinstance(values, list):
            for place, value in zip(places, values, strict=True):
                self.results[place] = value
        else:
            self.results[list(places)] = values
        for place in places:
            self.items[place] = None
        self.missing -= len(places)
