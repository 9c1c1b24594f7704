"""Scores as relevance: numbers in [0, 1], as the clients of rerankers expect them.

Each mapping keeps the order of the scores:

    cross-encoder                      the sigmoid of its logit; of a regression, its value
    bi-encoder, cosine similarity      (1 + cosine) / 2
    poly-encoder, cosine similarity    the same of its score times the temperature, which is an
                                       average of cosines
    either, inner products             the sigmoid

Knows nothing of HTTP.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polyrank.serving.pipeline import Served


def relevance(served: Served, scores: Sequence[float]) -> NDArray[np.float64]:
    """A model's own scores (n,) as numbers in [0, 1].

    Far from 0, different logits may give equal numbers, as 64 bits have no more that are near 1.
    """
    values = np.asarray(scores, dtype=np.float64)
    config: Any = served.model.config
    if served.architecture == "cross":
        return np.clip(values, 0, 1) if config.task == "regress" else sigmoid(values)
    if config.similarity != "cosine":
        return sigmoid(values)
    return np.clip((1 + cosines(served, values)) / 2, 0, 1)


def cosines(served: Served, scores: Sequence[float] | NDArray[np.float64]) -> NDArray[np.float64]:
    """The scores (n,) of a bi- or poly-encoder without its temperature."""
    values = np.asarray(scores, dtype=np.float64)
    config: Any = served.model.config
    is_divided = served.architecture == "poly" and config.similarity == "cosine"
    return values * config.temperature if is_divided else values


def sigmoid(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """1 / (1 + e^−x), without overflow."""
    powers = np.exp(-np.abs(values))
    return np.where(values >= 0, 1, powers) / (1 + powers)


def best_first(scores: Sequence[float], top_n: int | None = None) -> list[int]:
    """The places of the `top_n` greatest scores, the greatest first; ties in order."""
    return sorted(range(len(scores)), key=lambda place: -scores[place])[:top_n]
