from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from scipy import stats

from polyrank.errors import UsageError
from polyrank.evaluation import significance
from polyrank.evaluation.significance import bootstrap_intervals, holm, randomisation_tests


def enumerated(differences: np.ndarray) -> float:
    """The exact p-value, over all choices of signs."""
    sums = [abs(np.dot(signs, differences)) for signs in product((-1, 1), repeat=len(differences))]
    return float(np.mean(np.array(sums) >= abs(differences.sum()) - 1e-12))


def test_the_interval_is_scipys() -> None:
    generator = np.random.default_rng(3)
    for values in (generator.gamma(0.5, size=80), generator.random(200) < 0.9):
        given = values.astype(float)
        [found] = bootstrap_intervals(given, num_resamples=20_000, seed=1)
        expected = stats.bootstrap(
            (given,), np.mean, method="BCa", n_resamples=20_000, rng=np.random.default_rng(2)
        ).confidence_interval
        error = given.std() / len(given) ** 0.5  # the standard error of the mean
        assert found.low == pytest.approx(expected.low, abs=0.1 * error)
        assert found.high == pytest.approx(expected.high, abs=0.1 * error)


def test_the_interval_holds_the_true_mean_as_often_as_it_says() -> None:
    generator = np.random.default_rng(0)
    rows = generator.random((300, 60)) < 0.7
    found = bootstrap_intervals(rows.astype(float), num_resamples=1000, confidence=0.9)
    assert 0.85 < np.mean([low <= 0.7 <= high for low, high in found]) < 0.95


def test_intervals_of_special_rows() -> None:
    whole, none, one = bootstrap_intervals([[1.0] * 9, [0.0] * 9, [0.0] * 8 + [1.0]])
    assert whole == (1.0, 1.0)
    assert none == (0.0, 0.0)
    assert 0 <= one.low <= 1 / 9 <= one.high <= 1
    assert bootstrap_intervals([0.1]) == [(0.1, 0.1)]
    narrow, wide = (
        bootstrap_intervals(np.arange(50.0), confidence=confidence)[0] for confidence in (0.5, 0.99)
    )
    assert wide.low < narrow.low < 24.5 < narrow.high < wide.high


@pytest.mark.parametrize("scale", [1.0, 0.1])
def test_the_randomisation_test_is_the_enumeration(scale: float) -> None:
    generator = np.random.default_rng(5)
    rows = np.stack([generator.integers(-1, 3, 11), generator.normal(0.4, 1, 11)]) * scale
    found = randomisation_tests(rows, num_permutations=40_000)
    assert found == pytest.approx([enumerated(row) for row in rows], abs=0.01)
    for row, p in zip(rows, found, strict=True):
        theirs = stats.permutation_test(
            (row, np.zeros(11)),
            lambda first, second: np.mean(first - second),
            permutation_type="samples",
            n_resamples=np.inf,
        )
        assert p == pytest.approx(theirs.pvalue, abs=0.01)
    assert randomisation_tests(-rows, num_permutations=40_000) == pytest.approx(found, abs=0.01)


def test_no_difference_is_certainly_chance() -> None:
    assert randomisation_tests(np.zeros(30)).tolist() == [1.0]
    both = randomisation_tests([np.zeros(30), np.ones(30)], num_permutations=999)
    assert both.tolist() == [1.0, 0.001]


def test_the_level_is_kept_where_models_do_not_differ() -> None:
    generator = np.random.default_rng(7)
    for rows in (generator.normal(size=(1000, 25)), generator.integers(-1, 2, (1000, 40))):
        rejected = np.mean(randomisation_tests(rows, num_permutations=999) <= 0.05)
        assert 0.03 < rejected < 0.07


def test_what_is_drawn_depends_on_the_seed_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = np.random.default_rng(1).random((3, 37)) - 0.4
    intervals = bootstrap_intervals(rows, num_resamples=500)
    tests = randomisation_tests(rows, num_permutations=500)
    monkeypatch.setattr(significance, "BLOCK_NUMBERS", 600)
    assert np.array(bootstrap_intervals(rows, num_resamples=500)) == pytest.approx(
        np.array(intervals)
    )
    assert randomisation_tests(rows, num_permutations=500).tolist() == tests.tolist()
    assert bootstrap_intervals(rows, num_resamples=500, seed=1) != intervals


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.5, 0.6]).tolist() == [1.0, 1.0]
    assert holm([]).tolist() == []


@pytest.mark.parametrize("values", [[], [[]], [np.nan], [[1.0, np.inf]]])
def test_values_must_be_there_and_finite(values: object) -> None:
    with pytest.raises(UsageError, match="finite values"):
        bootstrap_intervals(values)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="finite values"):
        randomisation_tests(values)  # type: ignore[arg-type]
