"""How a search is done: approximately where that was asked for and pays, exactly otherwise."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from polyrank.retrieval.results import Strategy
from polyrank.retrieval.search.approximate import search_approximate
from polyrank.retrieval.search.exact import search_exact
from polyrank.retrieval.search.structure import Structure
from polyrank.retrieval.store.cache import CandidateCache
from polyrank.scoring.best import Ranked
from polyrank.scoring.poly import Attention

SELECTIVE = 0.1
"""Where a filter lets less than this share of the rows pass, a graph is mostly dead ends."""


class Outcome(NamedTuple):
    """The best rows of each context and how they were found."""

    ranked: list[Ranked]
    strategy: Strategy


def search_cache(
    contexts: Tensor,
    attention: Attention,
    cache: CandidateCache,
    structure: Structure | None,
    top_k: int,
    *,
    allowed: NDArray[np.bool_] | None,
) -> Outcome:
    """The best `top_k` for each context (B, m, d); `allowed` rows, which are `top_k` at least.

    Exact without a `structure`.
    """
    selective = allowed is not None and allowed.mean() < SELECTIVE
    if structure is not None and not selective:
        graph, effort = structure
        found = search_approximate(contexts, attention, cache, graph, effort, top_k, allowed)
        if all(len(ranked.rows) == top_k for ranked in found):
            return Outcome(found, "approximate")
    return Outcome(*search_exact(contexts, attention, cache, top_k, allowed=allowed))
