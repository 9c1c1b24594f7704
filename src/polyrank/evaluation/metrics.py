"""Ranking metrics, query by query. Arrays and names only: knows no models and no texts.

Ties are scored at chance: each metric is its expected value over a random order of the candidates
that tie with the gold one. So a constant scorer scores exactly what guessing would: recall@k = k /
C.

Letters: C candidates of an example, E examples; `above` candidates score more than the gold one,
`tied` others score the same. The gold rank is then uniform on above + 1 … above + tied + 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polyrank.errors import ModelError
from polyrank.evaluation.metric_names import label_of, parse_metric


@dataclass(frozen=True, kw_only=True, eq=False)
class QueryMetrics:
    """The values (n,) of n queries for each metric; the first metric is the one to compare by."""

    unit: ClassVar[str] = "query"
    ids: tuple[str, ...]
    values: dict[str, NDArray[np.float64]]
    num_candidates: tuple[int, int]
    """The fewest and the most candidates that a query ranks."""
    searched: bool = False
    """Whether the candidates are a corpus, whose size does not appear in the metrics' labels."""

    @property
    def subject(self) -> Any:
        """What was measured, whichever the model: the queries and how many candidates they have."""
        return self.ids, self.num_candidates

    @property
    def candidates_text(self) -> str:
        """C as people write it."""
        return shown_range(*self.num_candidates)

    def means(self) -> dict[str, float]:
        """The mean of each metric over the queries."""
        return {name: float(values.mean()) for name, values in self.values.items()}

    def labels(self) -> dict[str, str]:
        """The metrics as people write them: `R@1/20`, `MRR`; of a corpus `R@100`, `nDCG@10`."""
        candidates = None if self.searched else self.candidates_text
        return {name: label_of(name, candidates) for name in self.values}

    def named(self) -> dict[str, float]:
        """The means by the labels of the metrics."""
        labels = self.labels()
        return {labels[name]: mean for name, mean in self.means().items()}

    def rows(self) -> Iterator[dict[str, Any]]:
        """One JSON-ready mapping per query."""
        for row, identifier in enumerate(self.ids):
            own = {name: float(values[row]) for name, values in self.values.items()}
            yield {"query": identifier, **own}

    def to_json(self) -> dict[str, Any]:
        """JSON-ready, with every value."""
        return {
            "ids": list(self.ids),
            "values": {name: values.tolist() for name, values in self.values.items()},
            "num_candidates": list(self.num_candidates),
            "searched": self.searched,
        }

    @classmethod
    def from_json(cls, record: dict[str, Any]) -> QueryMetrics:
        """What `to_json` gave; raises KeyError, TypeError or ValueError for anything else."""
        fewest, most = record["num_candidates"]
        metrics = cls(
            ids=tuple(record["ids"]),
            values={
                name: np.array(values, dtype=np.float64)
                for name, values in record["values"].items()
            },
            num_candidates=(int(fewest), int(most)),
            searched=bool(record.get("searched", False)),
        )
        if any(values.shape != (len(metrics.ids),) for values in metrics.values.values()):
            raise ValueError("every metric needs one value per query")
        return metrics


def shown_range(fewest: int, most: int) -> str:
    """A number of candidates as people write it: `20`, or `5–20` where it varies."""
    return f"{fewest:,}" if fewest == most else f"{fewest:,}–{most:,}"


@dataclass(frozen=True, kw_only=True, eq=False)
class GoldRanks:
    """Where the gold candidate of each example stands; arrays (E,) of whole numbers."""

    above: NDArray[np.int64]
    tied: NDArray[np.int64]
    num_candidates: NDArray[np.int64]


def gold_ranks(
    scores: Sequence[ArrayLike], gold: Sequence[int], names: Sequence[str] | None = None
) -> GoldRanks:
    """Where the gold candidate stands among the scores (C,) of each example; C may vary.

    `names` are what errors call the examples. Raises ModelError for a score that is not a number.
    """
    above, tied, counts = [], [], []
    for row, (values, index) in enumerate(zip(scores, gold, strict=True)):
        array = np.asarray(values)
        if np.isnan(array).any():
            name = f"number {row + 1}" if names is None else names[row]
            raise ModelError(
                f"The model scored {int(np.isnan(array).sum())} of the {array.size} candidates of "
                f"the example {name} with NaN, where a number was expected.",
                "The weights are probably broken: train with a lower learning rate, or load "
                "another checkpoint.",
            )
        above.append(int((array > array[index]).sum()))
        tied.append(int((array == array[index]).sum()) - 1)
        counts.append(array.size)
    return GoldRanks(
        above=np.array(above, dtype=np.int64),
        tied=np.array(tied, dtype=np.int64),
        num_candidates=np.array(counts, dtype=np.int64),
    )


def expected_rank(ranks: GoldRanks) -> NDArray[np.float64]:
    """The rank from 1 of each example, (E,): above + 1 + tied / 2."""
    return ranks.above + 1 + ranks.tied / 2


def expected_values(ranks: GoldRanks, name: str) -> NDArray[np.float64]:
    """The metric with this name for each example, (E,). MAP is MRR, since one candidate is
    right.
    """
    metric = parse_metric(name)
    if metric.kind == "recall":
        assert metric.cut is not None
        return expected_recall(ranks, metric.cut)
    if metric.kind == "ndcg":
        return expected_gain(ranks, lambda places: 1.0 / np.log2(places + 1), metric.cut)
    return expected_gain(ranks, lambda places: 1.0 / places, metric.cut)


def expected_recall(ranks: GoldRanks, k: int) -> NDArray[np.float64]:
    """The chance of each example that its gold candidate is among the first k, (E,).

    Of the tied + 1 places that the gold candidate may take, k − above are among the first k.
    """
    places = np.clip(k - ranks.above, 0, ranks.tied + 1)
    return places / (ranks.tied + 1)


def expected_gain(
    ranks: GoldRanks,
    gain: Callable[[NDArray[np.float64]], NDArray[np.float64]],
    cut: int | None = None,
) -> NDArray[np.float64]:
    """The mean gain over the places that the gold candidate may take, (E,); none below `cut`.

    `gain` maps places from 1 to what they are worth. With its sums G from the first place on:
    (G(above + tied + 1) − G(above)) / (tied + 1).
    """
    places = np.arange(1, int((ranks.above + ranks.tied).max(initial=0)) + 2, dtype=np.float64)
    gains = np.where(places <= (np.inf if cut is None else cut), gain(places), 0.0)
    result: NDArray[np.float64] = gains[ranks.above]
    shared = np.flatnonzero(ranks.tied)
    if shared.size:
        above, tied = ranks.above[shared], ranks.tied[shared]
        sums = np.concatenate([[0.0], np.cumsum(gains)])
        result[shared] = (sums[above + tied + 1] - sums[above]) / (tied + 1)
    return result
