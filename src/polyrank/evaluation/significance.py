"""How sure a figure of a sample is, and whether two models differ. Arrays only: knows no models.

    bootstrap_intervals    BCa bootstrap intervals of means (Efron, 1987)
    sample_intervals       the same of any figures of a sample
    randomisation_tests    paired randomisation tests: signs of differences, flipped at random
    exchange_tests         the same of any figures: predictions, exchanged at random
    holm                   p-values, corrected for how many there are (Holm, 1979)

Letters: n queries, R rows of values, P pairs of models, S samples drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
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
    means = np.concatenate(
        [rows @ times.T / count for times in resamples(count, num_resamples, seed)], axis=1
    )  # (R, S)
    return [
        corrected(float(row.mean()), row - row.mean(), float(np.abs(row).max()), drawn, confidence)
        for row, drawn in zip(rows, means, strict=True)
    ]


def sample_intervals(
    figures: Callable[[Array], Array],
    count: int,
    *,
    confidence: float = 0.95,
    num_resamples: int = 10_000,
    seed: int = 0,
) -> list[Interval]:
    """The interval of each figure of a sample of `count` queries, over queries drawn anew.

    `figures` says what they are where each query counts as often as (S, n) says: (R, S). The draws
    are those of `bootstrap_intervals`; the acceleration is that of the jackknife, in which one
    query after the other is left out.
    """
    require(0 < confidence < 1, "confidence", "between 0 and 1", confidence)
    require(num_resamples >= 1, "num_resamples", "at least 1", num_resamples)
    observed = figures(np.ones((1, count)))[:, 0]  # (R,)
    drawn = np.concatenate(
        [figures(times) for times in resamples(count, num_resamples, seed)], axis=1
    )  # (R, S)
    spread = np.zeros((len(observed), count))  # (R, n)
    if count > 1:
        without = np.concatenate([figures(times) for times in left_out(count)], axis=1)  # (R, n)
        spread = (count - 1) * (without.mean(axis=1, keepdims=True) - without)
    return [
        corrected(
            float(one), row, max(abs(float(one)), float(np.abs(draws).max())), draws, confidence
        )
        for one, row, draws in zip(observed, spread, drawn, strict=True)
    ]


def resamples(count: int, num_resamples: int, seed: int) -> Iterator[Array]:
    """Yield how often each query was drawn in each sample, in blocks: (S, n)."""
    generator = np.random.default_rng(seed)
    for size in blocks(num_resamples, count):
        drawn = generator.integers(count, size=(size, count))
        places = drawn + count * np.arange(size)[:, None]
        times = np.bincount(places.ravel(), minlength=size * count).reshape(size, count)
        yield times.astype(np.float64)


def left_out(count: int) -> Iterator[Array]:
    """Yield the samples without one query each, in blocks: (S, n)."""
    start = 0
    for size in blocks(count, count):
        times = np.ones((size, count))
        times[np.arange(size), start + np.arange(size)] = 0
        start += size
        yield times


def corrected(
    mean: float, spread: Array, scale: float, means: Array, confidence: float
) -> Interval:
    """The BCa interval of a figure, from its values in resamples (S,).

    `mean` is its value, `scale` the size of what it is made of, and `spread` (n,) what each query
    does to it: for a mean, the values less the mean. With z₀ the normal quantile of the share of
    resamples below the mean and a the skewness of the spread over 6 √n, the ends are the quantiles
    Φ(z₀ + (z₀ + z) / (1 − a (z₀ + z))) for the quantiles z of the confidence.
    """
    squares = float((spread**2).sum())
    tolerance = ROUNDING * max(scale, 1e-300)
    below = float((means < mean - tolerance).mean())
    equal = float((np.abs(means - mean) <= tolerance).mean())
    share = below + equal / 2
    if squares <= len(spread) * tolerance**2 or not 0 < share < 1:
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
    rows = as_rows(differences)
    rows = rows[:, (rows != 0).any(axis=0)]  # a difference of zero has no sign
    sums = rows.sum(axis=1)
    return exchange_tests(
        lambda signs: 2 * (rows @ signs.T) - sums[:, None],
        rows.shape[1],
        reached=np.abs(sums) - ROUNDING * np.abs(rows).sum(axis=1),
        num_permutations=num_permutations,
        seed=seed,
    )


def exchange_tests(
    differences: Callable[[Array], Array],
    count: int,
    *,
    reached: Array | None = None,
    num_permutations: int = 100_000,
    seed: int = 0,
) -> Array:
    """Two-sided p-values (P,) that two models do not differ in a figure, for P pairs of models.

    `differences` says what the differences are where both models keep their predictions for the
    queries with 1 in (S, n), of `count` queries, and exchange those for the queries with 0: (P, S).
    The p-value is the share of random exchanges whose difference is at least as far from zero as
    the one that was seen, that one counted too, as for `randomisation_tests`. `reached` (P,) is
    that distance, by default what `differences` says without an exchange.
    """
    require(num_permutations >= 1, "num_permutations", "at least 1", num_permutations)
    if reached is None:
        reached = np.abs(differences(np.ones((1, count)))[:, 0]) - ROUNDING
    generator = np.random.default_rng(seed)
    hits = np.zeros(len(reached), dtype=np.int64)
    for size in blocks(num_permutations, count):
        bits = np.frombuffer(generator.bytes(-(-size * count // 8)), np.uint8)
        kept = np.unpackbits(bits, count=size * count).reshape(size, count).astype(np.float64)
        hits += (np.abs(differences(kept)) >= reached[:, None]).sum(axis=1)
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
            f"A statistic needs rows of finite values, one per query, got shape {rows.shape}.",
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
