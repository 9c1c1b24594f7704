import pickle
from collections import Counter

import pytest

from polyrank.pretraining.rng import Permutation, Random, hash_numbers, mix


@pytest.mark.parametrize("count", [1, 2, 3, 5, 16, 17, 100, 1000, 4097])
@pytest.mark.parametrize("seed", [0, 1, -5, 2**80])
def test_a_shuffled_order_has_every_number_once(count, seed):
    order = Permutation(count, seed)
    assert sorted(map(order, range(count))) == list(range(count))
    assert len(order) == count
    with pytest.raises(IndexError):
        order(count)
    with pytest.raises(IndexError):
        order(-1)


def test_orders_of_two_seeds_are_unlike_each_other_and_unlike_the_plain_one():
    orders = [[Permutation(1000, seed)(place) for place in range(1000)] for seed in (0, 1)]
    for one, other in [(orders[0], orders[1]), (orders[0], range(1000))]:
        assert sum(a == b for a, b in zip(one, other, strict=True)) < 10


def test_a_shuffled_order_leads_every_place_anywhere():
    hits = Counter(Permutation(5, seed)(0) for seed in range(2000))
    assert all(300 < hits[place] < 500 for place in range(5))


def test_an_order_of_billions_takes_no_memory_and_can_be_sent():
    order = Permutation(10**11, 3)
    copy = pickle.loads(pickle.dumps(order))
    assert [order(place) for place in (0, 1, 10**11 - 1)] == [
        copy(place) for place in (0, 1, 10**11 - 1)
    ]


def test_random_numbers_depend_on_their_numbers_in_order():
    assert Random(1, 2).bits() == Random(1, 2).bits() != Random(2, 1).bits()
    assert hash_numbers(0) != hash_numbers(0, 0)
    assert len({mix(number) for number in range(10_000)}) == 10_000


def test_random_numbers_are_even():
    rng = Random(7)
    counts = Counter(rng.below(7) for _ in range(14_000))
    assert set(counts) == set(range(7))
    assert all(1800 < count < 2200 for count in counts.values())
    happened = sum(rng.happens(0.1) for _ in range(20_000))
    assert 1850 < happened < 2150
    assert not rng.happens(0.0)
    assert rng.happens(1.0)
