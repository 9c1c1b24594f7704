"""Figures as functions of the sample: of samples drawn anew, and after exchanges."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from sklearn import metrics

from polyrank.evaluation.comparison import Contender, compare_contenders
from polyrank.evaluation.pairs import PairResults, pearson, spearman
from polyrank.evaluation.significance import (
    bootstrap_intervals,
    exchange_tests,
    randomisation_tests,
    sample_intervals,
)
from polyrank.evaluation.statistics import CorrelationOf, MacroF1Of, MeanOf

NAMES = ["a", "b", "c"]
numbers = st.lists(
    st.tuples(st.integers(0, 4), st.integers(-3, 3), st.integers(0, 3)), min_size=3, max_size=20
)


@given(numbers, st.booleans())
def test_a_correlation_of_a_sample_is_that_of_the_repeated_pairs(rows, ranked):
    """Weights give what writing a pair down as often gives, ties and all."""
    labels, predicted, times = np.array(rows, dtype=float).T
    times[0] += 1  # at least one pair
    repeated = np.repeat(np.arange(len(rows)), times.astype(int))
    expected = (spearman if ranked else pearson)(predicted[repeated], labels[repeated])
    figure = CorrelationOf(predicted[None], labels, ranked)
    assert figure.resampled(times[None])[0] == pytest.approx(expected, abs=1e-9)
    assert figure.value == pytest.approx(
        (spearman if ranked else pearson)(predicted, labels), abs=1e-9
    )
    assert figure.terms.mean() == pytest.approx(figure.value, abs=1e-9)


@given(numbers)
def test_macro_f1_of_a_sample_is_that_of_the_repeated_pairs(rows):
    labels, predicted, times = np.array(rows).T
    labels, predicted = np.array(NAMES)[labels % 3], np.array(NAMES)[predicted % 3]
    times[0] += 1
    repeated = np.repeat(np.arange(len(rows)), times)
    figure = MacroF1Of.of(labels, [predicted], NAMES)
    expected = metrics.f1_score(labels[repeated], predicted[repeated], average="macro")
    assert figure.resampled(times[None].astype(float))[0] == pytest.approx(expected)
    other = MacroF1Of.of(labels, [labels], NAMES)
    kept = (times > 1).astype(float)
    mine, theirs = np.where(kept == 1, predicted, labels), np.where(kept == 1, labels, predicted)
    expected = metrics.f1_score(labels, mine, average="macro") - metrics.f1_score(
        labels, theirs, average="macro"
    )
    assert figure.exchanged(other, kept[None])[0] == pytest.approx(expected)


def test_intervals_and_tests_of_means_are_the_same_either_way():
    rows = np.random.default_rng(0).normal(size=(3, 40))
    found = sample_intervals(
        lambda times: np.stack([MeanOf(row).resampled(times) for row in rows]),
        40,
        num_resamples=500,
        seed=3,
    )
    expected = bootstrap_intervals(rows, num_resamples=500, seed=3)
    np.testing.assert_allclose(found, expected, atol=1e-9)
    p_values = exchange_tests(
        lambda kept: np.stack([MeanOf(row).exchanged(MeanOf(0 * row), kept) for row in rows[:1]]),
        40,
        num_permutations=2000,
        seed=1,
    )
    np.testing.assert_allclose(
        p_values, randomisation_tests(rows[:1], num_permutations=2000, seed=1)
    )


def test_an_interval_of_a_correlation_is_that_of_scipy():
    """BCa with the acceleration of the jackknife, as scipy.stats.bootstrap computes it."""
    generator = np.random.default_rng(1)
    labels = generator.normal(size=60)
    predicted = labels + generator.normal(size=60)
    figure = CorrelationOf(predicted[None], labels, ranked=False)
    [found] = sample_intervals(
        lambda times: figure.resampled(times)[None], 60, num_resamples=20_000, seed=0
    )
    theirs = stats.bootstrap(
        (predicted, labels),
        lambda x, y: stats.pearsonr(x, y).statistic,
        paired=True,
        vectorized=False,
        n_resamples=4000,
        method="BCa",
        rng=np.random.default_rng(2),
    ).confidence_interval
    assert tuple(found) == pytest.approx(tuple(theirs), abs=0.02)


def contender(name, labels, *runs, classes=None):
    ids = tuple(map(str, range(len(labels))))
    results = tuple(
        PairResults(ids=ids, gold=labels, predicted=run, classes=classes) for run in runs
    )
    return Contender(name=name, architecture="bi", sources=(name,) * len(runs), runs=results)


def test_a_difference_of_correlations_is_found_where_there_is_one():
    generator = np.random.default_rng(0)
    labels = generator.integers(0, 6, size=300) / 5
    noise = generator.normal(size=(4, 300))
    good, alike = labels + 0.3 * noise[0], labels + 0.3 * noise[1]
    models = [
        contender("good", labels, good, labels + 0.3 * noise[3]),
        contender("alike", labels, 100 + 7 * alike),  # another scale
        contender("bad", labels, labels + 1.5 * noise[2]),
    ]
    for metric in ("spearman", "pearson"):
        found = compare_contenders(models, metric=metric, num_resamples=1000, num_permutations=5000)
        p = {frozenset((each.better, each.other)): each.p_holm for each in found.differences}
        assert p[frozenset(("good", "alike"))] > 0.05
        assert p[frozenset(("good", "bad"))] < 0.001 < p[frozenset(("good", "alike"))]
        mean = found.means["good"][metric]
        assert mean.mean == pytest.approx(np.mean(mean.by_run))
        assert mean.interval.low < mean.mean < mean.interval.high
        assert 0 < mean.interval.high - mean.interval.low < 0.15
    with_itself = [models[0], contender("again", labels, good, labels + 0.3 * noise[3])]
    [same] = compare_contenders(with_itself, num_resamples=100, num_permutations=100).differences
    assert (same.difference, same.p) == (0, 1)


def test_models_that_number_the_classes_otherwise_are_compared_by_name():
    generator = np.random.default_rng(0)
    labels = generator.integers(0, 3, size=200).astype(float)
    wrong = np.where(generator.random(200) < 0.4, (labels + 1) % 3, labels)
    models = [
        contender("right", labels, labels, classes=("a", "b", "c")),
        contender("wrong", 2 - labels, 2 - wrong, classes=("c", "b", "a")),
    ]
    for metric in ("accuracy", "macro_f1"):
        found = compare_contenders(models, metric=metric, num_resamples=500, num_permutations=2000)
        [difference] = found.differences
        assert difference.better == "right"
        assert difference.p < 0.01
        expected = metrics.f1_score(labels, wrong, average="macro")
        assert found.means["wrong"]["macro_f1"].mean == pytest.approx(expected)
        assert found.means["right"]["macro_f1"].interval == (1, 1)
