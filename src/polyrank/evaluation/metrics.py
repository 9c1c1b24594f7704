"""Ranking metrics of scores with one right candidate. Arrays only: knows no models and no texts.

Ties are scored at chance: each metric is its expected value over a random order of the candidates
that tie with the gold one. So a constant scorer gets exactly what guessing gets: recall@k = k / C.

Letters: C candidates of an example, E examples; `above` candidates score more than the gold one,
`tied` others score the same. The gold rank is then uniform on above + 1 … above + tied + 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polyrank.errors import ModelError


@dataclass(frozen=True, kw_only=True, eq=False)
class GoldRanks:
    """Where the gold candidate of each example stands; arrays (E,) of whole numbers."""

    above: NDArray[np.int64]
    tied: NDArray[np.int64]
    num_candidates: NDArray[np.int64]


def gold_ranks(
    scores: Sequence[ArrayLike], gold: Sequence[int], names: Sequence[str] | None = None
) -> GoldRanks:
    """Where the gold candidate stands among the scores (C,) of each example; C may vary.

    `names` are what errors call the examples. Raises ModelError for a score that is not a number.
    """
    above, tied, counts = [], [], []
    for row, (values, index) in enumerate(zip(scores, gold, strict=True)):
        array = np.asarray(values)
        if np.isnan(array).any():
            name = f"number {row + 1}" if names is None else names[row]
            raise ModelError(
                f"The model scored {int(np.isnan(array).sum())} of the {array.size} candidates of "
                f"the example {name} with NaN, where a number was expected.",
                "The weights are probably broken: train with a lower learning rate, or load "
                "another checkpoint.",
            )
        above.append(int((array > array[index]).sum()))
        tied.append(int((array == array[index]).sum()) - 1)
        counts.append(array.size)
    return GoldRanks(
        above=np.array(above, dtype=np.int64),
        tied=np.array(tied, dtype=np.int64),
        num_candidates=np.array(counts, dtype=np.int64),
    )


def expected_rank(ranks: GoldRanks) -> NDArray[np.float64]:
    """The rank from 1 of each example, (E,): above + 1 + tied / 2."""
    return ranks.above + 1 + ranks.tied / 2


def expected_recall(ranks: GoldRanks, k: int) -> NDArray[np.float64]:
    """The chance of each example that its gold candidate is among the first k, (E,).

    Of the tied + 1 places that the gold candidate may take, k − above are among the first k.
    """
    places = np.clip(k - ranks.above, 0, ranks.tied + 1)
    return places / (ranks.tied + 1)


def expected_reciprocal_rank(ranks: GoldRanks) -> NDArray[np.float64]:
    """The mean of 1 / rank over the places that the gold candidate may take, (E,).

    With harmonic numbers H: (H(above + tied + 1) − H(above)) / (tied + 1).
    """
    result = 1.0 / (ranks.above + 1)
    shared = np.flatnonzero(ranks.tied)
    if shared.size:
        above, tied = ranks.above[shared], ranks.tied[shared]
        largest = int((above + tied).max()) + 1
        harmonic = np.concatenate([[0.0], np.cumsum(1.0 / np.arange(1, largest + 1))])
        result[shared] = (harmonic[above + tied + 1] - harmonic[above]) / (tied + 1)
    return result
