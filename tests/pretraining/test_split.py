import pytest

from polyrank.errors import UsageError
from polyrank.pretraining.split import Split, TablesSettings


def test_the_share_is_held_out_whatever_the_order():
    split = Split(TablesSettings(held_out=0.1))
    ids = [f"article {number}" for number in range(5000)]
    held_out = {one for one in ids if split.of(one) == "held_out"}
    assert 420 < len(held_out) < 580
    again = Split(TablesSettings(held_out=0.1))
    assert held_out == {one for one in reversed(ids) if again.of(one) == "held_out"}


def test_a_larger_share_holds_out_the_same_and_more():
    small, large = (Split(TablesSettings(held_out=share)) for share in (0.05, 0.2))
    ids = [str(number) for number in range(2000)]
    first = {one for one in ids if small.of(one) == "held_out"}
    assert first < {one for one in ids if large.of(one) == "held_out"}


def test_nothing_can_be_held_out_and_a_seed_changes_what_is():
    ids = [str(number) for number in range(500)]
    assert all(Split(TablesSettings(held_out=0.0)).of(one) == "train" for one in ids)
    sides = [
        [Split(TablesSettings(held_out=0.5, split_seed=seed)).of(one) for one in ids]
        for seed in (0, 1)
    ]
    assert sides[0] != sides[1]


def test_a_list_of_ids_is_held_out_alone():
    split = Split(TablesSettings(held_out=0.5, held_out_ids=("한국", "b")))
    assert [split.of(one) for one in ("한국", "b", "c", "d")] == ["held_out"] * 2 + ["train"] * 2


@pytest.mark.parametrize("share", [-0.1, 1.0, 2.0])
def test_a_share_that_is_none_is_refused(share):
    with pytest.raises(UsageError, match="held_out"):
        TablesSettings(held_out=share)


def test_the_paths_of_a_thread_are_on_one_side():
    split = Split(TablesSettings(held_out=0.5))
    sides = [{split.of(f"t3_{thread}/{leaf}") for leaf in range(10)} for thread in range(40)]
    assert all(len(one) == 1 for one in sides)
    assert len(set.union(*sides)) == 2
    assert len({split.of(f"https://a/{page}") for page in range(40)}) == 2
