"""Which negatives are taken. Does not need torch."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from polyrank.config import require

BLOCK = 1024
"""Examples that are worked on, and written, at once."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """The highest score that a negative may have; above it, it may well be right."""

    max_score: float | None = None
    margin: float | None = None
    relative_margin: float | None = None

    def __bool__(self) -> bool:
        return (self.max_score, self.margin, self.relative_margin) != (None, None, None)

    @property
    def need_positive(self) -> bool:
        """Whether the limit depends on the score of the response."""
        return self.margin is not None or self.relative_margin is not None

    def ceiling(self, positive: float) -> float:
        """The limit beside a response with the score `positive`."""
        ceiling = math.inf if self.max_score is None else self.max_score
        if self.margin is not None:
            ceiling = min(ceiling, positive - self.margin)
        if self.relative_margin is not None:
            ceiling = min(ceiling, positive - self.relative_margin * abs(positive))
        return ceiling


@dataclass(frozen=True, kw_only=True)
class NegativesConfig:
    """Which of the candidates that were found become negatives."""

    num_negatives: int = 4
    """The number of negatives for each example."""
    from_rank: int = 1
    """The first rank to take negatives from. Right responses do not count."""
    to_rank: int = 100
    """The last rank to take negatives from."""
    pick: Literal["random", "top"] = "random"
    """How to choose among what the rules leave: at random, or the best ranked."""
    max_score: float | None = None
    """Drop candidates that the search scored higher than this."""
    margin: float | None = None
    """Drop candidates whose score in the search is less than this below the response's."""
    relative_margin: float | None = None
    """The same margin, as a share of the response's score."""
    reranker_max_score: float | None = None
    """Drop candidates that the cross-encoder scores higher than this, as false negatives."""
    reranker_margin: float | None = None
    """Drop candidates whose score by the cross-encoder is less than this below the response's."""
    reranker_relative_margin: float | None = None
    """The same margin, as a share of the cross-encoder's score of the response."""
    missing: Literal["keep", "fill", "drop"] = "keep"
    """What to do with an example that has too few negatives: keep it, fill it up with random ones,
    or drop it."""
    seed: int = 0
    """The seed of what is drawn. What an example draws does not depend on other examples."""

    def __post_init__(self) -> None:
        require(self.num_negatives >= 1, "num_negatives", "at least 1", self.num_negatives)
        require(self.from_rank >= 1, "from_rank", "at least 1", self.from_rank)
        known = f"at least from_rank, {self.from_rank}, or no rank is left"
        require(self.to_rank >= self.from_rank, "to_rank", known, self.to_rank)
        for name in ("margin", "reranker_margin", "relative_margin", "reranker_relative_margin"):
            value = getattr(self, name)
            require(value is None or value >= 0, name, "0 or more", value)

    @property
    def search_limits(self) -> Limits:
        """The limits on the scores of the search."""
        return Limits(
            max_score=self.max_score, margin=self.margin, relative_margin=self.relative_margin
        )

    @property
    def reranker_limits(self) -> Limits:
        """The limits on the scores of the cross-encoder."""
        return Limits(
            max_score=self.reranker_max_score,
            margin=self.reranker_margin,
            relative_margin=self.reranker_relative_margin,
        )
