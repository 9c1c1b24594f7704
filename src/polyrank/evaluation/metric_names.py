"""The metrics of a ranking by name: which exist, which are usual, what people call them. Needs no
arrays, since the command line and the settings of a run read names, too.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from polyrank.errors import UsageError

NAME = re.compile(r"(recall|ndcg|mrr)@([1-9]\d*)|mrr|map")
NAMES = "recall@K, ndcg@K, mrr@K, mrr or map"
PAIR_LABELS = {
    "spearman": "Spearman",
    "pearson": "Pearson",
    "accuracy": "accuracy",
    "macro_f1": "macro F1",
}
"""The figures of labelled pairs, and what people call them."""
LABELS = {"recall": "R", "ndcg": "nDCG", "mrr": "MRR", "map": "MAP"}
"""The kinds of metrics, and what people call them."""

NUM_DRAWN, NUM_RERANKED = 20, 100
"""The usual candidates of an example that has none, and documents that a cross-encoder reads."""

KS = (1, 2, 5, 10)
"""The usual K of recall@K among the candidates of an example."""
CORPUS_KS = (1, 5, 10, 20, 50, 100)
"""The usual K of recall@K in a corpus."""


class Metric(NamedTuple):
    """A metric of a ranking: its kind, and the K of kind@K; without one, no place is cut off."""

    kind: str
    cut: int | None


def parse_metric(name: str) -> Metric:
    """The metric with a name such as `ndcg@10`. Raises UsageError if there is none."""
    found = NAME.fullmatch(name)
    if found is None:
        raise UsageError(
            f"There is no metric {name!r} of a ranking.", f"Choose {NAMES}, with any K from 1."
        )
    return Metric(found[1] or name, int(found[2]) if found[2] else None)


def example_metrics(ks: Sequence[int] = KS, others: Sequence[str] = ()) -> tuple[str, ...]:
    """What is measured of ranked candidates: recall at each k, MRR, then `others`, each once."""
    return tuple(dict.fromkeys((*recalls(ks), "mrr", *others)))


def corpus_metrics(ks: Sequence[int] = CORPUS_KS, others: Sequence[str] = ()) -> tuple[str, ...]:
    """What is measured in a corpus: nDCG@10, recall at each k, MRR@10, MAP, then `others`."""
    return tuple(dict.fromkeys(("ndcg@10", *recalls(ks), "mrr@10", "map", *others)))


def recalls(ks: Sequence[int]) -> list[str]:
    """The names of recall at each k. Raises UsageError for a k below 1."""
    if any(k < 1 for k in ks):
        raise UsageError(f"Every k must be at least 1, got {list(ks)}.", "Change ks.")
    return [f"recall@{k}" for k in sorted(set(ks))]


def label_of(name: str, candidates_text: str | None) -> str:
    """A metric as people write it, with C where the candidates are not a corpus: `R@1/20`."""
    metric = parse_metric(name)
    label = LABELS[metric.kind]
    if metric.cut is None:
        return label
    return f"{label}@{metric.cut}" + ("" if candidates_text is None else f"/{candidates_text}")
