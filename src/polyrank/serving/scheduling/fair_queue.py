"""Fair order: which items run next. Knows nothing of threads, time or models.

Start-time fair queueing. An item's tag is where it starts in virtual time: where its request's item
before ends, but not earlier than now. Now is the tag in service. So a request that comes while a
large one runs precedes what is left of it.

Two things differ from the textbook. Up to a quantum of tokens, a request hardly moves on in virtual
time: requests of usual sizes are served as they come, and do not wait at their end for others that
came later. Only what goes beyond takes turns, quantum by quantum.

And many small requests could hold up a large one for ever. So there is a second clock, which grows
by each batch's cost divided by the number of requests that wait, as fast as the requests would move
if all ran at once. Now is never far behind it.

The oldest item, that with the smallest tag, chooses the lane. Of the lane's first items in fair
order (the window), the lane chooses those that run with it.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from itertools import accumulate, count
from typing import Any

from polyrank.serving.scheduling.jobs import Job, Work
from polyrank.serving.scheduling.lanes import Lane

QUANTUM = 2048
"""The tokens of a request that are served as they come. More makes small requests wait for larger
ones; less makes larger ones wait for all that come after them."""
PACE = 0.01
"""How far a token moves its request in virtual time, within a quantum."""

Entry = tuple[float, int, int, Work]
"""The tag of an item, the number of its work, its place in the work, and the work."""


class FairQueue:
    """The items that wait, by lane."""

    def __init__(self) -> None:
        self._lanes: dict[Lane, LaneQueue] = {}
        self._numbers = count()
        self._clock = 0.0
        self._in_service = 0.0
        self._credit = 0.0
        self._num_waiting = 0
        """Requests with items that wait."""

    def __bool__(self) -> bool:
        return bool(self._lanes)

    @property
    def now(self) -> float:
        """The tag of the first item of a request that comes now."""
        return max(self._in_service, self._clock - self._credit)

    def push(self, work: Work, items: Sequence[Any], costs: Sequence[int]) -> None:
        """Add further items of a work, in order."""
        flow = work.job.flow
        if work.job.is_dead:
            return
        *before, spent = accumulate(costs, initial=flow.spent)
        flow.start = max(flow.start, self.now - progress(flow.spent))
        tags = [flow.start + progress(each) for each in before]
        flow.spent = spent
        self._num_waiting += not flow.waiting
        flow.waiting += len(items)
        work.pending += len(items)
        work.items += items
        work.costs += costs
        work.tags += tags
        lane = self._lanes.get(work.lane)
        if lane is None:
            lane = self._lanes[work.lane] = LaneQueue(work.lane)
        if len(work.tags) - work.drawn == len(items):  # it was not in the heap
            heapq.heappush(lane.heap, (work.tags[work.drawn], next(self._numbers), work))

    def drop(self, job: Job) -> None:
        """Forget the items of a dead job."""
        for work in job.works:
            self._leave(work, work.pending)
        job.forget()

    def next_batch(self) -> tuple[Lane, list[Entry]] | None:
        """Take the items that run next, the oldest first; None if nothing waits."""
        oldest: LaneQueue | None = None
        for queue in list(self._lanes.values()):
            if not queue.fill():
                del self._lanes[queue.lane]
            elif oldest is None or queue.window[0] < oldest.window[0]:
                oldest = queue
        if oldest is None:
            return None
        first = oldest.window[0][0]
        batch = oldest.take()
        self._in_service = max(self._in_service, first)
        total = sum(work.costs[place] for _, _, place, work in batch)
        self._credit = (oldest.lane.window + QUANTUM) / self._num_waiting
        self._clock = max(self._clock, first) + total / self._num_waiting
        for _, _, _, work in batch:
            self._leave(work, 1)
        return oldest.lane, batch

    def _leave(self, work: Work, number: int) -> None:
        flow = work.job.flow
        work.pending -= number
        flow.waiting -= number
        self._num_waiting -= bool(number) and not flow.waiting


def progress(tokens: int) -> float:
    """How far a request is in virtual time after so many tokens."""
    rest = tokens % QUANTUM
    return tokens - rest + PACE * rest


class LaneQueue:
    """The items that wait for one lane.

    The heap has one entry per work, for its first item that is not in the window; the window has
    the first items of all, sorted.
    """

    def __init__(self, lane: Lane) -> None:
        self.lane = lane
        self.heap: list[tuple[float, int, Work]] = []
        self.window: list[Entry] = []

    def fill(self) -> bool:
        """Bring the window up to date; return whether anything waits."""
        window = [entry for entry in self.window if not entry[3].job.is_dead]
        total = sum(work.costs[place] for _, _, place, work in window)
        last = window[-1][0] if window else 0.0
        heap, limit = self.heap, self.lane.window
        has_drawn = False
        while heap and (total < limit or heap[0][0] < last):
            _, number, work = heapq.heappop(heap)
            if work.job.is_dead:
                continue
            following = heap[0][0] if heap else float("inf")
            tags, costs, place = work.tags, work.costs, work.drawn
            while place < len(tags) and tags[place] <= following:
                if total >= limit and tags[place] >= last:
                    break
                window.append((tags[place], number, place, work))
                total += costs[place]
                place += 1
                has_drawn = True
            work.drawn = place
            if place < len(tags):
                heapq.heappush(heap, (tags[place], number, work))
        if has_drawn:
            window.sort()
        self.window = window
        return bool(window)

    def take(self) -> list[Entry]:
        """Remove what runs with the oldest item from the window."""
        costs: list[int] = []
        total = 0
        for _, _, place, work in self.window:
            if total >= self.lane.window:
                break
            costs.append(work.costs[place])
            total += costs[-1]
        items = [work.items[place] for _, _, place, work in self.window[: len(costs)]]
        chosen = set(self.lane.together(items, costs))
        assert 0 in chosen, "the oldest item runs"
        batch = [entry for place, entry in enumerate(self.window) if place in chosen]
        self.window = [entry for place, entry in enumerate(self.window) if place not in chosen]
        return batch
