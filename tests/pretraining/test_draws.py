import pickle
from collections import Counter

import pytest

from polyrank.pretraining.draws import Draws, combined, mix, shuffled


@pytest.mark.parametrize("count", [1, 2, 3, 5, 16, 17, 100, 1000, 4097])
@pytest.mark.parametrize("seed", [0, 1, -5, 2**80])
def test_a_shuffled_order_has_every_number_once(count, seed):
    order = shuffled(count, seed)
    assert sorted(map(order, range(count))) == list(range(count))
    assert len(order) == count
    with pytest.raises(IndexError):
        order(count)
    with pytest.raises(IndexError):
        order(-1)


def test_orders_of_two_seeds_are_unlike_each_other_and_unlike_the_plain_one():
    orders = [[shuffled(1000, seed)(place) for place in range(1000)] for seed in (0, 1)]
    for one, other in [(orders[0], orders[1]), (orders[0], range(1000))]:
        assert sum(a == b for a, b in zip(one, other, strict=True)) < 10


def test_a_shuffled_order_leads_every_place_anywhere():
    hits = Counter(shuffled(5, seed)(0) for seed in range(2000))
    assert all(300 < hits[place] < 500 for place in range(5))


def test_an_order_of_billions_takes_no_memory_and_can_be_sent():
    order = shuffled(10**11, 3)
    copy = pickle.loads(pickle.dumps(order))
    assert [order(place) for place in (0, 1, 10**11 - 1)] == [
        copy(place) for place in (0, 1, 10**11 - 1)
    ]


def test_draws_depend_on_their_numbers_in_order():
    assert Draws(1, 2).bits() == Draws(1, 2).bits() != Draws(2, 1).bits()
    assert combined(0) != combined(0, 0)
    assert len({mix(number) for number in range(10_000)}) == 10_000


def test_draws_are_even():
    draws = Draws(7)
    counts = Counter(draws.below(7) for _ in range(14_000))
    assert set(counts) == set(range(7))
    assert all(1800 < count < 2200 for count in counts.values())
    happened = sum(draws.happens(0.1) for _ in range(20_000))
    assert 1850 < happened < 2150
    assert not draws.happens(0.0)
    assert draws.happens(1.0)
