"""How sure a mean over queries is, and whether two models differ. Arrays only: knows no models.

    bootstrap_intervals    BCa bootstrap intervals of means (Efron, 1987)
    randomisation_tests    paired randomisation tests: signs of differences, flipped at random
    holm                   p-values, corrected for how many there are (Holm, 1979)

Letters: n queries, R rows of values, P pairs of models, S samples drawn.
"""

from __future__ import annotations

from collections.abc import Iterator
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polyrank.config import require
from polyrank.errors import UsageError

Array = NDArray[np.float64]

BLOCK_NUMBERS = 1 << 21
"""At most this many numbers are drawn at once (16 MiB)."""

ROUNDING = 1e-9
"""Sums that differ by less than this share of the largest possible one are equal."""


class Interval(NamedTuple):
    """The ends of an interval."""

    low: float
    high: float


def bootstrap_intervals(
    values: ArrayLike, *, confidence: float = 0.95, num_resamples: int = 10_000, seed: int = 0
) -> list[Interval]:
    """The interval of the mean of each row of values (R, n), over queries drawn anew.

    Bias-corrected and accelerated; all rows share the draws. A row of equal values has an interval
    of no width, and the interval always holds the mean. Raises UsageError for values without
    queries or that are not finite.
    """
    require(0 < confidence < 1, "confidence", "between 0 and 1", confidence)
    require(num_resamples >= 1, "num_resamples", "at least 1", num_resamples)
    rows = as_rows(values)  # (R, n)
    count = rows.shape[1]
    generator = np.random.default_rng(seed)
    means = np.concatenate(
        [
            resampled_means(rows, generator.integers(count, size=(size, count)))
            for size in blocks(num_resamples, count)
        ],
        axis=1,
    )  # (R, S)
    return [corrected(row, drawn, confidence) for row, drawn in zip(rows, means, strict=True)]


def resampled_means(rows: Array, drawn: NDArray[np.int64]) -> Array:
    """The means of rows (R, n) over the drawn queries (S, n): (R, S)."""
    samples, count = drawn.shape
    places = drawn + count * np.arange(samples)[:, None]
    times = np.bincount(places.ravel(), minlength=samples * count).reshape(samples, count)
    means: Array = rows @ times.T.astype(np.float64) / count
    return means


def corrected(values: Array, means: Array, confidence: float) -> Interval:
    """The BCa interval of the mean of values (n,), from means of resamples (S,).

    With z₀ the normal quantile of the share of resamples below the mean and a the skewness of the
    values over 6 √n, the ends are the quantiles Φ(z₀ + (z₀ + z) / (1 − a (z₀ + z))) for the
    quantiles z of the confidence.
    """
    mean = float(values.mean())
    spread = values - mean
    squares = float((spread**2).sum())
    tolerance = ROUNDING * max(float(np.abs(values).max()), 1e-300)
    below = float((means < mean - tolerance).mean())
    equal = float((np.abs(means - mean) <= tolerance).mean())
    share = below + equal / 2
    if squares <= len(values) * tolerance**2 or not 0 < share < 1:
        return Interval(min(mean, float(means.min())), max(mean, float(means.max())))
    normal = NormalDist()
    bias = normal.inv_cdf(share)
    acceleration = float((spread**3).sum()) / (6 * squares**1.5)
    ends = []
    for tail in ((1 - confidence) / 2, (1 + confidence) / 2):
        shifted = bias + normal.inv_cdf(tail)
        divisor = max(1 - acceleration * shifted, 1e-6)
        ends.append(float(np.quantile(means, normal.cdf(bias + shifted / divisor))))
    return Interval(min(ends[0], mean), max(ends[1], mean))


def randomisation_tests(
    differences: ArrayLike, *, num_permutations: int = 100_000, seed: int = 0
) -> Array:
    """Two-sided p-values (P,) that the mean of each row of differences (P, n) is zero.

    Where two models do not differ, which of them got which value of a query is chance, so every
    sign of a difference might as well be the other. The p-value is the share of random choices of
    all signs whose sum is at least as far from zero as the one that was seen, that one counted
    too: (1 + hits) / (1 + S), never below 1 / (1 + S). All rows share the signs. Raises UsageError
    for differences without queries or that are not finite.
    """
    require(num_permutations >= 1, "num_permutations", "at least 1", num_permutations)
    rows = as_rows(differences)
    rows = rows[:, (rows != 0).any(axis=0)]  # a difference of zero has no sign
    sums = rows.sum(axis=1)
    reached = np.abs(sums) - ROUNDING * np.abs(rows).sum(axis=1)
    generator = np.random.default_rng(seed)
    hits = np.zeros(len(rows), dtype=np.int64)
    count = rows.shape[1]
    for size in blocks(num_permutations, count):
        bits = np.frombuffer(generator.bytes(-(-size * count // 8)), np.uint8)
        signs = np.unpackbits(bits, count=size * count).reshape(size, count)
        flipped = 2 * (rows @ signs.T.astype(np.float64)) - sums[:, None]  # (P, size)
        hits += (np.abs(flipped) >= reached[:, None]).sum(axis=1)
    return (1 + hits) / (1 + num_permutations)


def holm(p_values: ArrayLike) -> Array:
    """P-values (P,) corrected so that all of them together err as seldom as one.

    The i-th smallest of P, from 0, is multiplied by P − i; none becomes smaller than one before it.
    """
    given = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(given, kind="stable")
    factors = len(given) - np.arange(len(given))
    corrected = np.empty_like(given)
    corrected[order] = np.minimum(np.maximum.accumulate(given[order] * factors), 1.0)
    return corrected


def as_rows(values: ArrayLike) -> Array:
    """Values as an array (R, n) that statistics can be made of."""
    rows = np.atleast_2d(np.asarray(values, dtype=np.float64))
    if rows.ndim != 2 or not rows.shape[1] or not np.isfinite(rows).all():
        raise UsageError(
            f"A statistic needs rows of finite values, one a query, got shape {rows.shape}.",
            "Give at least one query, and leave out what is not a number.",
        )
    return rows


def blocks(total: int, width: int) -> Iterator[int]:
    """Sizes that add up to `total`, each of about BLOCK_NUMBERS / width.

    All but the last are multiples of 32, so that each draws whole words of random bits, and what is
    drawn does not depend on the blocks.
    """
    most = max(BLOCK_NUMBERS // max(width, 1) // 32 * 32, 32)
    for start in range(0, total, most):
        yield min(most, total - start)
