"""Tuning: the least effort whose recall reaches a target, on contexts of which half are kept aside.

Recall is that of the exact hits of the same index at k. Effort grows by the step that gains most
recall for the time it takes, until the target is reached on the tuning half; the recall that is
reported is measured on the other half.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from polyrank.progress import bar
from polyrank.retrieval.search.approximate import Effort, neighbours
from polyrank.retrieval.search.exact import search_exact
from polyrank.retrieval.search.graph import Graph, GraphKind
from polyrank.retrieval.store.cache import CandidateCache
from polyrank.scoring.poly import Attention

RECALL_AT = 100
MARGIN = 0.3
"""The tuning half must reach the target and this share of what then misses to 1."""

MOST_PROBES = 16
MOST_SPREAD = 16
MOST_BREADTH = 4096


@dataclass(frozen=True, kw_only=True, slots=True)
class Recall:
    """What was wanted and what was measured: recall at k on `contexts` that were not tuned on."""

    target: float
    measured: float
    k: int
    contexts: int


def tune(
    graph: Graph, contexts: Tensor, attention: Attention, cache: CandidateCache, target: float
) -> tuple[Effort, Recall]:
    """Find the effort for a target recall, from at least 2 contexts (B, m, d).

    Where no effort reaches the target, the greatest is taken, and the recall says what it reaches.
    """
    k = min(RECALL_AT, max(1, len(cache) // 10))
    ranked, _ = search_exact(contexts, attention, cache, k)
    truth = [np.array(each.rows) for each in ranked]
    half = len(contexts) // 2

    def measure(effort: Effort, part: slice) -> tuple[float, float]:
        """Recall and seconds a context."""
        started = time.perf_counter()
        named = neighbours(contexts[part], graph, effort, k, cache.alive)
        seconds = (time.perf_counter() - started) / len(named)
        return recall(named, truth[part]), seconds

    effort = least_effort(graph.kind)
    wanted = target + MARGIN * (1 - target)
    reached, seconds = measure(effort, slice(half))
    with bar("Tuning for recall"):
        while reached < wanted:
            tried = [(larger, *measure(larger, slice(half))) for larger in steps(effort, graph)]
            if not tried:
                break
            base, spent = reached, seconds
            effort, reached, seconds = max(
                tried, key=lambda step: (step[1] - base) / max(step[2] - spent, 1e-5)
            )
    measured, _ = measure(effort, slice(half, None))
    return effort, Recall(target=target, measured=measured, k=k, contexts=len(contexts) - half)


def recall(named: list[NDArray[np.int64]], truth: list[NDArray[np.int64]]) -> float:
    """The share of the true rows that were named."""
    hits = sum(len(np.intersect1d(rows, best)) for rows, best in zip(named, truth, strict=True))
    return hits / max(1, sum(len(best) for best in truth))


def least_effort(kind: GraphKind) -> Effort:
    """Where tuning begins."""
    return Effort(probes=2, spread=2, breadth=64 if kind == "hnsw" else 4)


def steps(effort: Effort, graph: Graph) -> Iterator[Effort]:
    """Every effort that is one step larger."""
    if effort.probes < MOST_PROBES:
        yield dataclasses.replace(effort, probes=effort.probes * 2)
    if effort.spread < MOST_SPREAD:
        yield dataclasses.replace(effort, spread=effort.spread * 2)
    if effort.breadth < min(MOST_BREADTH, graph.most_breadth):
        yield dataclasses.replace(effort, breadth=effort.breadth * 2)
