"""The best k of one context: a running selection, and the search for it behind upper bounds.

Knows rows and scores; knows nothing of ids and files.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from polyrank.scoring.exact import ExactScorer

Scores = NDArray[np.float32]
RowNumbers = NDArray[np.int64]
Gather = Callable[[RowNumbers], Tensor]
"""Rows (n,) to their vectors (n, d), float32."""

FEWEST_AT_ONCE = 256
GROWTH = 4
SAMPLED = 1 << 13


class Ranked(NamedTuple):
    """The best rows of one context, best first, and how many were scored to find them."""

    rows: list[int]
    scores: list[float]
    num_scored: int


class Best:
    """The best k rows so far, by score and, where scores tie, by `key`, the larger first."""

    def __init__(self, top_k: int, key: Callable[[int], Any]) -> None:
        self.top_k = top_k
        self.threshold = -np.inf
        """The k-th best score; −inf while there are fewer."""
        self._key = key
        self._scores: Scores = np.empty(0, np.float32)
        self._rows: RowNumbers = np.empty(0, np.int64)

    def offer(self, scores: Scores, rows: RowNumbers) -> None:
        """Take scores (n,) of rows (n,) that were not offered before; NaN is never taken."""
        places = np.flatnonzero(scores >= self.threshold)
        if not len(places):
            return
        self._scores = np.concatenate([self._scores, scores[places]])
        self._rows = np.concatenate([self._rows, rows[places]])
        if len(self._rows) >= self.top_k:
            self._cut()

    def _cut(self) -> None:
        """Keep k rows; of those that tie for the last places, the ones with the larger keys."""
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
        """The best (row, score), best first; fewer than k where fewer were offered."""
        pairs = zip(self._rows.tolist(), self._scores.tolist(), strict=True)
        return sorted(pairs, key=lambda pair: (pair[1], self._key(pair[0])), reverse=True)


def promising(bounds: Scores, count: int, threshold: float) -> float:
    """A value that at least about `count` of many bounds reach, from a sample of them.

    `threshold` where that is higher, and −inf where there are not many.
    """
    stride = len(bounds) // SAMPLED
    if stride < 2:
        return threshold
    sample = np.nan_to_num(bounds[::stride], nan=-np.inf)
    wanted = min(len(sample), 2 + 2 * count // stride)
    return max(threshold, float(np.partition(sample, -wanted)[-wanted]))


class Selector:
    """Finds the best k of one context among rows that come with upper bounds of their scores.

    The most promising are scored first; a row whose bound is below the k-th best score is never
    scored. What it finds is exact if the bounds are true.
    """

    def __init__(self, scorer: ExactScorer, gather: Gather, best: Best) -> None:
        self.best = best
        self.num_scored = 0
        self._scorer = scorer
        self._gather = gather
        self._early: RowNumbers = np.empty(0, np.int64)

    def begin(self, rows: RowNumbers) -> None:
        """Score rows (n,), each given once, ahead of all others, whatever their bounds."""
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
