"""How texts are corrupted for the masked language model. Needs no torch."""

from __future__ import annotations

from dataclasses import dataclass

from polyrank.config import require


@dataclass(frozen=True, kw_only=True)
class MaskingConfig:
    """How texts are corrupted for the masked language model (Devlin et al., 2019)."""

    masked_share: float = 0.15
    """The share of a text's tokens to predict."""
    masked_token: float = 0.8
    """The share of these that become the mask token."""
    masked_random: float = 0.1
    """The share of these that become a random token; the rest stay unchanged."""
    whole_words: bool = False
    """Choose whole words instead of single tokens."""

    def __post_init__(self) -> None:
        share = self.masked_share
        require(0 < share < 1, "masked_share", "above 0 and below 1", share)
        for name in ("masked_token", "masked_random"):
            require(0 <= getattr(self, name) <= 1, name, "from 0 to 1", getattr(self, name))
        total = self.masked_token + self.masked_random
        require(total <= 1, "masked_token + masked_random", "at most 1", total)
