"""Tuning: the least effort whose recall reaches a target, on contexts of which half are kept aside.

Recall is that of the exact hits of the same index at k. Of all efforts that reach the target on the
tuning half, the one that takes the least time is chosen; the recall that is reported is measured on
the other half.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from polyrank.progress import bar
from polyrank.retrieval.search.approximate import Effort, neighbours
from polyrank.retrieval.search.exact import search_exact
from polyrank.retrieval.search.graph import Graph
from polyrank.retrieval.store.cache import CandidateCache
from polyrank.scoring.poly import Attention

RECALL_AT = 100
MARGIN = 0.1
"""The tuning half must reach the target and this share of what then misses to 1."""

PROBES = (2, 4, 8, 16)
SPREADS = (2, 4, 8)
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

    def worth(tried: tuple[Effort, float, float]) -> tuple[float, float]:
        """What makes one effort better than another, the less the better: missing recall, time."""
        return max(0.0, wanted - tried[1]), tried[2]

    def measure(effort: Effort, part: slice) -> tuple[float, float]:
        """Recall and seconds a context."""
        started = time.perf_counter()
        named = neighbours(contexts[part], graph, effort, k, cache.alive)
        for rows in named:
            cache.gather(rows)  # what is named has to be read, too
        seconds = (time.perf_counter() - started) / len(named)
        return recall(named, truth[part]), seconds

    wanted = target + MARGIN * (1 - target)
    best: tuple[Effort, float, float] | None = None
    with bar("Tuning for recall"):
        for probes, spread in product(PROBES, SPREADS):
            for breadth in breadths(graph):
                tried = Effort(probes=probes, spread=spread, breadth=breadth)
                reached, seconds = measure(tried, slice(half))
                if best is not None and best[1] >= wanted and seconds > best[2]:
                    break
                best = min(best or (tried, reached, seconds), (tried, reached, seconds), key=worth)
                if reached >= wanted:
                    break
    assert best is not None
    effort = best[0]
    measured, _ = measure(effort, slice(half, None))
    return effort, Recall(target=target, measured=measured, k=k, contexts=len(contexts) - half)


def recall(named: list[NDArray[np.int64]], truth: list[NDArray[np.int64]]) -> float:
    """The share of the true rows that were named."""
    hits = sum(len(np.intersect1d(rows, best)) for rows, best in zip(named, truth, strict=True))
    return hits / max(1, sum(len(best) for best in truth))


def breadths(graph: Graph) -> Iterator[int]:
    """The breadths to try, ascending."""
    breadth = 64 if graph.kind == "hnsw" else 4
    most = min(MOST_BREADTH, graph.most_breadth)
    while breadth < most:
        yield breadth
        breadth *= 2
    yield most
