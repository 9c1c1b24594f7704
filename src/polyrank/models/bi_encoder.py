"""The bi-encoder: one vector per context, one per candidate (Sentence-BERT; two towers)."""

from __future__ import annotations

from torch import Tensor

from polyrank.models.backbone import Backbone
from polyrank.models.config import BiEncoderConfig
from polyrank.models.pooling import reduce
from polyrank.models.two_tower import TwoTower
from polyrank.tokens.tokenizer import TextTokenizer


class BiEncoder(TwoTower):
    """Encodes both sides apart; the score is their inner product or scaled cosine."""

    architecture = "bi"

    def __init__(
        self, backbone: Backbone, tokenizer: TextTokenizer, config: BiEncoderConfig
    ) -> None:
        self.config = config
        super().__init__(backbone, tokenizer)

    def context_vectors(self, outputs: Tensor, mask: Tensor) -> Tensor:
        """The one reduction of the outputs: (B, T, h) → (B, 1, h)."""
        reduced = reduce(outputs, mask, self.config.reduction, self.config.reduction_tokens)
        return reduced[:, None, :]
