"""Rank the candidates of examples by a model's scores: recall@k of C candidates, MRR and others.

Each distinct text is encoded once. Knows the two kinds of models by what they can do.

Letters: B contexts, m vectors of each, N candidates, C candidates of each context, d dimensions.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from polyrank.errors import DataError, UsageError
from polyrank.evaluation.metric_names import KS, example_metrics, parse_metric
from polyrank.evaluation.metrics import (
    QueryMetrics,
    expected_rank,
    expected_values,
    gold_ranks,
    shown_range,
)
from polyrank.records import Context, Example

GATHERED_NUMBERS = 1 << 24
"""At most this many numbers (64 MiB of float32) are gathered for one call of `score_each`."""


@runtime_checkable
class TwoTowerRanker(Protocol):
    """A bi-encoder or a poly-encoder: candidates have vectors of their own."""

    def encode_for_scoring(
        self, contexts: Sequence[Context], *, show_progress_bar: bool = False
    ) -> Tensor:
        """(B, m, d)."""
        ...

    def encode_candidates_for_scoring(
        self, texts: Sequence[str], *, show_progress_bar: bool = False
    ) -> Tensor:
        """(N, d)."""
        ...

    def score_all(self, contexts: Tensor, candidates: Tensor) -> Tensor:
        """(B, m, d), (N, d) → (B, N)."""
        ...

    def score_each(self, contexts: Tensor, candidates: Tensor) -> Tensor:
        """(B, m, d), (B, C, d) → (B, C)."""
        ...


@runtime_checkable
class PairRanker(Protocol):
    """A cross-encoder: reads both texts at once."""

    def score_pairs(
        self, pairs: Sequence[tuple[Context, str]], *, show_progress_bar: bool = False
    ) -> Tensor:
        """A score for each pair, (n,)."""
        ...


Ranker = TwoTowerRanker | PairRanker
T = TypeVar("T", bound=Hashable)


@dataclass(frozen=True, kw_only=True, eq=False)
class PerQuery:
    """The scores of each example, in the order of the examples, as significance tests need them."""

    ids: tuple[str | None, ...]
    ranks: NDArray[np.float64]
    values: dict[str, NDArray[np.float64]]
    """By the name of the metric: `recall@1`, `mrr`, `ndcg@10`."""
    num_candidates: NDArray[np.int64]

    @property
    def reciprocal_ranks(self) -> NDArray[np.float64]:
        """1 / rank, at chance where candidates tie."""
        return self.values["mrr"]

    @property
    def recall(self) -> dict[int, NDArray[np.float64]]:
        """Recall by its k."""
        named = ((parse_metric(name), values) for name, values in self.values.items())
        return {metric.cut or 0: values for metric, values in named if metric.kind == "recall"}

    def rows(self) -> Iterator[dict[str, Any]]:
        """One JSON-ready mapping per example."""
        for row, identifier in enumerate(self.ids):
            yield {
                "example": row + 1,
                "id": identifier,
                "rank": float(self.ranks[row]),
                "reciprocal_rank": float(self.reciprocal_ranks[row]),
                **{
                    name: float(values[row])
                    for name, values in self.values.items()
                    if name != "mrr"
                },
                "num_candidates": int(self.num_candidates[row]),
            }


@dataclass(frozen=True, kw_only=True, eq=False)
class RankingResult:
    """Means over all examples; `num_candidates` is the fewest and the most candidates."""

    figures: dict[str, float]
    """By the name of the metric: `recall@1`, `mrr`, `ndcg@10`."""
    num_candidates: tuple[int, int]
    num_examples: int
    per_query: PerQuery

    @property
    def recall(self) -> dict[int, float]:
        """Mean recall by its k."""
        return {k: float(values.mean()) for k, values in self.per_query.recall.items()}

    @property
    def mrr(self) -> float:
        """The mean reciprocal rank."""
        return self.figures["mrr"]

    @property
    def candidates_text(self) -> str:
        """C as people write it: `20`, or `5–20` where it varies."""
        return shown_range(*self.num_candidates)

    def named(self) -> dict[str, float]:
        """The means by the names that people read: `R@1/20` and so on, `MRR`, what was added."""
        return self.query_metrics().named()

    def query_metrics(self) -> QueryMetrics:
        """The metrics of each query by name."""
        found = self.per_query
        return QueryMetrics(
            ids=tuple(
                f"example {row}" if identifier is None else identifier
                for row, identifier in enumerate(found.ids, start=1)
            ),
            values=found.values,
            num_candidates=self.num_candidates,
        )

    def to_json(self) -> dict[str, Any]:
        """The means, JSON-ready; `num_candidates` is a pair where it varies."""
        fewest, most = self.num_candidates
        return {
            **self.figures,
            "num_candidates": fewest if fewest == most else [fewest, most],
            "num_examples": self.num_examples,
        }


def evaluate_examples(
    model: Ranker,
    examples: Sequence[Example],
    *,
    ks: Sequence[int] = KS,
    metrics: Sequence[str] = (),
    show_progress_bar: bool = False,
) -> RankingResult:
    """Rank the candidates of every example and average; ties count at chance (see `metrics`).

    Recall at each of `ks`, MRR, and the `metrics` named, such as `ndcg@10` or `mrr@5`. A k above
    the fewest candidates of any example is left out: recall@k says nothing there. Raises DataError
    for no examples or for one without candidates, ModelError for a score that is NaN, UsageError
    for an unknown metric, or one of `metrics` that such examples cannot give.
    """
    if not examples:
        raise DataError("There are no examples to evaluate on.", "Give at least one example.")
    wanted = metrics_of(examples, ks, metrics)
    gold = [gold_of(example, row) for row, example in enumerate(examples)]
    names = [name_of(example, row) for row, example in enumerate(examples)]
    scores = score_candidates(model, examples, show_progress_bar=show_progress_bar)
    ranks = gold_ranks([values.numpy() for values in scores], gold, names)
    per_query = PerQuery(
        ids=tuple(example.id for example in examples),
        ranks=expected_rank(ranks),
        values={name: expected_values(ranks, name) for name in wanted},
        num_candidates=ranks.num_candidates,
    )
    return RankingResult(
        figures={name: float(values.mean()) for name, values in per_query.values.items()},
        num_candidates=(int(ranks.num_candidates.min()), int(ranks.num_candidates.max())),
        num_examples=len(examples),
        per_query=per_query,
    )


def metrics_of(
    examples: Sequence[Example], ks: Sequence[int], others: Sequence[str]
) -> tuple[str, ...]:
    """The names of what is measured: of `ks`, those that all examples have candidates for.

    Raises UsageError for one of `others` that the examples have too few candidates for.
    """
    fewest = min(len(candidates_of(example, row)) for row, example in enumerate(examples))
    for name in others:
        metric = parse_metric(name)
        if metric.kind == "recall" and metric.cut is not None and metric.cut > fewest:
            raise UsageError(
                f"metric = {name}, but an example has only {fewest} candidates.",
                "Choose a smaller K, or give more candidates.",
            )
    return example_metrics([k for k in ks if k <= fewest], others)


@torch.inference_mode()
def score_candidates(
    model: Ranker, examples: Sequence[Example], *, show_progress_bar: bool = False
) -> list[Tensor]:
    """The scores (C,) of the candidates of each example, on the CPU; C may vary.

    Equal texts are encoded once, so they score the same. Raises DataError for an example without
    candidates.
    """
    candidates = [candidates_of(example, row) for row, example in enumerate(examples)]
    contexts = [hashable(example.context) for example in examples]
    if isinstance(model, TwoTowerRanker):
        return score_vectors(model, contexts, candidates, show_progress_bar)
    pairs = [
        (context, text)
        for context, texts in zip(contexts, candidates, strict=True)
        for text in texts
    ]
    unique, places = deduplicate(pairs)
    scores = model.score_pairs(unique, show_progress_bar=show_progress_bar).float().cpu()
    if scores.ndim != 1:
        raise UsageError(
            f"The model gives {scores.shape[1]} classes for a pair, where one score was expected.",
            "Evaluate a model that ranks.",
        )
    counts = [len(texts) for texts in candidates]
    return list(scores[torch.tensor(places, dtype=torch.long)].split(counts))


def score_vectors(
    model: TwoTowerRanker,
    contexts: Sequence[str | tuple[str, ...]],
    candidates: Sequence[tuple[str, ...]],
    show_progress_bar: bool,
) -> list[Tensor]:
    """The scores of a two-tower model: encode what differs, then gather and score."""
    unique_contexts, context_places = deduplicate(contexts)
    unique_texts, text_places = deduplicate(text for texts in candidates for text in texts)
    context_vectors = model.encode_for_scoring(
        unique_contexts, show_progress_bar=show_progress_bar
    )  # (·, m, d)
    candidate_vectors = model.encode_candidates_for_scoring(
        unique_texts, show_progress_bar=show_progress_bar
    )  # (N, d)
    counts = [len(texts) for texts in candidates]
    indices = torch.tensor(text_places, dtype=torch.long).split(counts)
    by_count: dict[int, list[int]] = {}
    for row, count in enumerate(counts):
        by_count.setdefault(count, []).append(row)
    scores = [torch.empty(0)] * len(counts)
    for count, rows in by_count.items():
        width = max(1, candidate_vectors.shape[1])
        step = max(1, GATHERED_NUMBERS // (count * width))
        for start in range(0, len(rows), step):
            group = rows[start : start + step]
            vectors = context_vectors[[context_places[row] for row in group]]  # (B, m, d)
            table = torch.stack([indices[row] for row in group])  # (B, C)
            columns = table.split(max(1, GATHERED_NUMBERS // (len(group) * width)), dim=1)
            parts = [model.score_each(vectors, candidate_vectors[part]) for part in columns]
            for row, values in zip(group, torch.cat(parts, dim=1).float().cpu(), strict=True):
                scores[row] = values
    return scores


def candidates_of(example: Example, row: int) -> tuple[str, ...]:
    """The candidates of an example; raises DataError where it has none."""
    if not example.candidates:
        raise DataError(
            f"The example {name_of(example, row)} has no candidates to rank.",
            "Give it candidates that hold the response, or draw some (--num-candidates, "
            "`with_sampled_candidates`).",
        )
    return example.candidates


def gold_of(example: Example, row: int) -> int:
    """The index of the response among the candidates; raises DataError where it is not there."""
    candidates = candidates_of(example, row)
    if example.gold is not None:
        return example.gold
    if example.response not in candidates:
        raise DataError(
            f"The response of the example {name_of(example, row)} is not among its candidates.",
            "Put the response into the candidates.",
        )
    return candidates.index(example.response)


def name_of(example: Example, row: int) -> str:
    """What messages call an example: its number from 1, and its id."""
    return f"number {row + 1}" if example.id is None else f"number {row + 1} (id {example.id!r})"


def hashable(context: Context) -> str | tuple[str, ...]:
    """A context that can be the key of a mapping."""
    return context if isinstance(context, str) else tuple(context)


def deduplicate(items: Iterable[T]) -> tuple[list[T], list[int]]:
    """The distinct items in their order, and for each item its place among them."""
    places: dict[T, int] = {}
    found = [places.setdefault(item, len(places)) for item in items]
    return list(places), found
