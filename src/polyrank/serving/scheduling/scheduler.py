"""The compute thread: runs the items of all requests in batches, in fair order, without a timer.

Knows nothing of texts, HTTP or what lanes compute.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from queue import SimpleQueue
from typing import Any, Protocol, get_args

from polyrank.errors import PolyrankError, is_out_of_memory
from polyrank.serving.failures import RequestError, as_request_error
from polyrank.serving.logs import LOG, log_failure
from polyrank.serving.scheduling.fair_queue import Entry, FairQueue
from polyrank.serving.scheduling.flow import Flow
from polyrank.serving.scheduling.jobs import Job, Work
from polyrank.serving.scheduling.lanes import CallLane, Lane, Stage, number_of

MEMORY = 0.98
"""How much of what is known of the speed remains after another batch."""

Message = tuple[Work, Sequence[Any], Sequence[int]] | Job | None
"""To the compute thread: more items of a work, a job to forget, or the end."""
Result = tuple[Job, Any, Exception | None]


class Observer(Protocol):
    """Who counts what the compute thread does. Called in the compute thread."""

    def batch(
        self, lane: str, stage: Stage, *, items: int, tokens: int, padded: int, seconds: float
    ) -> None:
        """A batch has run: its items, their tokens without and with padding, its seconds."""


class Scheduler:
    """Runs the items of all requests in one thread."""

    def __init__(self, *, max_queue_tokens: int, observer: Observer | None = None) -> None:
        """Start the compute thread.

        Args:
            max_queue_tokens: The most tokens that wait.
            observer: Is told of each batch.
        """
        self.max_queue_tokens = max_queue_tokens
        self.observer = observer
        self.queued_tokens = 0
        """The tokens that wait or run, those not yet tokenised by estimate."""
        self._lock = threading.Lock()
        self._jobs: set[Job] = set()
        self._is_closed = False
        self._busy = [0.0, 0.0]  # recent tokens and the seconds that they took
        self._queue = FairQueue()
        self._done: list[Result] = []
        self._calls = {stage: CallLane(stage) for stage in get_args(Stage)}
        self._inbox: SimpleQueue[Message] = SimpleQueue()
        self._thread = threading.Thread(target=self._serve, name="compute", daemon=True)
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        """Whether the compute thread runs."""
        return self._thread.is_alive()

    # In the event loop ---------------------------------------------------------------------------

    def job(self, flow: Flow, *, tokens: int, finish: Callable[[], Any]) -> Job:
        """Begin a job.

        Args:
            flow: The request.
            tokens: An estimate of its tokens, which count as waiting until they are known.
            finish: What makes the job's result of the results of its works, in the compute thread.

        Returns:
            The job, to add works to.

        Raises:
            RequestError: Too many tokens wait (429), the deadline has passed (504) or the server is
                shutting down (503).
        """
        if self._is_closed:
            raise shutting_down()
        if flow.remaining <= 0:
            raise out_of_time()
        waiting = self.queued_tokens
        room = self.max_queue_tokens - waiting
        # one that is larger than half of the queue would never find so much room beside others
        if waiting and min(tokens, self.max_queue_tokens // 2) > room:
            raise RequestError(
                429,
                f"{waiting} tokens wait to be computed, and with this request's {tokens} there "
                f"would be more than {self.max_queue_tokens}.",
                "Try again when the Retry-After header says, with fewer requests at once.",
                code="rate_limit_exceeded",
                retry_after=self.retry_after,
            )
        job = Job(flow, finish)
        self._hold(job, tokens)
        self._jobs.add(job)
        return job

    async def result(self, job: Job) -> Any:
        """Wait for a job, until the request's deadline.

        Whoever stops waiting, because the client has gone away or the deadline has passed, drops
        what is left of the job. Raises RequestError.
        """
        flow, began = job.flow, time.monotonic()
        spent = total(flow)
        timer = job.loop.call_later(max(flow.remaining, 0), self._end, job, out_of_time())
        try:
            return await job.future
        finally:
            timer.cancel()
            self._end(job, None)
            self._jobs.discard(job)
            waited = time.monotonic() - began - (total(flow) - spent)
            flow.times.queue += max(waited, 0.0)

    async def call(self, flow: Flow, function: Callable[[], Any], *, stage: Stage = "model") -> Any:
        """What a short function returns, run in the compute thread.

        Args:
            flow: The request.
            function: What to run.
            stage: Which of the request's times it is.

        Returns:
            Its result.
        """
        lane = self._calls[stage]
        job = self.job(flow, tokens=lane.cost, finish=lambda: work.results[0])
        work = job.work(lane, 1)
        self.submit(work, [function])
        return await self.result(job)

    @property
    def retry_after(self) -> int:
        """Seconds after which what waits now is done, at the recent speed; at least 1."""
        tokens, seconds = self._busy
        return max(math.ceil(self.queued_tokens * seconds / tokens), 1) if tokens else 1

    async def drain(self) -> None:
        """Wait until no job is left."""
        while self._jobs:
            await asyncio.wait([job.future for job in self._jobs])
            await asyncio.sleep(0)

    def _end(self, job: Job, error: RequestError | None) -> None:
        """Let nothing more be computed for a job, in its loop."""
        if error is not None and not job.future.done():
            job.future.set_exception(error)
        if not job.is_dead:
            job.is_dead = True
            self._hold(job, -job.held)
            if job.works:  # it is not finished
                self._inbox.put(job)

    # In any thread -------------------------------------------------------------------------------

    def submit(self, work: Work, items: Sequence[Any], estimate: int | None = None) -> None:
        """Hand over the next items of a work.

        Args:
            work: The work.
            items: Its next items.
            estimate: The tokens that were held for them until now; by default, exactly theirs.
        """
        costs = work.lane.costs(items)
        if work.lane.stage == "model" and not isinstance(work.lane, CallLane):
            work.job.flow.num_items += number_of(items)
            work.job.flow.num_tokens += sum(costs)
        if estimate is not None:
            self._hold(work.job, sum(costs) - estimate)
        self._inbox.put((work, items, costs))

    def fail(self, job: Job, error: Exception) -> None:
        """Give a job an error for its result."""
        deliver(job.loop, [(job, None, as_request_error(error))])

    def close(self) -> None:
        """End the thread; jobs that are left get an error."""
        self._is_closed = True
        self._inbox.put(None)
        self._thread.join()
        for job in list(self._jobs):
            self.fail(job, shutting_down())

    def _hold(self, job: Job, tokens: int) -> None:
        with self._lock:
            if job.is_dead and tokens > 0:
                return
            tokens = max(tokens, -job.held)
            job.held += tokens
            self.queued_tokens += tokens

    # In the compute thread -----------------------------------------------------------------------

    def _serve(self) -> None:
        while self._receive():
            chosen = self._queue.next_batch()
            if chosen is not None:
                self._attempt(*chosen)
                self._hand_over()

    def _receive(self) -> bool:
        """Take all messages, waiting for one if there is nothing to run; False at the end."""
        inbox = self._inbox
        wait = not self._queue
        while wait or not inbox.empty():
            wait = False
            message = inbox.get()
            if message is None:
                return False
            if isinstance(message, Job):
                self._queue.drop(message)
            else:
                self._queue.push(*message)
        return True

    def _attempt(self, lane: Lane, batch: Sequence[Entry]) -> None:
        """Run a batch. If it fails, run it request by request: only the culprit gets the error."""
        now = time.monotonic()
        batch = [each for each in batch if is_wanted(each[3].job, now)]
        if not batch:
            return
        try:
            values = lane.run([work.items[place] for _, _, place, work in batch])
        except Exception as error:
            if is_out_of_memory(error) and len(batch) > 1:
                costs = [work.costs[place] for _, _, place, work in batch]
                lane.shrink(max(lane.padded(costs) // 2, 1))
                middle = len(batch) // 2
                parts: Iterable[Sequence[Entry]] = (batch[:middle], batch[middle:])
            else:
                parts = by_job(batch)
                if len(parts) == 1:
                    self._fail(batch[0][3].job, error, lane)
                    return
            for part in parts:
                self._attempt(lane, part)
            return
        self._settle(lane, batch, values, time.monotonic() - now)

    def _settle(self, lane: Lane, batch: Sequence[Entry], values: Any, seconds: float) -> None:
        """Give each work its results, and finish the jobs that have all of theirs."""
        rows: dict[Work, list[int]] = {}
        for row, entry in enumerate(batch):
            rows.setdefault(entry[3], []).append(row)
        costs = [work.costs[place] for _, _, place, work in batch]
        number = number_of([work.items[place] for _, _, place, work in batch])
        for flow in {work.job.flow for work in rows}:
            times = flow.times
            setattr(times, lane.stage, getattr(times, lane.stage) + seconds)
        for work, own in rows.items():
            chosen = values[own] if hasattr(values, "dtype") else [values[row] for row in own]
            self._take(work, [batch[row][2] for row in own], chosen)
            self._hold(work.job, -sum(costs[row] for row in own))
        self._busy = [
            old * MEMORY + new for old, new in zip(self._busy, (sum(costs), seconds), strict=True)
        ]
        if self.observer is not None:
            self.observer.batch(
                lane.name,
                lane.stage,
                items=number,
                tokens=sum(costs),
                padded=lane.padded(costs),
                seconds=seconds,
            )

    def _take(self, work: Work, places: list[int], values: Any) -> None:
        """Give a work some results; an error in them is the job's own."""
        job = work.job
        if job.is_dead:
            return
        try:
            work.lane.check(values)
            work.settle(places, values)
            if work.missing:
                return
            job.unfinished -= 1
            if not job.unfinished:
                self._done.append((job, job.finish(), None))
                job.forget()
        except Exception as error:
            self._fail(job, error, work.lane)

    def _fail(self, job: Job, error: Exception, lane: Lane) -> None:
        if not isinstance(error, PolyrankError):
            log_failure(f"request {job.flow.request_id}, {lane.name},", error)
        self._done.append((job, None, as_request_error(error)))

    def _hand_over(self) -> None:
        """Hand results to their event loops, with one call for each loop."""
        loops: dict[asyncio.AbstractEventLoop, list[Result]] = {}
        for result in self._done:
            loops.setdefault(result[0].loop, []).append(result)
        self._done = []
        for loop, results in loops.items():
            deliver(loop, results)


def is_wanted(job: Job, now: float) -> bool:
    """Whether somebody still waits for a job."""
    return not (job.is_dead or job.flow.cancelled) and job.flow.deadline > now


def by_job(batch: Sequence[Entry]) -> list[list[Entry]]:
    """The items of each request."""
    parts: dict[Job, list[Entry]] = {}
    for entry in batch:
        parts.setdefault(entry[3].job, []).append(entry)
    return list(parts.values())


def deliver(loop: asyncio.AbstractEventLoop, results: list[Result]) -> None:
    """Set the futures of jobs in their event loop, from any thread."""

    def set_all() -> None:
        for job, value, error in results:
            if job.future.done():
                continue
            if error is None:
                job.future.set_result(value)
            else:
                job.future.set_exception(error)

    try:
        loop.call_soon_threadsafe(set_all)
    except RuntimeError:  # the loop has ended, so nobody waits
        LOG.debug("An event loop ended before its results came.")


def total(flow: Flow) -> float:
    """The seconds that a request was worked on."""
    times = flow.times
    return times.tokenise + times.model + times.search


def out_of_time() -> RequestError:
    """The error of a request whose deadline has passed."""
    return RequestError(
        504,
        "The request was not answered before its deadline.",
        "Send fewer texts at once, or try again when the server has less to do.",
        code="timeout",
    )


def shutting_down() -> RequestError:
    """The error of a request that the server will not begin any more."""
    return RequestError(
        503, "The server is shutting down.", "Try again in a moment.", retry_after=1
    )
