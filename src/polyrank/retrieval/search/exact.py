"""Exact top-k over a candidate cache, by whichever screen is cheaper.

    bounded   the 8-bit sketches of all candidates are screened
    scan      the stored vectors of all candidates are screened

Both give the same hits: what a screen cannot exclude gets the full score of the stored vectors.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from polyrank.retrieval.store.cache import CandidateCache
from polyrank.retrieval.store.vectors import DTYPES
from polyrank.scoring.matmul import can_multiply_int8
from polyrank.scoring.poly import Attention
from polyrank.scoring.screen import sketches_are_faster
from polyrank.scoring.topk import (
    BLOCK_ROWS,
    Best,
    CandidateBlock,
    Ranked,
    best_rows,
)

ExactStrategy = Literal["bounded", "scan"]


def search_exact(
    contexts: Tensor,
    attention: Attention,
    cache: CandidateCache,
    top_k: int,
    *,
    allowed: NDArray[np.bool_] | None = None,
    strategy: ExactStrategy | None = None,
) -> tuple[list[Ranked], ExactStrategy]:
    """The best `top_k` of the allowed candidates for each context (B, m, d), and how.

    `allowed` (num_rows,) are the rows to rank, by default all that are not deleted. The
    larger id wins a tie. Without a `strategy`, the cheaper one is used.
    """
    allowed = cache.alive if allowed is None else allowed
    how = strategy or cheaper_strategy(contexts, cache)
    found = best_rows(
        contexts,
        attention,
        blocks_of(cache, allowed, sketches=how == "bounded"),
        cache.gather,
        empty_selections(cache, top_k, len(contexts)),
    )
    return found, how


def empty_selections(cache: CandidateCache, top_k: int, count: int) -> list[Best]:
    """An empty selection for each context; ties by the id."""
    return [Best(top_k, cache.id) for _ in range(count)]


def blocks_of(
    cache: CandidateCache,
    allowed: NDArray[np.bool_] | None,
    *,
    start: int = 0,
    sketches: bool | None = None,
) -> Iterator[CandidateBlock]:
    """The rows from `start` in blocks, as sketches or as stored; mapped, not copied."""
    if sketches is None:
        sketches = can_multiply_int8()
    for first, rows in cache.screened(BLOCK_ROWS, start=start, sketches=sketches):
        passing = None if allowed is None else allowed[first : first + len(rows.values)]
        if passing is None or passing.any():
            yield CandidateBlock(first, rows, passing)


def cheaper_strategy(contexts: Tensor, cache: CandidateCache) -> ExactStrategy:
    """The strategy that takes less time per row on this machine, for contexts (B, m, d)."""
    stored = DTYPES[cache.manifest.storage]
    return "bounded" if sketches_are_faster(contexts, stored) else "scan"
