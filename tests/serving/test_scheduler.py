"""The compute thread and the tokenising thread, with fake lanes: results, failures, limits."""

import asyncio
import gc
import logging
import threading
import time
import weakref

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polyrank.serving.failures import RequestError
from polyrank.serving.scheduling.flow import Flow
from polyrank.serving.scheduling.lanes import require_numbers
from polyrank.serving.scheduling.scheduler import Scheduler
from polyrank.serving.scheduling.tokenising import SLICE_TEXTS, Texts, Tokenising

BUDGET = 40
SECRET = "what a user wrote"


class DoublingLane:
    """Doubles numbers. It can be held, and fails where a batch has a number that it is told to."""

    stage = "model"
    window = 4 * BUDGET

    def __init__(self, name="doubling", bad=(), most=None):
        self.name = name
        self.bad = bad
        self.most = most
        self.batches = []
        self.free = threading.Event()
        self.free.set()
        self.begun = threading.Event()
        self.most_cost = BUDGET

    def costs(self, items):
        return [1] * len(items)

    def together(self, items, costs):
        return range(min(len(items), self.most_cost))

    def run(self, items):
        self.begun.set()
        assert self.free.wait(30)
        self.batches.append(list(items))
        if self.most is not None and len(items) > self.most:
            raise RuntimeError("CUDA out of memory. Tried to allocate 2 GiB.")
        if set(self.bad) & set(items):
            raise ZeroDivisionError(SECRET)
        return np.array([np.nan if item < 0 else 2 * item for item in items], dtype=np.float32)

    def results(self, count):
        return np.zeros(count, dtype=np.float32)

    def check(self, results):
        require_numbers(results, "The numbers")

    def padded(self, costs):
        return sum(costs)

    def shrink(self, cost):
        self.most_cost = min(self.most_cost, cost)


class Batches:
    """An observer that remembers."""

    def __init__(self):
        self.seen = []

    def batch(self, lane, stage, **numbers):
        self.seen.append((lane, stage, numbers))


@pytest.fixture
def scheduler():
    made = Scheduler(max_queue_tokens=1000)
    yield made
    made.close()


def doubled(scheduler, lane, numbers, flow=None):
    """A coroutine that doubles numbers."""

    async def ask():
        asked = flow or Flow.lasting(60)
        job = scheduler.job(asked, tokens=len(numbers), finish=lambda: work.results.tolist())
        work = job.work(lane, len(numbers))
        scheduler.submit(work, numbers, len(numbers))
        return await scheduler.result(job)

    return ask()


def test_requests_that_wait_run_together(scheduler):
    lane = DoublingLane()

    async def ask():
        lane.free.clear()
        first = asyncio.create_task(doubled(scheduler, lane, [1]))
        await asyncio.to_thread(lane.begun.wait)
        others = [asyncio.create_task(doubled(scheduler, lane, [n, n + 1])) for n in (10, 20, 30)]
        await asyncio.sleep(0)
        lane.free.set()
        return await asyncio.gather(first, *others)

    assert asyncio.run(ask()) == [[2], [20, 22], [40, 42], [60, 62]]
    assert lane.batches == [[1], [10, 20, 30, 11, 21, 31]]


def test_a_failing_batch_runs_again_request_by_request(scheduler, caplog):
    lane = DoublingLane(bad=[21])

    async def ask():
        lane.free.clear()
        first = asyncio.create_task(doubled(scheduler, lane, [1]))
        await asyncio.to_thread(lane.begun.wait)
        others = [asyncio.create_task(doubled(scheduler, lane, [n, n + 1])) for n in (10, 20, 30)]
        await asyncio.sleep(0)
        lane.free.set()
        await first
        return await asyncio.gather(*others, return_exceptions=True)

    with caplog.at_level(logging.ERROR):
        good, bad, also_good = asyncio.run(ask())
    assert (good, also_good) == ([20, 22], [60, 62])
    assert isinstance(bad, RequestError)
    assert bad.status == 500
    assert SECRET not in str(bad)
    assert "ZeroDivisionError" in caplog.text
    assert SECRET not in caplog.text
    assert asyncio.run(doubled(scheduler, lane, [4])) == [8]  # and the server goes on


def test_a_batch_that_does_not_fit_in_memory_is_halved(scheduler):
    lane = DoublingLane(most=10)
    numbers = list(range(35))
    assert asyncio.run(doubled(scheduler, lane, numbers)) == [2 * n for n in numbers]
    failed = len(lane.batches)
    assert asyncio.run(doubled(scheduler, lane, numbers)) == [2 * n for n in numbers]
    assert max(map(len, lane.batches[failed:])) <= 10  # it has learnt


def test_one_item_that_does_not_fit_in_memory_is_an_error(scheduler):
    with pytest.raises(RequestError, match="failed to answer"):
        asyncio.run(doubled(scheduler, DoublingLane(most=0), [1, 2]))


def test_what_is_not_a_number_is_the_error_of_its_request(scheduler):
    lane = DoublingLane()

    async def ask():
        asked = [doubled(scheduler, lane, numbers) for numbers in ([1], [2, -1, 3], [4])]
        return await asyncio.gather(*asked, return_exceptions=True)

    first, bad, last = asyncio.run(ask())
    assert (first, last) == ([2], [8])
    assert bad.status == 500
    assert "not numbers" in str(bad)


def test_a_client_that_goes_away_costs_nothing_more(scheduler):
    lane = DoublingLane()

    async def ask():
        lane.free.clear()
        first = asyncio.create_task(doubled(scheduler, lane, [1]))
        await asyncio.to_thread(lane.begun.wait)
        gone = asyncio.create_task(doubled(scheduler, lane, list(range(100, 300))))
        stays = asyncio.create_task(doubled(scheduler, lane, [7]))
        await asyncio.sleep(0)
        assert scheduler.queued_tokens == 202
        gone.cancel()
        with pytest.raises(asyncio.CancelledError):
            await gone
        assert scheduler.queued_tokens == 2
        lane.free.set()
        return await asyncio.gather(first, stays)

    assert asyncio.run(ask()) == [[2], [14]]
    assert lane.batches == [[1], [7]]
    assert scheduler.queued_tokens == 0


def test_a_client_that_goes_away_while_its_request_is_under_way(scheduler):
    lane = DoublingLane()

    async def ask():
        lane.free.clear()
        gone = asyncio.create_task(doubled(scheduler, lane, list(range(300))))
        await asyncio.to_thread(lane.begun.wait)
        gone.cancel()
        await asyncio.wait([gone])
        lane.free.set()
        return await doubled(scheduler, lane, [7])

    assert asyncio.run(ask()) == [14]
    assert lane.batches == [list(range(BUDGET)), [7]]


def test_a_deadline_ends_a_request_that_waits(scheduler):
    lane = DoublingLane()

    async def ask():
        lane.free.clear()
        first = asyncio.create_task(doubled(scheduler, lane, [1]))
        await asyncio.to_thread(lane.begun.wait)
        with pytest.raises(RequestError) as error:
            await doubled(scheduler, lane, [2], Flow.lasting(0.02))
        lane.free.set()
        await first
        return error.value

    error = asyncio.run(ask())
    assert (error.status, error.code) == (504, "timeout")
    assert lane.batches == [[1]]
    with pytest.raises(RequestError, match="deadline"):
        asyncio.run(doubled(scheduler, lane, [3], Flow.lasting(-1)))


def test_a_full_queue_refuses_and_recovers(scheduler):
    lane = DoublingLane()

    async def ask():
        await doubled(scheduler, lane, [0])  # from now on there is a measured speed
        lane.free.clear()
        lane.begun.clear()
        large = asyncio.create_task(
            doubled(scheduler, lane, list(range(5000)))
        )  # of an empty queue
        await asyncio.to_thread(lane.begun.wait)
        with pytest.raises(RequestError) as refused:
            await doubled(scheduler, lane, [1])
        lane.free.set()
        await large
        assert scheduler.queued_tokens == 0
        return refused.value, await doubled(scheduler, lane, [1])

    refused, answer = asyncio.run(ask())
    assert refused.status == 429
    assert refused.retry_after >= 1
    assert answer == [2]


def test_a_request_larger_than_the_queue_gets_in_beside_others(scheduler):
    lane = DoublingLane()

    async def ask():
        lane.free.clear()
        first = asyncio.create_task(doubled(scheduler, lane, [1] * 500))
        await asyncio.to_thread(lane.begun.wait)
        large = asyncio.create_task(doubled(scheduler, lane, [2] * 5000))
        await asyncio.sleep(0)
        with pytest.raises(RequestError, match="wait to be computed"):
            await doubled(scheduler, lane, [3])
        lane.free.set()
        return [len(each) for each in await asyncio.gather(first, large)]

    assert asyncio.run(ask()) == [500, 5000]


def test_the_time_to_wait_follows_the_measured_speed(scheduler):
    scheduler.queued_tokens, scheduler._busy = 900, [100.0, 0.5]
    assert scheduler.retry_after == 5
    scheduler.queued_tokens = 0


def test_results_come_back_with_one_call_per_batch(scheduler):
    lane = DoublingLane()

    async def ask():
        loop = asyncio.get_running_loop()
        lane.free.clear()
        first = asyncio.create_task(doubled(scheduler, lane, [0]))
        await asyncio.to_thread(lane.begun.wait)
        calls, plain = [], loop.call_soon_threadsafe

        def counted(*arguments):
            calls.append(arguments)
            return plain(*arguments)

        loop.call_soon_threadsafe = counted
        others = [asyncio.create_task(doubled(scheduler, lane, [n])) for n in range(30)]
        await asyncio.sleep(0)
        lane.free.set()
        await asyncio.gather(first, *others)
        return len(calls)

    assert asyncio.run(ask()) == 2


def test_an_observer_hears_of_each_batch():
    observer, lane = Batches(), DoublingLane()
    scheduler = Scheduler(max_queue_tokens=1000, observer=observer)
    asyncio.run(doubled(scheduler, lane, [1, 2, 3]))
    scheduler.close()
    ((name, stage, numbers),) = observer.seen
    assert (name, stage) == ("doubling", "model")
    assert numbers.pop("seconds") > 0
    assert numbers == {"items": 3, "tokens": 3, "padded": 3}


def test_close_answers_what_is_left(scheduler):
    lane = DoublingLane()

    async def ask():
        lane.free.clear()
        asked = [asyncio.create_task(doubled(scheduler, lane, list(range(100)))) for _ in range(3)]
        await asyncio.to_thread(lane.begun.wait)
        closing = asyncio.create_task(asyncio.to_thread(scheduler.close))
        await asyncio.sleep(0.01)
        lane.free.set()
        await closing
        return await asyncio.gather(*asked, return_exceptions=True)

    assert {error.status for error in asyncio.run(ask())} == {503}
    with pytest.raises(RequestError, match="shutting down"):
        asyncio.run(doubled(scheduler, lane, [1]))


@pytest.mark.parametrize("fate", ["finishes", "is cancelled", "fails"])
def test_a_job_leaves_nothing_for_the_collector(scheduler, fate):
    lane = DoublingLane(bad=[5] if fate == "fails" else [])

    async def ask():
        job = scheduler.job(Flow.lasting(60), tokens=1, finish=lambda: list(work.results))
        work = job.work(lane, 1)
        kept = weakref.ref(work.results)
        if fate == "is cancelled":
            lane.free.clear()
        scheduler.submit(work, [5])
        waiting = asyncio.create_task(scheduler.result(job))
        if fate == "is cancelled":
            await asyncio.to_thread(lane.begun.wait)
            waiting.cancel()
            lane.free.set()
        await asyncio.wait([waiting])
        return kept

    gc.disable()
    try:
        kept = asyncio.run(ask())
        scheduler.close()  # the compute thread has nothing in its hands any more
        assert kept() is None
    finally:
        gc.enable()


def test_drain_waits_for_everything(scheduler):
    lane = DoublingLane()

    async def ask():
        asked = [asyncio.create_task(doubled(scheduler, lane, [n] * 30)) for n in range(5)]
        await asyncio.sleep(0)
        await scheduler.drain()
        assert all(task.done() for task in asked)

    asyncio.run(ask())


def test_a_large_request_is_tokenised_in_slices_between_which_others_have_their_turn(scheduler):
    lane, order, gate = DoublingLane(), [], threading.Event()
    tokenising = Tokenising(scheduler)

    def encode(texts):
        assert gate.wait(30)
        order.append((texts[0], len(texts)))
        return [len(text) for text in texts]

    async def ask(texts):
        job = scheduler.job(Flow.lasting(60), tokens=1, finish=lambda: work.results.tolist())
        work = job.work(lane, len(texts))
        tokenising.add(Texts(work, texts, [1] * len(texts), encode))
        return await scheduler.result(job)

    async def both():
        large = asyncio.create_task(ask(["aaa"] * (5 * SLICE_TEXTS)))
        small = asyncio.create_task(ask(["b"]))
        await asyncio.sleep(0)
        gate.set()
        return await asyncio.gather(large, small)

    large, small = asyncio.run(both())
    assert (large, small) == ([6.0] * (5 * SLICE_TEXTS), [2.0])
    assert ("b", 1) in order[:3]
    assert len(order) == 6
    tokenising.close()


def test_an_error_of_the_tokeniser_is_the_error_of_its_request(scheduler, caplog):
    tokenising = Tokenising(scheduler)

    def encode(texts):
        raise ValueError(texts[0])

    async def ask():
        job = scheduler.job(Flow.lasting(60), tokens=1, finish=list)
        work = job.work(DoublingLane(), 1)
        tokenising.add(Texts(work, [SECRET], [1], encode))
        return await scheduler.result(job)

    with pytest.raises(RequestError, match="failed to answer"):
        asyncio.run(ask())
    assert "ValueError" in caplog.text
    assert SECRET not in caplog.text
    assert scheduler.queued_tokens == 0
    tokenising.close()


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_every_request_gets_its_own_results_once(data):
    requests = data.draw(
        st.lists(
            st.tuples(
                st.integers(0, 1),  # the lane
                st.lists(st.integers(0, 500), min_size=1, max_size=90),
                st.sampled_from(["stays", "stays", "goes", "late"]),
                st.integers(0, 3),  # how many turns of the loop it waits before it asks
            ),
            min_size=1,
            max_size=12,
        )
    )
    bad = data.draw(st.sets(st.integers(0, 500), max_size=1))
    lanes = [DoublingLane("one", bad), DoublingLane("other")]
    scheduler = Scheduler(max_queue_tokens=10_000)

    async def one(number, numbers, fate, turns):
        for _ in range(turns):
            await asyncio.sleep(0)
        flow = Flow.lasting(1e-4 if fate == "late" else 60)
        task = asyncio.create_task(doubled(scheduler, lanes[number], numbers, flow))
        if fate == "goes":
            await asyncio.sleep(0)
            task.cancel()
        try:
            return await task
        except asyncio.CancelledError:
            return "gone"
        except RequestError as error:
            return error.status

    async def ask():
        return await asyncio.gather(*(one(*request) for request in requests))

    try:
        answers = asyncio.run(ask())
    finally:
        scheduler.close()
    for (number, numbers, fate, _), answer in zip(requests, answers, strict=True):
        right = 500 if set(lanes[number].bad) & set(numbers) else [2 * n for n in numbers]
        allowed = [right, *{"goes": ["gone"], "late": [504]}.get(fate, [])]
        assert answer in allowed
    assert scheduler.queued_tokens == 0
    assert not scheduler._jobs


def test_a_request_that_is_given_up_in_the_middle_frees_the_queue(scheduler):
    """What was held for texts that are never tokenised is given back."""
    tokenising, gate = Tokenising(scheduler), threading.Event()

    def encode(texts):
        assert gate.wait(30)
        return [1] * len(texts)

    async def ask():
        job = scheduler.job(Flow.lasting(60), tokens=500, finish=list)
        work = job.work(DoublingLane(), 500)
        tokenising.add(Texts(work, ["a"] * 500, [1] * 500, encode))
        waiting = asyncio.create_task(scheduler.result(job))
        await asyncio.sleep(0.01)
        waiting.cancel()
        await asyncio.wait([waiting])
        gate.set()
        assert await doubled(scheduler, DoublingLane(), [2]) == [4]

    asyncio.run(ask())
    tokenising.close()
    assert scheduler.queued_tokens == 0


def test_seconds_of_a_call_are_those_of_its_stage(scheduler):
    flow = Flow.lasting(60)

    async def ask():
        return await scheduler.call(flow, lambda: time.sleep(0.01) or 5, stage="search")

    assert asyncio.run(ask()) == 5
    assert flow.times.search >= 0.01
    assert flow.times.model == 0
