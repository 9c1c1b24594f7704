"""The best k of many candidates for each context, block by block: (B, N) never stands in memory.

Each block is screened for all contexts in one product; only what a screen cannot exclude gets the
full score. On a CPU the products are in bfloat16 where the hardware has it, else in float32; on a
GPU see `fused`. The result is exact in both cases.

Letters: B contexts, m vectors of each, N candidates, d dimensions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from polyrank.errors import ModelError
from polyrank.runtime import has_bfloat16
from polyrank.scoring.best import Best, Gather, Ranked, RowNumbers, Selector
from polyrank.scoring.exact import ExactScorer
from polyrank.scoring.poly import Attention
from polyrank.scoring.screen import FloatScreen, IntegerScreen, Rows, Screen

BLOCK_ROWS = 1 << 17
"""Rows that are screened at once."""

MOST_BOUNDS = 1 << 22
"""Bounds, of all contexts, that are looked at together, the most promising first: the more, the
fewer rows are scored."""

COLUMNS_AT_ONCE = 256
"""Context vectors multiplied at once: more would push a block's logits out of the cache."""


Bounds = NDArray[np.float32]


class Block(NamedTuple):
    """Candidates from row `start`; `allowed` (n,), where given, says which may be found."""

    start: int
    rows: Rows
    allowed: NDArray[np.bool_] | None = None


def best_rows(
    contexts: Tensor,
    attention: Attention,
    blocks: Iterable[Block],
    gather: Gather,
    best: list[Best],
    early: Sequence[RowNumbers] = (),
) -> list[Ranked]:
    """The best rows of all blocks for each context (B, m, d); one `Best` for each context.

    All blocks hold the same type of values. `gather` gives the vectors that are scored. `early`
    are rows of each context to score first, which may be in no block. Raises ModelError if a
    context's vectors are not numbers.
    """
    if not bool(contexts.isfinite().all()):
        raise ModelError(
            "The vectors of a context are not numbers.",
            "The model's weights are damaged or its training diverged; use another checkpoint.",
        )
    selectors = [
        Selector(ExactScorer(vectors, attention), gather, each)
        for vectors, each in zip(contexts, best, strict=True)
    ]
    if not selectors:
        return []
    with torch.inference_mode():
        for selector, rows in zip(selectors, early, strict=False):
            selector.begin(rows)
        for start, bounds in joined(screened(contexts, blocks), MOST_BOUNDS // len(contexts)):
            for selector, own in zip(selectors, bounds, strict=True):
                selector.offer(own, start)
    return [selector.ranked() for selector in selectors]


def screened(contexts: Tensor, blocks: Iterable[Block]) -> Iterator[tuple[int, Bounds]]:
    """The first row of each block, and its bounds for each context (B, n); NaN is not allowed."""
    groups = context_groups(contexts)
    screens: list[Screen] = []
    for start, rows, allowed in blocks:
        screens = screens or [screen_for(group, rows.values.dtype) for group in groups]
        bounds = np.concatenate([screen.upper(rows).numpy() for screen in screens])  # (B, n)
        if allowed is not None:
            bounds[:, ~allowed] = np.nan
        yield start, bounds


def joined(parts: Iterable[tuple[int, Bounds]], most_rows: int) -> Iterator[tuple[int, Bounds]]:
    """Join bounds of ascending rows into spans of at most `most_rows`, if no part is larger.

    Rows in no part are NaN.
    """
    held: list[tuple[int, Bounds]] = []

    def span() -> tuple[int, Bounds]:
        first, (last, bounds) = held[0][0], held[-1]
        if len(held) == 1:
            return first, bounds
        whole = np.full((len(bounds), last + bounds.shape[1] - first), np.nan, np.float32)
        for start, part in held:
            whole[:, start - first : start - first + part.shape[1]] = part
        return first, whole

    for start, bounds in parts:
        if held and start + bounds.shape[1] - held[0][0] > most_rows:
            yield span()
            held.clear()
        held.append((start, bounds))
    if held:
        yield span()


def context_groups(contexts: Tensor) -> tuple[Tensor, ...]:
    """Cut (B, m, d) into groups of nearly equal size, none above COLUMNS_AT_ONCE vectors."""
    most = max(1, COLUMNS_AT_ONCE // contexts.shape[1])
    return torch.tensor_split(contexts, max(1, -(-len(contexts) // most)))


def screen_for(contexts: Tensor, dtype: torch.dtype) -> Screen:
    """The fastest screen for candidates of a type."""
    if dtype == torch.int8:
        return IntegerScreen(contexts)
    fast = has_bfloat16(contexts.device)
    return FloatScreen(contexts, torch.bfloat16 if fast else torch.float32)


def top_k(
    contexts: Tensor, candidates: Tensor, k: int, attention: Attention = "basic"
) -> list[Ranked]:
    """The best k of candidates (N, d) for each context (B, m, d); ties by the larger row.

    Candidates of any floating type; their scores are those of `poly_scores` in float32, to 1e-4.
    On a GPU every candidate is scored in one fused pass, in the type of the candidates.
    """
    if candidates.is_cuda:
        from polyrank.scoring.fused import fused_top_k  # needs Triton, which CUDA's torch brings

        values, found = fused_top_k(contexts.to(candidates.device), candidates, k, attention)
        return [
            Ranked(*each, len(candidates))
            for each in zip(found.tolist(), values.tolist(), strict=True)
        ]

    def gather(rows: RowNumbers) -> Tensor:
        return candidates[torch.from_numpy(rows)].float()

    def blocks() -> Iterable[Block]:
        for start in range(0, len(candidates), BLOCK_ROWS):
            part = candidates[start : start + BLOCK_ROWS]
            yield Block(start, Rows(part, None, norms_of(part), None))

    best = [Best(min(k, len(candidates)), lambda row: row) for _ in contexts]
    return best_rows(contexts, attention, blocks(), gather, best)


def norms_of(candidates: Tensor) -> Tensor:
    """The norm of each candidate: (n, d) → (n,)."""
    return torch.linalg.vector_norm(candidates, dim=1, dtype=torch.float32)
