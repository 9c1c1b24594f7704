import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from polyrank.errors import DataError, ModelError, UsageError
from polyrank.evaluation.pairs import (
    accuracy,
    evaluate_pairs,
    mean_ranks,
    pair_metrics,
    pearson,
    score_pairs,
    spearman,
)
from polyrank.records import LabelledPair
from tiny_encoders import VARIANTS, load_variant

PAIRS = [
    LabelledPair(first=f"how do i {one}", second=two, label=number / 5)
    for number, (one, two) in enumerate(
        [("read a file", "open it"), ("boot", "open it"), ("sort", "a list"), ("boot", "kernel")]
    )
]


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(-3, 3)), min_size=2, max_size=30))
def test_correlations_equal_those_of_scipy_also_with_ties(numbers):
    one, other = np.array(numbers, dtype=float).T
    assert mean_ranks(one) == pytest.approx(stats.rankdata(one))
    if len(set(one)) == 1 or len(set(other)) == 1:
        assert pearson(one, other) == spearman(one, other) == 0.0
        return
    assert pearson(one, other) == pytest.approx(stats.pearsonr(one, other).statistic, abs=1e-12)
    assert spearman(one, other) == pytest.approx(stats.spearmanr(one, other).statistic, abs=1e-12)


def test_a_monotone_map_leaves_spearman_as_it_is():
    values = np.random.default_rng(0).normal(size=50)
    assert spearman(values, np.exp(values)) == pytest.approx(1)
    assert spearman(values, -(values**3)) == pytest.approx(-1)


def test_accuracy_is_the_share_of_right_classes():
    logits = [[1.0, 2.0, 0.0], [3.0, 0.0, 1.0], [0.0, 0.0, 1.0], [0.0, 5.0, 1.0]]
    assert accuracy(logits, [1, 0, 2, 2]) == 0.75


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_pair_scores_what_it_scores_alone(variant, bert):
    model = load_variant(variant, bert)
    found = score_pairs(model, PAIRS)
    alone = [score_pairs(model, [pair]) for pair in PAIRS]
    torch.testing.assert_close(found, torch.cat(alone), rtol=1e-4, atol=1e-4)
    result = evaluate_pairs(model, PAIRS)
    labels = [pair.label for pair in PAIRS]
    expected = stats.spearmanr(found.numpy(), labels).statistic
    assert result["spearman"] == pytest.approx(expected, abs=1e-9)


def test_classes_meet_a_model_with_classes(bert):
    model = load_variant("cross", bert, task="classify", num_labels=2)
    pairs = [LabelledPair(first="yes", second="no", label=number % 2) for number in range(4)]
    assert evaluate_pairs(model, pairs)["accuracy"] == 0.5  # one answer for all
    with pytest.raises(UsageError, match="scores as labels"):
        evaluate_pairs(model, PAIRS)


def test_what_is_no_number_is_refused():
    with pytest.raises(ModelError, match="not a number"):
        pair_metrics(torch.tensor([0.5, torch.nan, 1.0, 2.0]), PAIRS)
    with pytest.raises(DataError, match="no pairs"):
        evaluate_pairs(None, [])
