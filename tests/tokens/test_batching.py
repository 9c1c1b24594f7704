import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from polyrank.tokens.batching import batches, collate, in_order, mask_of, plan

LENGTHS = st.lists(st.integers(0, 40), max_size=60)


@given(LENGTHS, st.integers(1, 200))
def test_plan_covers_every_row_once_within_the_budget(lengths, budget):
    groups = plan(lengths, budget)
    assert sorted(row for group in groups for row in group) == list(range(len(lengths)))
    for group in groups:
        longest = max(lengths[row] for row in group)
        assert len(group) == 1 or longest * len(group) <= budget


@given(LENGTHS)
def test_plan_goes_from_the_longest_to_the_shortest(lengths):
    ordered = [lengths[row] for group in plan(lengths, 50) for row in group]
    assert ordered == sorted(lengths, reverse=True)


def test_plan_fills_its_groups():
    assert [len(group) for group in plan([4] * 10, 16)] == [4, 4, 2]


def test_a_row_beyond_the_budget_is_a_group_of_its_own():
    assert [group.tolist() for group in plan([3, 100, 3], 10)] == [[1], [0, 2]]


def test_no_rows_are_no_groups():
    assert plan([]) == []


def test_collate_pads_on_the_right():
    batch = collate([[7, 8, 9], [5], [4, 4]], np.array([1, 0]), 0, [[0, 0, 1], [1], [0, 0]])
    assert batch["input_ids"].tolist() == [[5, 0, 0], [7, 8, 9]]
    assert batch["attention_mask"].tolist() == [[1, 0, 0], [1, 1, 1]]
    assert batch["token_type_ids"].tolist() == [[1, 0, 0], [0, 0, 1]]
    assert batch["rows"].tolist() == [1, 0]


def test_a_real_token_with_the_id_of_padding_is_no_padding():
    batch = collate([[1, 0], [1]], np.array([0, 1]), 0)
    assert batch["attention_mask"].tolist() == [[1, 1], [1, 0]]


def test_without_padding_there_is_no_mask_and_all_is_real():
    batch = collate([[1, 2], [3, 4]], np.array([0, 1]), 0)
    assert "attention_mask" not in batch
    assert mask_of(batch).tolist() == [[True, True], [True, True]]


@given(st.lists(st.lists(st.integers(1, 99), min_size=1, max_size=9), min_size=1, max_size=30))
def test_results_come_back_in_the_callers_order(sequences):
    parts = batches(sequences, 0, budget=20)
    sums = in_order([batch["input_ids"].sum(dim=1) for batch in parts], parts)
    assert sums.tolist() == [sum(sequence) for sequence in sequences]


@pytest.mark.parametrize("budget", [1, 7, 1000])
def test_only_real_tokens_are_in_the_mask(budget):
    sequences = [[1] * length for length in (3, 9, 1, 5, 9)]
    parts = batches(sequences, 0, budget=budget)
    assert sum(int(mask_of(batch).sum()) for batch in parts) == 27
    assert all(torch.equal(mask_of(batch), batch["input_ids"] != 0) for batch in parts)
