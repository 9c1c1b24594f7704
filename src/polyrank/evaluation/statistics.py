"""The figures of one model as functions of the sample: of the mean, correlations and macro F1.

Each knows its value on the sample, on samples drawn anew, and where some of its predictions are
exchanged for those of another model. Arrays only: knows no models.

Letters: n queries or pairs, R runs, L classes, S samples.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]


class Statistic(Protocol):
    """A figure of a model. One is only exchanged with another of its own kind, of the same n."""

    @property
    def count(self) -> int:
        """The number n of queries or pairs."""
        ...

    @property
    def value(self) -> float:
        """On the sample itself."""
        ...

    def resampled(self, times: Array) -> Array:
        """Where each query counts as often as `times` (S, n) says: (S,)."""
        ...

    def exchanged(self, other: Any, kept: Array) -> Array:
        """This figure less the other one: (S,), where each model keeps its own predictions for the
        queries with 1 in `kept` (S, n) and has those of the other for those with 0.
        """
        ...


@dataclass(frozen=True, eq=False)
class MeanOf:
    """The mean of a value of each query (n,)."""

    values: Array

    @property
    def count(self) -> int:
        """The number n of queries or pairs."""
        return len(self.values)

    @property
    def value(self) -> float:
        """The mean."""
        return float(self.values.mean())

    def resampled(self, times: Array) -> Array:
        """The mean over samples (S, n): (S,)."""
        means: Array = times @ self.values / times.sum(axis=1)
        return means

    def exchanged(self, other: MeanOf, kept: Array) -> Array:
        """The difference of the means after exchanges (S, n): (S,)."""
        difference = self.values - other.values
        found: Array = (2 * (kept @ difference) - difference.sum()) / len(difference)
        return found


@dataclass(frozen=True, eq=False)
class CorrelationOf:
    """Pearson's correlation of the numbers of R runs (R, n) with labels (n,), its mean over runs.

    With `ranked`, Spearman's: of their ranks, also of those in a sample. Models are exchanged by
    their standardised numbers, or ranks, since their scales differ.
    """

    predicted: Array
    labels: Array
    ranked: bool

    @property
    def count(self) -> int:
        """The number n of queries or pairs."""
        return len(self.labels)

    @property
    def value(self) -> float:
        """The correlation."""
        return float(self.resampled(np.ones((1, len(self.labels))))[0])

    def resampled(self, times: Array) -> Array:
        """The correlation over samples (S, n): (S,)."""
        labels = self.placed(self.labels, times)
        found = [weighted_pearson(self.placed(one, times), labels, times) for one in self.predicted]
        mean: Array = np.mean(found, axis=0)
        return mean

    def placed(self, numbers: Array, times: Array) -> Array:
        """The numbers (n,), or their ranks in each sample: (1, n) or (S, n)."""
        return weighted_ranks(numbers, times) if self.ranked else numbers[None]

    @property
    def terms(self) -> Array:
        """What each pair adds to the correlation, whose mean is the correlation: (n,)."""
        once = np.ones((1, len(self.labels)))
        labels = standardised(self.placed(self.labels, once)[0])
        own = [standardised(self.placed(one, once)[0]) for one in self.predicted]
        terms: Array = np.mean(own, axis=0) * labels
        return terms

    def exchanged(self, other: CorrelationOf, kept: Array) -> Array:
        """The difference of the correlations after exchanges (S, n): (S,)."""
        return MeanOf(self.terms).exchanged(MeanOf(other.terms), kept)


@dataclass(frozen=True, eq=False)
class MacroF1Of:
    """The macro F1 of which classes the pairs have (n, L) and were given (n, L).

    Of several runs, `given` is the share of the runs: their counts are taken together.
    """

    has: Array
    given: Array

    @classmethod
    def of(cls, labels: ArrayLike, predicted: ArrayLike, names: Sequence[str]) -> MacroF1Of:
        """From the names of the classes that the pairs have, (n,), and were given by runs (R, n);
        `names` are those of all classes, (L,).
        """
        known = np.array(names)
        has = (np.asarray(labels)[:, None] == known).astype(np.float64)
        given = (np.asarray(predicted)[:, :, None] == known).astype(np.float64).mean(axis=0)
        return cls(has, given)

    @property
    def count(self) -> int:
        """The number n of queries or pairs."""
        return len(self.has)

    @property
    def value(self) -> float:
        """The macro F1."""
        return float(self.resampled(np.ones((1, len(self.has))))[0])

    def resampled(self, times: Array) -> Array:
        """The macro F1 over samples (S, n): (S,)."""
        right = times @ (self.has * self.given)
        return mean_f1(right, times @ self.has, times @ self.given)

    def exchanged(self, other: MacroF1Of, kept: Array) -> Array:
        """The difference of the macro F1 after exchanges (S, n): (S,)."""
        own, others = self.mixed(other, kept), other.mixed(self, kept)
        return own - others

    def mixed(self, other: MacroF1Of, kept: Array) -> Array:
        """The macro F1 of what is kept and, for the rest, of what the other one gave: (S,)."""
        swap = self.given - other.given
        given = kept @ swap + other.given.sum(axis=0)
        right = kept @ (self.has * swap) + (self.has * other.given).sum(axis=0)
        return mean_f1(right, self.has.sum(axis=0), given)


def mean_f1(right: Array, has: Array, given: Array) -> Array:
    """The mean F1 of the classes that a pair has or was given, from counts (S, L): (S,)."""
    both = has + given
    occurs = both > 1e-9
    f1 = np.where(occurs, 2 * right / np.where(occurs, both, 1.0), 0.0)
    mean: Array = f1.sum(axis=1) / np.maximum(occurs.sum(axis=1), 1)
    return mean


def weighted_ranks(numbers: Array, times: Array) -> Array:
    """The rank of each number (n,) in samples (S, n), the mean rank for equal ones: (S, n)."""
    different, places = np.unique(numbers, return_inverse=True)
    order = np.argsort(places, kind="stable")
    starts = np.searchsorted(places[order], np.arange(len(different)))
    counts = np.add.reduceat(times[:, order], starts, axis=1)  # (S, number of different ones)
    ranks = np.cumsum(counts, axis=1) - (counts - 1) / 2
    found: Array = ranks[:, places.reshape(-1)]
    return found


def weighted_pearson(one: Array, other: Array, times: Array) -> Array:
    """Pearson's correlation of (S, n) or (1, n) with the like over samples (S, n): (S,).

    It is 0 where one of them is constant.
    """
    total = times.sum(axis=1, keepdims=True)
    left = one - (times * one).sum(axis=1, keepdims=True) / total
    right = other - (times * other).sum(axis=1, keepdims=True) / total
    products = (times * left * right).sum(axis=1)
    squares = (times * left**2).sum(axis=1) * (times * right**2).sum(axis=1)
    scale = np.abs(one).max() * np.abs(other).max() * total[:, 0]
    varies = squares > (1e-12 * scale) ** 2
    found: Array = np.where(varies, products / np.sqrt(np.where(varies, squares, 1.0)), 0.0)
    return np.clip(found, -1.0, 1.0)


def standardised(numbers: Array) -> Array:
    """Numbers (n,) with mean 0 and standard deviation 1; zeros where they are constant."""
    centred = numbers - numbers.mean()
    deviation = centred.std()
    found: Array = centred / deviation if deviation > 0 else centred
    return found
