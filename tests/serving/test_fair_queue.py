"""Fair order: who runs next. Fake lanes, no threads, no seconds."""

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polyrank.serving.scheduling.fair_queue import QUANTUM, FairQueue
from polyrank.serving.scheduling.flow import Flow
from polyrank.serving.scheduling.jobs import Job
from polyrank.tokens.batching import plan

BUDGET = 100


class FakeLane:
    """Items are their own costs; a batch is cut as a model's is."""

    name = "fake"
    stage = "model"

    def __init__(self, budget=BUDGET, window=4):
        self.budget = budget
        self.window = window * budget

    def costs(self, items):
        return list(items)

    def together(self, items, costs):
        return next(group.tolist() for group in plan(costs, self.budget) if 0 in group)

    def results(self, count):
        return [None] * count


@pytest.fixture
def queue():
    return FairQueue()


def job_of(flow=None):
    async def make():
        return Job(flow or Flow.lasting(60), list)

    return asyncio.run(make())


def pushed(queue, lane, costs, flow=None):
    work = job_of(flow).work(lane, len(costs))
    queue.push(work, costs, lane.costs(costs))
    return work


def batch_of(queue):
    lane, batch = queue.next_batch()
    return lane, [(work, place) for _, _, place, work in batch]


def test_a_request_of_one_text_runs_next_beside_one_of_10000(queue):
    lane = FakeLane()
    lengths = [5 + 7 * place % 60 for place in range(10_000)]
    large = pushed(queue, lane, lengths)
    for _ in range(20):
        assert {work for work, _ in batch_of(queue)[1]} == {large}
    small = pushed(queue, lane, [10])
    runs = [batch_of(queue)[1] for _ in range(2)]
    assert any((small, 0) in batch for batch in runs)


def test_a_large_request_goes_on_beside_an_endless_stream_of_small_ones(queue):
    lane = FakeLane()
    large = pushed(queue, lane, [50] * 1000)
    for _ in range(4):
        pushed(queue, lane, [50])
    served = 0
    for _ in range(1000):
        for work, _ in batch_of(queue)[1]:
            served += work is large
            if work is not large:
                pushed(queue, lane, [50])  # its client asks again at once
    assert served >= 250  # a fifth would be 400


def test_a_request_within_the_quantum_does_not_wait_for_those_that_come_later(queue):
    lane = FakeLane()
    usual = pushed(queue, lane, [50] * (QUANTUM // 50))
    for _ in range(9):
        pushed(queue, lane, [50])
    total = 0
    while usual.pending:
        for work, _ in batch_of(queue)[1]:
            total += 50
            if work is not usual:
                pushed(queue, lane, [50])
    assert total <= 2 * QUANTUM + 9 * 50 + 2 * lane.window  # in equal shares it would be 10 quanta


def test_two_large_requests_advance_alike(queue):
    lane = FakeLane()
    works = [pushed(queue, lane, [20] * 2000) for _ in range(2)]
    counts = dict.fromkeys(works, 0)
    for _ in range(700):
        for work, _ in batch_of(queue)[1]:
            counts[work] += 1
        first, second = counts.values()
        assert abs(first - second) * 20 <= QUANTUM + lane.window


def test_the_oldest_item_chooses_the_lane(queue):
    one, other = FakeLane(), FakeLane()
    pushed(queue, one, [50] * 3)
    pushed(queue, other, [50])
    assert batch_of(queue)[0] is one
    assert batch_of(queue)[0] is other
    assert batch_of(queue)[0] is one
    assert queue.next_batch() is None
    assert not queue


def test_a_batch_joins_requests_of_equal_length(queue):
    lane = FakeLane()
    works = [pushed(queue, lane, [10, 50]) for _ in range(2)]
    assert sorted(place for _, place in batch_of(queue)[1]) in ([0, 0], [1, 1])
    assert len(batch_of(queue)[1]) == 2
    assert works[0].pending == works[1].pending == 0


def test_what_is_dropped_never_runs(queue):
    lane = FakeLane()
    gone = pushed(queue, lane, [10] * 1000)
    stays = pushed(queue, lane, [10] * 30)
    batch_of(queue)
    gone.job.is_dead = True
    queue.drop(gone.job)
    assert gone.job.flow.waiting == 0
    while queue:
        chosen = queue.next_batch()
        if chosen is not None:
            assert all(entry[3] is stays for entry in chosen[1])
    assert stays.pending == 0


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_every_item_runs_once_and_no_batch_is_padded_beyond_the_plan(data):
    queue, lanes = FairQueue(), [FakeLane(), FakeLane(40)]
    seen, expected = set(), set()
    for _ in range(data.draw(st.integers(1, 12))):
        if data.draw(st.booleans()):
            lane = data.draw(st.sampled_from(lanes))
            costs = data.draw(st.lists(st.integers(1, 120), min_size=1, max_size=30))
            work = pushed(queue, lane, costs)
            expected |= {(work, place) for place in range(len(costs))}
        elif queue:
            run_one(queue, seen)
    while queue:
        run_one(queue, seen)
    assert seen == expected


def run_one(queue, seen):
    chosen = queue.next_batch()
    if chosen is None:
        return
    lane, batch = chosen
    costs = [work.costs[place] for _, _, place, work in batch]
    assert len(costs) == 1 or max(costs) * len(costs) <= lane.budget
    for _, _, place, work in batch:
        assert (work, place) not in seen
        seen.add((work, place))


def test_many_waiting_items_cost_each_step_no_more_than_the_window():
    """Choosing a batch looks at the window, whatever waits behind it."""
    lane, queue = CountingLane(), FairQueue()
    pushed(queue, lane, [10] * 100_000)
    for _ in range(50):
        batch_of(queue)
    assert max(lane.looked_at) <= lane.window // 10
    assert len(next(iter(queue._lanes.values())).window) <= lane.window // 10


class CountingLane(FakeLane):
    def __init__(self):
        super().__init__()
        self.looked_at = []

    def together(self, items, costs):
        self.looked_at.append(len(items))
        return super().together(items, costs)
