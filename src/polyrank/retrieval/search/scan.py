"""Exact top-k search: every candidate is scored, block by block, and a running best k is kept.

Knows blocks of vectors and ids; knows nothing of files or texts.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from polyrank.errors import ModelError
from polyrank.retrieval.store.cache import CandidateCache

BLOCK_ROWS = 4096
"""Rows scored at once: with 64 context vectors the logits are 1 MB and stay in cache."""

VECTORS_AT_ONCE = 64
"""Context vectors scored at once. More brings nothing, and fewer reads the candidates oftener."""

Score = Callable[[Tensor, Tensor], Tensor]


class Scored(NamedTuple):
    """A row of the cache, its candidate's id and its score."""

    row: int
    id: str
    score: float


def search_exact(
    score: Score,
    contexts: Tensor,
    cache: CandidateCache,
    top_k: int,
    *,
    block_rows: int = BLOCK_ROWS,
) -> list[list[Scored]]:
    """The best `top_k` of all candidates for each context (B, m, d), best first.

    Ties are broken by the id, the larger first. `score` is (B, m, d), (N, d) → (B, N). Raises
    ModelError if scores are not numbers.
    """
    best = [Best(top_k, cache.id) for _ in range(len(contexts))]
    groups = list(even_groups(contexts))
    with torch.inference_mode():
        for start, rows, vectors in cache.blocks(block_rows):
            place = 0
            for group in groups:
                scores = score(group, vectors)[:, :rows].to("cpu", torch.float32).numpy()
                for values in scores:  # (rows,)
                    best[place].offer(values, start)
                    place += 1
    return [each.ranked() for each in best]


def even_groups(contexts: Tensor) -> Iterator[Tensor]:
    """Cut (B, m, d) into groups of nearly equal size, none above VECTORS_AT_ONCE vectors.

    Nearly equal, because a matrix product with very few rows adds up in another order.
    """
    count, num_vectors, _ = contexts.shape
    most = max(1, VECTORS_AT_ONCE // num_vectors)
    groups = -(-count // most)
    if groups:
        yield from torch.tensor_split(contexts, groups)


class Best:
    """The best k rows of one context so far, by (score, id)."""

    def __init__(self, top_k: int, id_of: Callable[[int], str]) -> None:
        self._top_k = top_k
        self._id_of = id_of
        self._threshold = -np.inf
        self._scores: NDArray[np.float32] = np.empty(0, np.float32)
        self._rows: NDArray[np.int64] = np.empty(0, np.int64)

    def offer(self, scores: NDArray[np.float32], start: int) -> None:
        """Take the scores (n,) of the rows from `start`."""
        places = np.flatnonzero(scores >= self._threshold)
        if not len(places):
            return
        self._scores = np.concatenate([self._scores, scores[places]])
        self._rows = np.concatenate([self._rows, places + start])
        if len(self._rows) >= self._top_k:
            self._cut()

    def _cut(self) -> None:
        """Keep k rows; of those that tie for the last places, the ones with the larger ids."""
        worst = len(self._scores) - self._top_k
        self._threshold = np.partition(self._scores, worst)[worst]
        if not worst:
            return
        kept = np.flatnonzero(self._scores > self._threshold)
        tied = np.flatnonzero(self._scores == self._threshold)
        places = self._top_k - len(kept)
        if len(tied) > places:
            rows = self._rows
            chosen = heapq.nlargest(places, tied.tolist(), key=lambda i: self._id_of(int(rows[i])))
            tied = np.array(chosen, dtype=np.int64)
        kept = np.concatenate([kept, tied])
        self._scores, self._rows = self._scores[kept], self._rows[kept]

    def ranked(self) -> list[Scored]:
        """The best k, best first."""
        if len(self._rows) < self._top_k:
            raise ModelError(
                "The scores of a context are not numbers.",
                "The model's weights are damaged or its training diverged; use another checkpoint.",
            )
        pairs = zip(self._rows.tolist(), self._scores.tolist(), strict=True)
        scored = [Scored(row, self._id_of(row), value) for row, value in pairs]
        return sorted(scored, key=lambda each: (each.score, each.id), reverse=True)
