"""A model's ranking metrics on examples: recall@k of C candidates, MRR, and every query's own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polyrank.errors import DataError, UsageError
from polyrank.evaluation.metrics import (
    expected_rank,
    expected_recall,
    expected_reciprocal_rank,
    gold_ranks,
)
from polyrank.evaluation.rankers import Ranker, gold_of, name_of, score_candidates
from polyrank.records import Example


@dataclass(frozen=True, kw_only=True, eq=False)
class PerQuery:
    """What each example scored, in the order of the examples: what significance tests need."""

    ids: tuple[str | None, ...]
    ranks: NDArray[np.float64]
    reciprocal_ranks: NDArray[np.float64]
    recall: dict[int, NDArray[np.float64]]
    num_candidates: NDArray[np.int64]

    def rows(self) -> Iterator[dict[str, Any]]:
        """One JSON-ready mapping an example."""
        for row, identifier in enumerate(self.ids):
            yield {
                "example": row + 1,
                "id": identifier,
                "rank": float(self.ranks[row]),
                "reciprocal_rank": float(self.reciprocal_ranks[row]),
                **{f"recall@{k}": float(values[row]) for k, values in self.recall.items()},
                "num_candidates": int(self.num_candidates[row]),
            }


@dataclass(frozen=True, kw_only=True, eq=False)
class EvaluationResult:
    """Means over all examples; `num_candidates` is the fewest and the most candidates."""

    recall: dict[int, float]
    mrr: float
    num_candidates: tuple[int, int]
    num_examples: int
    per_query: PerQuery

    @property
    def candidates_text(self) -> str:
        """C as one prints it: `20`, or `5–20` where it varies."""
        fewest, most = self.num_candidates
        return str(fewest) if fewest == most else f"{fewest}–{most}"

    def named(self) -> dict[str, float]:
        """The metrics by the names that people read: `R@1/20` and so on, then `MRR`."""
        recall = {f"R@{k}/{self.candidates_text}": value for k, value in self.recall.items()}
        return {**recall, "MRR": self.mrr}

    def to_json(self) -> dict[str, Any]:
        """The means, JSON-ready; `num_candidates` is a pair where it varies."""
        fewest, most = self.num_candidates
        return {
            **{f"recall@{k}": value for k, value in self.recall.items()},
            "mrr": self.mrr,
            "num_candidates": fewest if fewest == most else [fewest, most],
            "num_examples": self.num_examples,
        }


def evaluate(
    model: Ranker,
    examples: Sequence[Example],
    *,
    ks: Sequence[int] = (1, 2, 5, 10),
    progress: bool = False,
) -> EvaluationResult:
    """Rank the candidates of every example and average; ties count at chance (see `metrics`).

    A k above the fewest candidates of any example is left out: recall@k says nothing there. Raises
    DataError for no examples or for one without candidates, ModelError for a score that is NaN.
    """
    if not examples:
        raise DataError("There are no examples to evaluate on.", "Give at least one example.")
    if any(k < 1 for k in ks):
        raise UsageError(f"Every k must be at least 1, got {list(ks)}.", "Change ks.")
    gold = [gold_of(example, row) for row, example in enumerate(examples)]
    names = [name_of(example, row) for row, example in enumerate(examples)]
    scores = score_candidates(model, examples, progress=progress)
    ranks = gold_ranks([values.numpy() for values in scores], gold, names)
    fewest, most = int(ranks.num_candidates.min()), int(ranks.num_candidates.max())
    per_query = PerQuery(
        ids=tuple(example.id for example in examples),
        ranks=expected_rank(ranks),
        reciprocal_ranks=expected_reciprocal_rank(ranks),
        recall={k: expected_recall(ranks, k) for k in sorted(set(ks)) if k <= fewest},
        num_candidates=ranks.num_candidates,
    )
    return EvaluationResult(
        recall={k: float(values.mean()) for k, values in per_query.recall.items()},
        mrr=float(per_query.reciprocal_ranks.mean()),
        num_candidates=(fewest, most),
        num_examples=len(examples),
        per_query=per_query,
    )
