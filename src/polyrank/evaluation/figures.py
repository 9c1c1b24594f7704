"""What every query of a set scored, under the names of the metrics: all that statistics need.

Knows arrays and names; knows no models.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polyrank.evaluation.evaluate import EvaluationResult

RETRIEVAL_LABELS = {"ndcg@10": "nDCG@10", "recall@100": "R@100", "mrr@10": "MRR@10", "map": "MAP"}
"""Metrics of retrieval by name, and as people write them; the first is the one to compare by."""


@dataclass(frozen=True, kw_only=True, eq=False)
class QueryFigures:
    """The values (n,) of n queries for each metric; the first metric is the one to compare by."""

    ids: tuple[str, ...]
    values: dict[str, NDArray[np.float64]]
    num_candidates: tuple[int, int]
    """The fewest and the most candidates that a query ranks."""

    @property
    def candidates_text(self) -> str:
        """C as one prints it: `20`, or `5–20` where it varies."""
        fewest, most = self.num_candidates
        return f"{fewest:,}" if fewest == most else f"{fewest:,}–{most:,}"

    def means(self) -> dict[str, float]:
        """The mean of each metric over the queries."""
        return {name: float(values.mean()) for name, values in self.values.items()}

    def labels(self) -> dict[str, str]:
        """The metrics as people write them: `R@1/20`, `MRR`, `nDCG@10`."""
        return {name: label_of(name, self.candidates_text) for name in self.values}

    def rows(self) -> Iterator[dict[str, Any]]:
        """One JSON-ready mapping a query."""
        for row, identifier in enumerate(self.ids):
            own = {name: float(values[row]) for name, values in self.values.items()}
            yield {"query": identifier, **own}

    def to_json(self) -> dict[str, Any]:
        """JSON-ready, with every value."""
        return {
            "ids": list(self.ids),
            "values": {name: values.tolist() for name, values in self.values.items()},
            "num_candidates": list(self.num_candidates),
        }

    @classmethod
    def from_json(cls, record: dict[str, Any]) -> QueryFigures:
        """What `to_json` gave; raises KeyError, TypeError or ValueError for anything else."""
        fewest, most = record["num_candidates"]
        figures = cls(
            ids=tuple(record["ids"]),
            values={
                name: np.array(values, dtype=np.float64)
                for name, values in record["values"].items()
            },
            num_candidates=(int(fewest), int(most)),
        )
        if any(values.shape != (len(figures.ids),) for values in figures.values.values()):
            raise ValueError("every metric needs one value a query")
        return figures


def label_of(metric: str, candidates_text: str) -> str:
    """A metric as people write it."""
    if metric in RETRIEVAL_LABELS:
        return RETRIEVAL_LABELS[metric]
    if metric.startswith("recall@"):
        return f"R@{metric.removeprefix('recall@')}/{candidates_text}"
    return metric.upper()


def figures_of(result: EvaluationResult) -> QueryFigures:
    """The figures of examples with candidates: recall at each k, then MRR."""
    found = result.per_query
    names = [
        f"example {row}" if name is None else name for row, name in enumerate(found.ids, start=1)
    ]
    recall = {f"recall@{k}": values for k, values in found.recall.items()}
    return QueryFigures(
        ids=tuple(names),
        values={**recall, "mrr": found.reciprocal_ranks},
        num_candidates=result.num_candidates,
    )
