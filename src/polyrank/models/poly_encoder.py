"""The poly-encoder: m vectors per context, over which each candidate attends (Humeau et al., 2020).

Letters: B contexts, T tokens, m vectors, h width of the encoder.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from polyrank.models.backbone import Backbone
from polyrank.models.config import PolyEncoderConfig
from polyrank.models.pooling import (
    after_prompt,
    attend,
    attention_weights,
    draw_codes,
    initial_recency,
    select,
    selected_places,
)
from polyrank.models.two_tower import TwoTower
from polyrank.scoring.poly import attention_scale
from polyrank.tokens.tokenizer import TextTokenizer


class PolyEncoder(TwoTower):
    """Keeps m vectors per context; the candidate's vector, which can be cached, attends to them."""

    config: PolyEncoderConfig
    architecture = "poly"
    has_many_vectors = True

    def __init__(
        self,
        backbone: Backbone,
        tokenizer: TextTokenizer,
        config: PolyEncoderConfig,
        candidate_backbone: Backbone | None = None,
        candidate_tokenizer: TextTokenizer | None = None,
    ) -> None:
        """Make a model of its parts; `from_pretrained` loads one.

        Args:
            backbone: The encoder of contexts and, if `candidate_backbone` is None, of candidates.
            tokenizer: Its tokeniser.
            config: The settings.
            candidate_backbone: The encoder of candidates, if it is another one.
            candidate_tokenizer: Its tokeniser.
        """
        self.config = config
        super().__init__(backbone, tokenizer, candidate_backbone, candidate_tokenizer)
        self.attention = config.attention
        self.codes: nn.Parameter | None = None
        self.recency: nn.Parameter | None = None
        if config.context_vectors == "learnt":
            self.codes = nn.Parameter(torch.empty(config.num_codes, backbone.width))
            if config.code_recency > 0:
                self.recency = nn.Parameter(initial_recency(self.codes, config.code_recency))
            self.reset_codes(1.0)

    def reset_codes(self, output_norm: float) -> None:
        """Draw new codes, for token outputs of Euclidean norm `output_norm`.

        The codes' first logits over the outputs then have the standard deviation `code_scale`.
        """
        if self.codes is not None:
            scale = attention_scale(self.attention, self.codes.shape[-1])
            draw_codes(self.codes, output_norm, scale, self.config.code_scale)

    @torch.no_grad()
    def initialise(self) -> None:
        """Draw the codes for the norm that this encoder's outputs have on arbitrary tokens."""
        self.reset_codes(self.context_tower.output_norm())

    @property
    def num_vectors(self) -> int:
        """The number of vectors of a context; one more than `num_codes` with h₁ added."""
        return self.config.num_codes + (self.config.context_vectors == "last_and_first")

    def context_vectors(self, outputs: Tensor, mask: Tensor) -> Tensor:
        """Attention of the codes, or the chosen outputs: (B, T, h) → (B, m, h)."""
        mask = after_prompt(mask, self.context_unpooled)
        if self.codes is None:
            return select(outputs, mask, self.config.context_vectors, self.config.num_codes)
        scale = attention_scale(self.attention, outputs.shape[-1])
        return attend(self.codes, outputs, mask, scale, self.recency, self.config.code_mean)

    def token_weights(self, outputs: Tensor, mask: Tensor) -> Tensor:
        """How much of each output is in each of `context_vectors`: (B, T, h) → (B, m, T)."""
        mask = after_prompt(mask, self.context_unpooled)
        if self.codes is None:
            return self.chosen_tokens(mask)
        scale = attention_scale(self.attention, outputs.shape[-1])
        mean_share = self.config.code_mean
        return attention_weights(self.codes, outputs, mask, scale, self.recency, mean_share)

    def chosen_tokens(self, mask: Tensor) -> Tensor:
        """1 for the token that each context vector is, where they are not learnt: (B, m, T)."""
        kind, count = self.config.context_vectors, self.config.num_codes
        chosen, there = selected_places(mask, kind, count)  # (B, m)
        places = torch.arange(mask.shape[1], device=mask.device)
        return ((chosen[:, :, None] == places) & there[:, :, None]).float()
