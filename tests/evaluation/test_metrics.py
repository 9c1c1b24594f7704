from __future__ import annotations

from fractions import Fraction
from itertools import permutations
from math import log2

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from polyrank.errors import ModelError, UsageError
from polyrank.evaluation.metric_names import parse_metric
from polyrank.evaluation.metrics import (
    expected_rank,
    expected_recall,
    expected_values,
    gold_ranks,
)

few_values = st.lists(st.integers(-2, 2), min_size=1, max_size=5)


def enumerate_orders(scores: list[int], gold: int) -> list[int]:
    """The gold rank in every order of the candidates that the scores allow."""
    ranks = []
    for order in permutations(range(len(scores))):
        ordered = [scores[i] for i in order]
        if ordered == sorted(scores, reverse=True):
            ranks.append(order.index(gold) + 1)
    return ranks


@given(few_values, st.data())
def test_metrics_equal_the_mean_over_all_orders_of_the_ties(
    scores: list[int], data: st.DataObject
) -> None:
    gold = data.draw(st.integers(0, len(scores) - 1))
    orders = enumerate_orders(scores, gold)
    ranks = gold_ranks([np.array(scores, dtype=np.float32)], [gold])
    mean_rank = Fraction(sum(orders), len(orders))
    mean_reciprocal = sum(Fraction(1, rank) for rank in orders) / len(orders)
    assert expected_rank(ranks)[0] == pytest.approx(float(mean_rank))
    assert expected_values(ranks, "mrr")[0] == pytest.approx(float(mean_reciprocal))
    for k in range(1, len(scores) + 2):
        hits = Fraction(sum(rank <= k for rank in orders), len(orders))
        assert expected_recall(ranks, k)[0] == pytest.approx(float(hits))
        assert expected_values(ranks, f"recall@{k}")[0] == expected_recall(ranks, k)[0]
        kept = [rank for rank in orders if rank <= k]
        gain = sum(1 / log2(rank + 1) for rank in kept) / len(orders)
        assert expected_values(ranks, f"ndcg@{k}")[0] == pytest.approx(gain)
        reciprocal = sum(1 / rank for rank in kept) / len(orders)
        assert expected_values(ranks, f"mrr@{k}")[0] == pytest.approx(reciprocal)
    assert expected_values(ranks, "map")[0] == expected_values(ranks, "mrr")[0]


@given(st.integers(1, 200), st.integers(1, 250), st.floats(-5, 5))
def test_a_constant_scorer_scores_chance(count: int, k: int, value: float) -> None:
    ranks = gold_ranks([np.full(count, value)], [count // 2])
    assert expected_recall(ranks, k)[0] == min(1, k / count)
    harmonic = sum(1 / rank for rank in range(1, count + 1))
    assert expected_values(ranks, "mrr")[0] == pytest.approx(harmonic / count)


@given(few_values, st.randoms(use_true_random=False))
def test_the_order_of_candidates_changes_nothing(scores: list[int], random: object) -> None:
    order = list(range(len(scores)))
    random.shuffle(order)  # type: ignore[attr-defined]
    first = gold_ranks([np.array(scores)], [0])
    second = gold_ranks([np.array([scores[i] for i in order])], [order.index(0)])
    assert expected_values(first, "mrr") == expected_values(second, "mrr")
    assert expected_recall(first, 2) == expected_recall(second, 2)


def test_examples_may_have_different_numbers_of_candidates() -> None:
    ranks = gold_ranks([np.array([1.0, 2.0]), np.array([3.0]), np.array([0.0, 1, 2, 3])], [0, 0, 2])
    assert ranks.num_candidates.tolist() == [2, 1, 4]
    assert expected_rank(ranks).tolist() == [2, 1, 2]
    assert expected_values(ranks, "mrr").tolist() == [0.5, 1, 0.5]


def test_infinite_scores_are_ranked() -> None:
    ranks = gold_ranks([np.array([-np.inf, -np.inf, 0, np.inf])], [0])
    assert (ranks.above.tolist(), ranks.tied.tolist()) == ([2], [1])


def test_a_score_that_is_no_number_names_the_example() -> None:
    with pytest.raises(ModelError, match="1 of the 2 candidates of the example number 2 with NaN"):
        gold_ranks([np.array([1.0, 2]), np.array([1.0, np.nan])], [0, 0])
    with pytest.raises(ModelError, match="example q7"):
        gold_ranks([np.array([np.nan])], [0], ["q7"])


@pytest.mark.parametrize(
    "name", ["recall", "recall@0", "ndcg", "ndcg@-1", "map@5", "MRR", "hits@1"]
)
def test_an_unknown_metric_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="no metric") as refusal:
        parse_metric(name)
    assert "recall@K, ndcg@K, mrr@K, mrr or map" in refusal.value.remedy
