"""The best k of many candidates for each context, block by block: (B, N) is never in memory.

Each block is screened for all contexts in one product. Only what a screen cannot exclude gets the
full score, the most promising first. On a CPU the products are in bfloat16 if the hardware has it,
else in float32; on a GPU see `fused`. The result is exact in both cases. Knows rows and scores;
knows nothing of ids and files.

Letters: B contexts, m vectors of each, N candidates, d dimensions.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from polyrank.errors import not_numbers
from polyrank.scoring.poly import Attention, ExactScorer
from polyrank.scoring.screen import Screen, ScreenRows, norms_of, screen_for

Scores = NDArray[np.float32]
RowNumbers = NDArray[np.int64]
Gather = Callable[[RowNumbers], Tensor]
"""Gives rows (n,) their vectors (n, d), float32."""

FEWEST_AT_ONCE = 256
GROWTH = 4
SAMPLED = 1 << 13

BLOCK_ROWS = 1 << 17
"""Rows that are screened at once."""

MOST_BOUNDS = 1 << 22
"""How many bounds, over all contexts, are looked at together, the most promising first: the more,
the fewer rows are scored."""

COLUMNS_AT_ONCE = 256
"""Context vectors multiplied at once; more would push a block's logits out of the cache."""


class CandidateBlock(NamedTuple):
    """Candidates from row `start`; `allowed` (n,), if given, says which may be found."""

    start: int
    rows: ScreenRows
    allowed: NDArray[np.bool_] | None = None


def best_rows(
    contexts: Tensor,
    attention: Attention,
    blocks: Iterable[CandidateBlock],
    gather: Gather,
    best: list[Best],
    early: Sequence[RowNumbers] = (),
) -> list[Ranked]:
    """The best rows of all blocks for each context (B, m, d); one `Best` for each context.

    All blocks hold the same type of values. `gather` gives the vectors to score. `early` are rows
    of each context to score first; they may be outside all blocks. Raises ModelError if a context's
    vectors are not numbers.
    """
    if not bool(contexts.isfinite().all()):
        raise not_numbers("The vectors of a context")
    selectors = [
        Selector(ExactScorer(context, attention), gather, each)
        for context, each in zip(contexts, best, strict=True)
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


def screened(contexts: Tensor, blocks: Iterable[CandidateBlock]) -> Iterator[tuple[int, Scores]]:
    """The first row of each block, and its bounds for each context (B, n).

    Rows that are not allowed have NaN.
    """
    groups = context_groups(contexts)
    screens: list[Screen] = []
    for start, rows, allowed in blocks:
        screens = screens or [screen_for(group, rows.values.dtype) for group in groups]
        bounds = np.concatenate([screen.upper(rows).numpy() for screen in screens])  # (B, n)
        if allowed is not None:
            bounds[:, ~allowed] = np.nan
        yield start, bounds


def joined(parts: Iterable[tuple[int, Scores]], most_rows: int) -> Iterator[tuple[int, Scores]]:
    """Join bounds of ascending rows into spans of at most `most_rows`, unless a part is larger.

    Rows in no part are NaN.
    """
    held: list[tuple[int, Scores]] = []

    def span() -> tuple[int, Scores]:
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
    """Cut (B, m, d) into groups of nearly equal size, each of at most COLUMNS_AT_ONCE vectors."""
    most = max(1, COLUMNS_AT_ONCE // contexts.shape[1])
    return torch.tensor_split(contexts, max(1, -(-len(contexts) // most)))


def top_k(
    contexts: Tensor, candidates: Tensor, k: int, attention: Attention = "basic"
) -> list[Ranked]:
    """The best k candidates (N, d) for each context (B, m, d); the larger row wins a tie.

    Candidates may have any floating type; scores equal `poly_scores` in float32 to 1e-4.
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

    def blocks() -> Iterable[CandidateBlock]:
        for start in range(0, len(candidates), BLOCK_ROWS):
            part = candidates[start : start + BLOCK_ROWS]
            yield CandidateBlock(start, ScreenRows(part, None, norms_of(part), None))

    best = [Best(min(k, len(candidates)), lambda row: row) for _ in contexts]
    return best_rows(contexts, attention, blocks(), gather, best)


class Ranked(NamedTuple):
    """The best rows of one context, best first, and how many were scored to find them."""

    rows: list[int]
    scores: list[float]
    num_scored: int


class Best:
    """The best k rows so far, by score; of equal scores, the larger `key` comes first."""

    def __init__(self, top_k: int, key: Callable[[int], Any]) -> None:
        self.top_k = top_k
        self.threshold = -np.inf
        """The k-th best score; −inf while there are fewer."""
        self._key = key
        self._scores: Scores = np.empty(0, np.float32)
        self._rows: RowNumbers = np.empty(0, np.int64)

    def offer(self, scores: Scores, rows: RowNumbers) -> None:
        """Take scores (n,) of rows (n,) that were not offered before; NaN is ignored."""
        places = np.flatnonzero(scores >= self.threshold)
        if not len(places):
            return
        self._scores = np.concatenate([self._scores, scores[places]])
        self._rows = np.concatenate([self._rows, rows[places]])
        if len(self._rows) >= self.top_k:
            self._cut()

    def _cut(self) -> None:
        """Keep k rows; of those that tie for the last places, those with the larger keys."""
        worst = len(self._scores) - self.top_k
        self.threshold = float(np.partition(self._scores, worst)[worst])
        if not worst:
            return
        kept = np.flatnonzero(self._scores > self.threshold)
        tied = np.flatnonzero(self._scores == self.threshold)
        places = self.top_k - len(kept)
        if len(tied) > places:
            rows = self._rows
            chosen = heapq.nlargest(places, tied.tolist(), key=lambda i: self._key(int(rows[i])))
            tied = np.array(chosen, dtype=np.int64)
        kept = np.concatenate([kept, tied])
        self._scores, self._rows = self._scores[kept], self._rows[kept]

    def ranked(self) -> list[tuple[int, float]]:
        """The best (row, score), best first; fewer than k if fewer were offered."""
        order = np.argsort(-self._scores, kind="stable")
        scores: list[float] = self._scores[order].tolist()
        rows: list[int] = self._rows[order].tolist()
        if len(set(scores)) < len(scores):  # ask for keys only where they decide
            pairs = zip(rows, scores, strict=True)
            return sorted(pairs, key=lambda pair: (pair[1], self._key(pair[0])), reverse=True)
        return list(zip(rows, scores, strict=True))


def promising(bounds: Scores, count: int, threshold: float) -> float:
    """A value that about `count` of many bounds reach or more, estimated from a sample.

    At least `threshold`; just that if there are few bounds.
    """
    stride = len(bounds) // SAMPLED
    if stride < 2:
        return threshold
    sample = np.nan_to_num(bounds[::stride], nan=-np.inf)
    wanted = min(len(sample), 2 + 2 * count // stride)
    return max(threshold, float(np.partition(sample, -wanted)[-wanted]))


class Selector:
    """Finds the best k rows of one context, given upper bounds of their scores.

    The most promising are scored first; a row whose bound is below the k-th best score is never
    scored. The result is exact if the bounds hold.
    """

    def __init__(self, scorer: ExactScorer, gather: Gather, best: Best) -> None:
        self.best = best
        self.num_scored = 0
        self._scorer = scorer
        self._gather = gather
        self._early: RowNumbers = np.empty(0, np.int64)

    def begin(self, rows: RowNumbers) -> None:
        """Score rows (n,), each given once, before all others, whatever their bounds."""
        self._early = np.sort(rows)
        self.score(self._early)

    def offer(self, bounds: Scores, start: int) -> None:
        """Take the bounds (n,) of the rows from `start`; NaN leaves a row out."""
        first, last = np.searchsorted(self._early, (start, start + len(bounds)))
        if first < last:
            bounds = bounds.copy()
            bounds[self._early[first:last] - start] = np.nan
        at_once = max(FEWEST_AT_ONCE, 2 * self.best.top_k)
        places = np.flatnonzero(bounds >= promising(bounds, at_once, self.best.threshold))
        if len(places) >= at_once:  # the rest is looked at when there is a k-th best score
            chosen = places[np.argpartition(bounds[places], len(places) - at_once)[-at_once:]]
            self.score(np.sort(chosen) + start)
            bounds = bounds.copy()
            bounds[chosen] = np.nan
        places = np.flatnonzero(bounds >= self.best.threshold)
        while len(places):
            later = len(places) - at_once
            if later > 0:
                order = np.argpartition(bounds[places], later)
                chosen, places = places[order[later:]], places[order[:later]]
            else:
                chosen, places = places, places[:0]
            self.score(np.sort(chosen) + start)
            places = places[bounds[places] >= self.best.threshold]
            at_once *= GROWTH

    def score(self, rows: RowNumbers) -> None:
        """Give rows their full score and offer them to the best."""
        scores = self._scorer.scores(self._gather(rows)).numpy()
        self.best.offer(scores, rows)
        self.num_scored += len(rows)

    def ranked(self) -> Ranked:
        """What was found."""
        pairs = self.best.ranked()
        return Ranked([row for row, _ in pairs], [score for _, score in pairs], self.num_scored)
