"""Approximate top-k: a few neighbour searches name candidates, which get the full score.

Rows that were added after the structure was built are not in it; they are searched exactly. How
much is looked at is an `Effort`, tuned for a wanted recall when the structure is built (`tuning`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from polyrank.retrieval.search.exact import blocks_of, keepers
from polyrank.retrieval.search.graph import Graph
from polyrank.retrieval.search.probes import probes_of
from polyrank.retrieval.store.cache import CandidateCache
from polyrank.scoring.best import Ranked
from polyrank.scoring.blockwise import best_rows
from polyrank.scoring.poly import Attention

FEWEST_NEIGHBOURS = 32


@dataclass(frozen=True, kw_only=True, slots=True)
class Effort:
    """How much an approximate search looks at.

    `probes` vectors of a context each name their `spread` · k nearest; `breadth` is that of
    `Graph.search`.
    """

    probes: int
    spread: int
    breadth: int


def neighbours(
    contexts: Tensor,
    graph: Graph,
    effort: Effort,
    top_k: int,
    allowed: NDArray[np.bool_] | None = None,
) -> list[NDArray[np.int64]]:
    """The rows that the structure names for each context (B, m, d)."""
    depth = max(FEWEST_NEIGHBOURS, effort.spread * top_k)
    return [
        graph.search(probes_of(vectors, effort.probes).numpy(), depth, effort.breadth, allowed)
        for vectors in contexts
    ]


def search_approximate(
    contexts: Tensor,
    attention: Attention,
    cache: CandidateCache,
    graph: Graph,
    effort: Effort,
    top_k: int,
    allowed: NDArray[np.bool_] | None,
) -> list[Ranked]:
    """The best `top_k` for each context (B, m, d) among neighbours and rows outside the structure.

    Fewer than `top_k` where fewer neighbours pass.
    """
    early = neighbours(contexts, graph, effort, top_k, allowed)
    blocks = blocks_of(cache, allowed, start=len(graph))
    return best_rows(
        contexts, attention, blocks, cache.gather, keepers(cache, top_k, len(contexts)), early
    )
