"""Which negatives are taken. Needs no torch."""

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
    """Negatives for each example."""
    from_rank: int = 1
    """The first rank to take negatives from; right responses do not count as ranks."""
    to_rank: int = 100
    """The last rank to take negatives from."""
    pick: Literal["random", "top"] = "random"
    """Draw from what is left after all rules, or take the best ranked of it."""
    max_score: float | None = None
    """Leave out candidates that the search scored higher than this."""
    margin: float | None = None
    """Leave out candidates that scored less than this below the response, in the search."""
    relative_margin: float | None = None
    """Leave out candidates that scored less than this share of the response's score below it."""
    reranker_max_score: float | None = None
    """Leave out candidates that the cross-encoder scores higher than this: false negatives."""
    reranker_margin: float | None = None
    """Leave out candidates that the cross-encoder scores less than this below the response."""
    reranker_relative_margin: float | None = None
    """The same, as a share of the cross-encoder's score of the response."""
    missing: Literal["keep", "fill", "drop"] = "keep"
    """What to do with an example with too few negatives: keep it with those, fill it up with random
    ones, or leave it out."""
    seed: int = 0
    """Seed of what is drawn; what an example draws does not depend on the examples before it."""

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
