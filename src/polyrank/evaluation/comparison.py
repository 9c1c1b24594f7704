"""Several models on one set: means with their intervals, and whether the models differ.

A model may have several runs, which differ in their seed: the values of a query are averaged over
them before anything else is done. Knows metrics; evaluates nothing and loads no model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polyrank.errors import UsageError, nearest
from polyrank.evaluation.latency import Latency
from polyrank.evaluation.metrics import QueryMetrics
from polyrank.evaluation.significance import (
    Interval,
    bootstrap_intervals,
    holm,
    randomisation_tests,
)

CONFIDENCE = 0.95


@dataclass(frozen=True, kw_only=True)
class Costs:
    """What a model costs; None stands for what it does not have."""

    parameters: int | None = None
    vector_bytes: int | None = None
    """What an index keeps of each candidate besides its text: 4 bytes per component."""
    training_seconds: float | None = None
    """The mean over the runs whose folders state it."""
    latency: dict[int, Latency] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, eq=False)
class Contender:
    """A named model: its runs, which differ only in their seed, and its costs."""

    name: str
    architecture: str
    sources: tuple[str, ...]
    runs: tuple[QueryMetrics, ...]
    costs: Costs = field(default_factory=Costs)

    def averaged(self, metric: str) -> NDArray[np.float64]:
        """The value of each query, averaged over the runs: (n,)."""
        values: NDArray[np.float64] = np.mean([run.values[metric] for run in self.runs], axis=0)
        return values


@dataclass(frozen=True, kw_only=True)
class Mean:
    """A mean over queries with its interval, and the mean of each run."""

    mean: float
    interval: Interval
    by_run: tuple[float, ...]

    @property
    def spread(self) -> float | None:
        """The standard deviation of the runs' means; None for a single run."""
        return float(np.std(self.by_run, ddof=1)) if len(self.by_run) > 1 else None

    def to_json(self) -> dict[str, Any]:
        """JSON-ready."""
        low, high = self.interval
        runs = {"by_run": list(self.by_run), "sd_over_runs": self.spread}
        return {"mean": self.mean, "low": low, "high": high, **runs}


@dataclass(frozen=True, kw_only=True)
class Difference:
    """How far the better of two models is ahead, and how often chance alone gives as much."""

    better: str
    other: str
    difference: float
    interval: Interval
    p: float
    p_holm: float

    def to_json(self) -> dict[str, Any]:
        """JSON-ready."""
        low, high = self.interval
        ends = {"difference": self.difference, "low": low, "high": high}
        tests = {"p": self.p, "p_holm": self.p_holm}
        return {"better": self.better, "other": self.other, **ends, **tests}


@dataclass(frozen=True, kw_only=True, eq=False)
class Comparison:
    """The result of `compare`; `metric` is the one that the tests are of."""

    contenders: tuple[Contender, ...]
    metric: str
    labels: dict[str, str]
    means: dict[str, dict[str, Mean]]
    """By the name of the model, then by metric."""
    differences: tuple[Difference, ...]

    @property
    def num_queries(self) -> int:
        """How many queries every mean is of."""
        return len(self.contenders[0].runs[0].ids)

    @property
    def sizes(self) -> list[int]:
        """Every number of candidates that any model was timed at."""
        return sorted({size for each in self.contenders for size in each.costs.latency})

    def mean_of(self, contender: Contender) -> Mean:
        """A model's mean of the metric that is tested."""
        return self.means[contender.name][self.metric]


def compare(
    contenders: Sequence[Contender],
    *,
    metric: str | None = None,
    seed: int = 0,
    num_resamples: int = 10_000,
    num_permutations: int = 100_000,
) -> Comparison:
    """Means with 95% bootstrap intervals, and a paired test of every two models, Holm-corrected.

    `metric` is what is tested, by default the first. All runs must be of the same queries. Raises
    UsageError where they are not, for no contenders, for two with one name and for an unknown
    metric.
    """
    check(contenders)
    first = contenders[0].runs[0]
    metric = next(iter(first.values)) if metric is None else metric
    if metric not in first.values:
        raise UsageError(f"There is no metric {metric!r} here.", nearest(metric, first.values))
    names = [name for name in first.values if all(name in r.values for r in runs_of(contenders))]
    rows = np.array([each.averaged(name) for each in contenders for name in names])
    found = iter(bootstrap_intervals(rows, num_resamples=num_resamples, seed=seed))
    means = {
        each.name: {
            name: Mean(
                mean=float(each.averaged(name).mean()),
                interval=next(found),
                by_run=tuple(run.means()[name] for run in each.runs),
            )
            for name in names
        }
        for each in contenders
    }
    return Comparison(
        contenders=tuple(contenders),
        metric=metric,
        labels={name: label for name, label in first.labels().items() if name in names},
        means=means,
        differences=differences_of(contenders, metric, seed, num_resamples, num_permutations),
    )


def differences_of(
    contenders: Sequence[Contender],
    metric: str,
    seed: int,
    num_resamples: int,
    num_permutations: int,
) -> tuple[Difference, ...]:
    """Every two models, the better one first, in the order of the models."""
    pairs = []
    for pair in combinations(contenders, 2):
        better, other = sorted(pair, key=lambda each: -float(each.averaged(metric).mean()))
        pairs.append((better, other))
    if not pairs:
        return ()
    rows = np.array([better.averaged(metric) - other.averaged(metric) for better, other in pairs])
    intervals = bootstrap_intervals(rows, num_resamples=num_resamples, seed=seed)
    p_values = randomisation_tests(rows, num_permutations=num_permutations, seed=seed)
    return tuple(
        Difference(
            better=better.name,
            other=other.name,
            difference=float(row.mean()),
            interval=interval,
            p=float(p),
            p_holm=float(corrected),
        )
        for (better, other), row, interval, p, corrected in zip(
            pairs, rows, intervals, p_values, holm(p_values), strict=True
        )
    )


def check(contenders: Sequence[Contender]) -> None:
    """Raise UsageError for what cannot be compared."""
    if not contenders:
        raise UsageError("There is no model to compare.", "Give at least one.")
    names = [each.name for each in contenders]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise UsageError(f"Two models are called {twice!r}.", "Give each a different name.")
    first = contenders[0].runs[0]
    for each in contenders:
        for run in each.runs:
            if run.ids != first.ids or run.num_candidates != first.num_candidates:
                raise UsageError(
                    f"{each.name} was evaluated on other queries than {contenders[0].name}.",
                    "Evaluate all models on the same data with the same candidates.",
                )


def runs_of(contenders: Sequence[Contender]) -> list[QueryMetrics]:
    """The runs of all models."""
    return [run for each in contenders for run in each.runs]
