"""Several models on one set: figures with their intervals, and whether the models differ. A model
may have several runs with different seeds; the values of a query are first averaged over them. On
labelled pairs, correlations are averaged and class counts are pooled. Knows metrics; evaluates
nothing and loads no model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polyrank.errors import UsageError, nearest
from polyrank.evaluation.latency import Latency
from polyrank.evaluation.metrics import QueryMetrics
from polyrank.evaluation.pairs import PairResults
from polyrank.evaluation.significance import (
    Interval,
    bootstrap_intervals,
    exchange_tests,
    holm,
    randomisation_tests,
    sample_intervals,
)
from polyrank.evaluation.statistics import CorrelationOf, MacroF1Of, MeanOf, Statistic

CONFIDENCE = 0.95
Run = QueryMetrics | PairResults
"""The results of one run on all queries, or on all labelled pairs."""


@dataclass(frozen=True, kw_only=True)
class Costs:
    """What a model costs; None where it has no such cost."""

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
    runs: tuple[Run, ...]
    costs: Costs = field(default_factory=Costs)

    def averaged(self, metric: str) -> NDArray[np.float64]:
        """The value of each query, averaged over the runs: (n,)."""
        own = [run.values[metric] for run in self.runs if isinstance(run, QueryMetrics)]
        values: NDArray[np.float64] = np.mean(own, axis=0)
        return values


@dataclass(frozen=True, kw_only=True)
class Mean:
    """A mean over queries or a figure of labelled pairs: its interval, and its value by run."""

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
    """How far the better of two models is ahead, and how often chance alone would put it as far
    ahead.
    """

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
    """The result of `compare_contenders`; `metric` is the one that is tested."""

    contenders: tuple[Contender, ...]
    metric: str
    labels: dict[str, str]
    means: dict[str, dict[str, Mean]]
    """By the name of the model, then by metric."""
    differences: tuple[Difference, ...]

    @property
    def num_queries(self) -> int:
        """The number of queries behind every mean."""
        return len(self.contenders[0].runs[0].ids)

    @property
    def unit(self) -> str:
        """What every figure is computed from: `query` or `pair`."""
        return self.contenders[0].runs[0].unit

    @property
    def sizes(self) -> list[int]:
        """Every number of candidates that any model was timed at."""
        return sorted({size for each in self.contenders for size in each.costs.latency})

    def mean_of(self, contender: Contender) -> Mean:
        """A model's mean of the metric that is tested."""
        return self.means[contender.name][self.metric]


def compare_contenders(
    contenders: Sequence[Contender],
    *,
    metric: str | None = None,
    seed: int = 0,
    num_resamples: int = 10_000,
    num_permutations: int = 100_000,
) -> Comparison:
    """Figures with 95% bootstrap intervals, and a paired test of every two models, Holm-corrected.

    `metric` is what is tested, by default the first. All runs must be of the same queries. Raises
    UsageError where they are not, for no contenders, for two with one name and for an unknown
    metric.
    """
    check(contenders)
    labels = contenders[0].runs[0].labels()
    metric = next(iter(labels)) if metric is None else metric
    if metric not in labels:
        raise UsageError(f"There is no metric {metric!r} here.", nearest(metric, labels))
    names = [name for name in labels if all(name in run.labels() for run in runs_of(contenders))]
    statistics = {
        (each.name, name): statistic_of(each.runs, name, contenders)
        for each in contenders
        for name in names
    }
    intervals = intervals_of(list(statistics.values()), num_resamples, seed)
    found = dict(zip(statistics, intervals, strict=True))
    means = {
        each.name: {
            name: Mean(
                mean=statistics[each.name, name].value,
                interval=found[each.name, name],
                by_run=tuple(statistic_of([run], name, contenders).value for run in each.runs),
            )
            for name in names
        }
        for each in contenders
    }
    tested = {each.name: statistics[each.name, metric] for each in contenders}
    return Comparison(
        contenders=tuple(contenders),
        metric=metric,
        labels={name: labels[name] for name in names},
        means=means,
        differences=differences_of(tested, seed, num_resamples, num_permutations),
    )


def statistic_of(runs: Sequence[Run], metric: str, contenders: Sequence[Contender]) -> Statistic:
    """A figure of some runs as a function of the sample; `contenders` have all known classes."""
    queries = [run.values[metric] for run in runs if isinstance(run, QueryMetrics)]
    if queries:
        return MeanOf(np.mean(queries, axis=0))
    pairs = [run for run in runs if isinstance(run, PairResults)]
    if metric == "accuracy":
        return MeanOf(np.mean([run.predicted == run.gold for run in pairs], axis=0))
    if metric == "macro_f1":
        every = (run for run in runs_of(contenders) if isinstance(run, PairResults))
        classes = sorted({name for run in every for name in run.classes or ()})
        predicted = [run.named(run.predicted) for run in pairs]
        return MacroF1Of.of(pairs[0].named(pairs[0].gold), predicted, classes)
    scores = np.stack([run.predicted for run in pairs])
    return CorrelationOf(scores, pairs[0].gold, ranked=metric == "spearman")


def intervals_of(statistics: Sequence[Statistic], num_resamples: int, seed: int) -> list[Interval]:
    """The interval of each figure, all from the same samples."""
    means = [one.values for one in statistics if isinstance(one, MeanOf)]
    others = [one for one in statistics if not isinstance(one, MeanOf)]
    how = {"num_resamples": num_resamples, "seed": seed}
    of_means = iter(bootstrap_intervals(np.array(means), **how) if means else ())
    of_others = iter(
        sample_intervals(
            lambda times: np.stack([one.resampled(times) for one in others]),
            others[0].count,
            **how,
        )
        if others
        else ()
    )
    return [next(of_means if isinstance(one, MeanOf) else of_others) for one in statistics]


def differences_of(
    tested: Mapping[str, Statistic], seed: int, num_resamples: int, num_permutations: int
) -> tuple[Difference, ...]:
    """Every two models by name, the better one first, in the order of the models."""
    pairs = [sorted(two, key=lambda name: -tested[name].value) for two in combinations(tested, 2)]
    if not pairs:
        return ()
    both = [(tested[better], tested[other]) for better, other in pairs]
    rows = [a.values - b.values for a, b in both if isinstance(a, MeanOf) and isinstance(b, MeanOf)]
    if rows:
        intervals = bootstrap_intervals(np.array(rows), num_resamples=num_resamples, seed=seed)
        p_values = randomisation_tests(np.array(rows), num_permutations=num_permutations, seed=seed)
    else:
        count = both[0][0].count
        intervals = sample_intervals(
            lambda times: np.stack([a.resampled(times) - b.resampled(times) for a, b in both]),
            count,
            num_resamples=num_resamples,
            seed=seed,
        )
        p_values = exchange_tests(
            lambda kept: np.stack([a.exchanged(b, kept) for a, b in both]),
            count,
            num_permutations=num_permutations,
            seed=seed,
        )
    return tuple(
        Difference(
            better=better,
            other=other,
            difference=tested[better].value - tested[other].value,
            interval=interval,
            p=float(p),
            p_holm=float(corrected),
        )
        for (better, other), interval, p, corrected in zip(
            pairs, intervals, p_values, holm(p_values), strict=True
        )
    )


def check(contenders: Sequence[Contender]) -> None:
    """Raise UsageError for models that cannot be compared."""
    if not contenders:
        raise UsageError("There is no model to compare.", "Give at least one.")
    names = [each.name for each in contenders]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise UsageError(f"Two models are called {twice!r}.", "Give each a different name.")
    first = contenders[0].runs[0]
    for each in contenders:
        for run in each.runs:
            if not run.labels().keys() & first.labels().keys():
                raise UsageError(
                    f"{each.name} gives {', '.join(run.labels())}, but {contenders[0].name} "
                    f"{', '.join(first.labels())}: they have no figure in common.",
                    "Compare models that give classes with one another, and models that give "
                    "scores with one another.",
                )
            if run.subject != first.subject:
                raise UsageError(
                    f"{each.name} was evaluated on other queries than {contenders[0].name}.",
                    "Evaluate all models on the same data with the same candidates.",
                )


def runs_of(contenders: Sequence[Contender]) -> list[Run]:
    """The runs of all models."""
    return [run for each in contenders for run in each.runs]
