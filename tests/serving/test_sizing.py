"""How large a batch is, and where lengths are cut."""

import math
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from polyrank.serving.scheduling.sizing import (
    FEWEST_TOKENS,
    OVERHEAD,
    SECONDS,
    Speed,
    of_like_length,
)
from polyrank.tokens.batching import plan

lengths = st.lists(st.integers(1, 300), min_size=1, max_size=60)


def test_the_speed_is_the_line_through_the_batches():
    speed = Speed()
    for tokens in (10, 500, 80, 2000, 10, 300):
        speed.add(tokens, 0.003 + 6e-5 * tokens)
    overhead, slope = speed.line
    assert slope == pytest.approx(6e-5, rel=1e-3)
    assert overhead == speed.overhead == pytest.approx(50, rel=1e-3)
    assert speed.limit(4096) == pytest.approx(SECONDS / 6e-5, abs=2)


def test_a_fast_device_fills_the_budget_and_a_slow_one_keeps_the_fewest():
    fast, slow = Speed(), Speed()
    for tokens in (10, 1000, 4000):
        fast.add(tokens, 0.004 + 1e-6 * tokens)
        slow.add(tokens, 0.004 + 1e-3 * tokens)
    assert fast.limit(4096) == 4096
    assert slow.limit(4096) == FEWEST_TOKENS
    assert slow.limit(100) == 100


def test_a_large_fixed_part_makes_batches_larger_but_at_most_twice_as_long():
    for fixed, seconds in ((0.004, 0.064), (0.03, 2 * SECONDS)):
        speed = Speed()
        for tokens in (10, 500, 80, 2000):
            speed.add(tokens, fixed + 6e-5 * tokens)
        assert speed.limit(4096) == pytest.approx(seconds / 6e-5, rel=0.01)


def test_an_unknown_speed_changes_nothing():
    assert Speed().line == (OVERHEAD, 0.0)
    assert Speed().limit(4096) == 4096


def test_batches_of_one_size_or_noise_give_a_usable_speed():
    same, falling = Speed(), Speed()
    for _ in range(5):
        same.add(100, 0.01)
    falling.add(10, 0.02)
    falling.add(1000, 0.01)  # another process had the cores
    for speed in (same, falling):
        overhead, slope = speed.line
        assert overhead >= 1
        assert slope > 0
        assert FEWEST_TOKENS <= speed.limit(4096) <= 4096


@given(lengths, st.integers(32, 1000), st.floats(1, 500))
def test_a_batch_has_the_oldest_and_keeps_the_limit(costs, limit, overhead):
    places = list(of_like_length(costs, limit, overhead))
    chosen = [costs[place] for place in places]
    assert places[0] == 0
    assert places == sorted(set(places))
    assert len(chosen) == 1 or max(chosen) * len(chosen) <= limit


@given(lengths, st.integers(300, 1000), st.floats(1, 500))
def test_batches_cost_no_more_than_those_of_the_plan(costs, limit, overhead):
    def cost(groups):
        return sum(overhead + max(group) * len(group) for group in groups)

    planned = cost([[costs[place] for place in group] for group in plan(costs, limit)])
    left, groups = list(costs), []
    while left:
        places = set(of_like_length(left, limit, overhead))
        groups.append([left[place] for place in places])
        left = [one for place, one in enumerate(left) if place not in places]
    # a cut in fair order within a group can make one more batch than a cut by length
    assert cost(groups) <= planned + overhead * len(groups) + limit


def test_texts_of_mixed_lengths_are_computed_with_little_padding():
    draw, limit, overhead = random.Random(0), 800, 50
    waiting = [round(math.exp(draw.uniform(math.log(3), math.log(250)))) for _ in range(400)]

    def share(choose):
        left, real, computed = list(waiting), 0, 0
        while left:
            places = set(choose(left))
            group = [left[place] for place in places]
            real += sum(group)
            computed += max(group) * len(group)
            left = [one for place, one in enumerate(left) if place not in places]
        return real / computed

    seen = 32  # as many as wait when as many clients ask
    assert share(lambda left: of_like_length(left[:seen], limit, overhead)) > 0.85
    assert share(lambda left: next(g for g in plan(left[:seen], 4096) if 0 in g)) < 0.6


@pytest.mark.parametrize("costs", [[7], [7, 7, 7], [250, 3], [3, 250]])
def test_few_items(costs):
    chosen = [costs[place] for place in of_like_length(costs, 1000, 50)]
    assert len(set(chosen)) == 1
    assert np.count_nonzero(np.array(costs) == costs[0]) == len(chosen)
