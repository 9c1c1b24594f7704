"""An encoder with random weights, to be pre-trained. Knows its form; nothing of texts."""

from __future__ import annotations

from typing import Any

from torch import nn
from transformers import BertConfig, BertModel

from polyrank.models.encoder_config import NewEncoderConfig


def new_encoder(config: NewEncoderConfig, tokenizer: Any) -> nn.Module:
    """A BERT without pooling layer for a tokeniser's vocabulary, drawn as BERT's weights are.

    Draw from a seed set beforehand. Attention weights are never dropped, as anywhere in polyrank.
    """
    form = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=config.width,
        num_hidden_layers=config.layers,
        num_attention_heads=config.heads,
        intermediate_size=config.intermediate or 4 * config.width,
        max_position_embeddings=config.positions,
        attention_probs_dropout_prob=0.0,
        pad_token_id=tokenizer.pad_token_id,
    )
    made: nn.Module = BertModel(form, add_pooling_layer=False)
    return made.eval()
