"""How texts are corrupted for models that predict masked tokens. Needs no torch."""

from __future__ import annotations

from dataclasses import dataclass, replace

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
    context_masked_share: float = 0.3
    """For cmae: the share of the tokens of a context or passage to predict, which are masked as
    above; with 0, the encoder reads all of them."""
    response_masked_share: float = 0.75
    """For cmae: the share of the tokens of a response or neighbouring passage that the decoder
    predicts; all of these become the mask token."""

    def __post_init__(self) -> None:
        share = self.masked_share
        require(0 < share < 1, "masked_share", "above 0 and below 1", share)
        for name in ("masked_token", "masked_random"):
            require(0 <= getattr(self, name) <= 1, name, "from 0 to 1", getattr(self, name))
        total = self.masked_token + self.masked_random
        require(total <= 1, "masked_token + masked_random", "at most 1", total)
        share = self.context_masked_share
        require(0 <= share < 1, "context_masked_share", "from 0 to below 1", share)
        share = self.response_masked_share
        require(0 < share < 1, "response_masked_share", "above 0 and below 1", share)

    def of_context(self) -> MaskingConfig:
        """How a context is corrupted before an encoder makes a vector of it; its share is not 0."""
        return replace(self, masked_share=self.context_masked_share)

    def of_response(self) -> MaskingConfig:
        """How a response is corrupted before a decoder reads it."""
        share = self.response_masked_share
        return replace(self, masked_share=share, masked_token=1.0, masked_random=0.0)
