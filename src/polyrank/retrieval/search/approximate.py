"""Approximate top-k: a few neighbour searches name candidates, which get the full score.

The vectors of a context lie close together, so the neighbours of a few of them (its probes) are
nearly those of all m. Rows added after the structure was built are searched exactly. An `Effort`
says how much to look at; it is tuned for a target recall when the structure is built.

Letters: B contexts, m vectors of each, p probes of a context, d dimensions.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from polyrank.retrieval.search.exact import blocks_of, empty_selections
from polyrank.retrieval.search.graph import Graph
from polyrank.retrieval.store.cache import CandidateCache
from polyrank.scoring.poly import Attention
from polyrank.scoring.topk import Ranked, best_rows

FEWEST_NEIGHBOURS = 32


@dataclass(frozen=True, kw_only=True, slots=True)
class Effort:
    """How much an approximate search looks at.

    Each of `probes` vectors of a context names its `spread` · k nearest; `breadth` is that of
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
    probes = [probes_of(context, effort.probes).numpy() for context in contexts]
    return graph.search(probes, depth, effort.breadth, allowed) if probes else []


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

    Fewer than `top_k` if fewer neighbours pass.
    """
    early = neighbours(contexts, graph, effort, top_k, allowed)
    blocks = blocks_of(cache, allowed, start=len(graph))
    return best_rows(
        contexts,
        attention,
        blocks,
        cache.gather,
        empty_selections(cache, top_k, len(contexts)),
        early,
    )


def probes_of(context: Tensor, count: int) -> Tensor:
    """At most `count` probes of a context (m, d): (p, d), p ≤ m.

    They are chosen like centres of k-means: first the vector nearest to the mean, then repeatedly
    the one farthest from those chosen, then one step towards the mean. Rows of zeros are not
    vectors.
    """
    there = context[(context != 0).any(dim=1)].float()
    if len(there) <= count:
        return there if len(there) else context[:1].float()
    squares = (there @ there.T).numpy()  # (m, m); numpy is quicker with small arrays
    norms = squares.diagonal()
    distances = norms[:, None] + norms[None] - 2 * squares
    first = int((norms - 2 * squares.mean(axis=1)).argmin())
    chosen = [first]
    nearest = distances[first]
    while len(chosen) < count:
        chosen.append(int(nearest.argmax()))
        nearest = np.minimum(nearest, distances[chosen[-1]])
    owner = distances[chosen].argmin(axis=0)  # (m,)
    members = (owner == np.arange(count)[:, None]).astype(np.float32)  # (p, m)
    members = members[members.any(axis=1)]
    sizes = members.sum(axis=1, keepdims=True)
    return torch.from_numpy(members) @ there / torch.from_numpy(sizes)
