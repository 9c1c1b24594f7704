"""How large a batch should be, and where to cut by length. Knows nothing of order or models."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

SECONDS = 0.05
"""What a batch should take. What comes next waits for it; larger ones are hardly faster."""
FEWEST_TOKENS = 256
WORTH = 16
"""A batch has this many times the tokens that its fixed part could compute, if that takes no more
than twice as long."""
OVERHEAD = 64.0
"""Tokens that could be computed in the fixed time of a batch, before it is measured."""
FADE = 0.99
"""How much an earlier batch counts after another one."""


class Speed:
    """The seconds of a batch as a line over its padded tokens, fitted to recent batches.

    The fit is of relative errors, so that small batches count as much as large ones.
    """

    def __init__(self) -> None:
        self._sums = np.zeros(5)

    def add(self, tokens: int, seconds: float) -> None:
        """Learn from a batch."""
        seconds = max(seconds, 1e-9)
        new = np.array([1.0, tokens, seconds, tokens * tokens, tokens * seconds]) / seconds**2
        self._sums = FADE * self._sums + new

    @property
    def line(self) -> tuple[float, float]:
        """The fixed part in tokens, and the seconds of a token (0 before the first batch)."""
        weight, x, y, xx, xy = self._sums.tolist()
        if not weight:
            return OVERHEAD, 0.0
        spread = weight * xx - x * x
        if spread > 1e-3 * weight * xx:
            slope = (weight * xy - x * y) / spread
            fixed = (y - slope * x) / weight
            if slope > 0:
                return max(fixed / slope, 1.0), slope
        return OVERHEAD, y / (x + OVERHEAD * weight)

    @property
    def overhead(self) -> float:
        """The tokens that could be computed in the fixed part."""
        return self.line[0]

    def limit(self, most: int) -> int:
        """The padded tokens of a batch, at most `most`."""
        overhead, slope = self.line
        if not slope:
            return most
        wanted = SECONDS / slope
        worth = min(WORTH * overhead, 2 * wanted)
        return min(max(round(wanted), round(worth), FEWEST_TOKENS), most)


def of_like_length(costs: Sequence[int], limit: int, overhead: float) -> Sequence[int]:
    """The places of the items that run with the first one.

    All items are cut by length so that padding and the fixed parts of all batches are least; the
    first ones of the first item's group, up to the limit, run.

    Args:
        costs: The tokens of each item, in fair order.
        limit: The padded tokens of a batch.
        overhead: The tokens that the fixed time of a batch is worth.

    Returns:
        Places, ascending; 0 is among them.
    """
    lengths = np.asarray(costs, dtype=np.int64)
    if lengths.sum() + (lengths.max() - lengths).sum() <= min(limit, lengths.sum() + overhead):
        return range(len(costs))  # one batch has the least cost
    shortest, longest = group_of(lengths, limit, overhead)
    places = np.flatnonzero((lengths >= shortest) & (lengths <= longest))
    return places[: max(limit // longest, 1)].tolist()


def group_of(lengths: NDArray[np.int64], limit: int, overhead: float) -> tuple[int, int]:
    """The shortest and the longest length of the group of the first length.

    The groups are those that together cost least: each its padded tokens, and the overhead of its
    batches.
    """
    distinct, counts = np.unique(-lengths, return_counts=True)
    distinct = -distinct  # longest first
    ends = np.concatenate([[0], np.cumsum(counts)])
    best = np.zeros(len(distinct) + 1)
    begins = np.zeros(len(distinct) + 1, dtype=np.int64)
    for end in range(1, len(distinct) + 1):
        padded = distinct[:end] * (ends[end] - ends[:end])
        total = best[:end] + padded + overhead * np.ceil(padded / limit)
        begins[end] = begin = int(total.argmin())
        best[end] = total[begin]
    end = len(distinct)
    while distinct[begins[end]] < lengths[0]:
        end = int(begins[end])
    return int(distinct[end - 1]), int(distinct[begins[end]])
