"""BERT's encoder in torch alone, for inference; ELECTRA's and RoBERTa's are the same network.

Training uses that of `transformers`, whose modelling code takes longer to import than a search
takes. Here the weights have the same names, and the outputs are equal bit for bit. Variants that
`transformers` does not have are trained here, too. Knows nothing of tokenisers.

Letters: B texts, T tokens of each, h width, A heads, d width of one.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

from torch import Tensor, arange, empty, nn, zeros_like
from torch.nn import functional

from polyrank.folder_files import read_object

ROBERTAS = ("roberta", "xlm-roberta")
"""The kinds of encoder that count positions from pad_token_id + 1."""
BERTS = ("bert", "electra", *ROBERTAS)
"""Kinds of encoder with BERT's layers."""
VARIANT = "polyrank-bert"
"""The kind of a BERT whose embeddings are not normalised, or whose layers normalise what comes in
(`norm_first`) instead of what goes out."""
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": functional.gelu,
    "relu": functional.relu,
}
SIZES = (
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "max_position_embeddings",
    "type_vocab_size",
)
SWITCHES = ("norm_embeddings", "norm_first")
"""What a variant's description says besides."""


class BertConfig(SimpleNamespace):
    """The encoder's description, with the names of its `config.json` as attributes."""

    def save_pretrained(self, folder: Path) -> None:
        """Write `config.json`."""
        folder.mkdir(exist_ok=True)
        text = json.dumps(vars(self), indent=2, sort_keys=True) + "\n"
        (folder / "config.json").write_text(text, encoding="utf-8")


def read_config(folder: Path) -> BertConfig | None:
    """The description in a folder, or None if `Bert` is not the network that it describes."""
    found = read_object(folder / "config.json")  # who reads other networks says what is wrong
    config = BertConfig(**found)
    sizes = [getattr(config, name, None) for name in (*SIZES, "pad_token_id")]
    kind = found.get("model_type")
    if not isinstance(kind, str) or not isinstance(found.get("hidden_act"), str):
        return None
    known = kind in BERTS or (
        kind == VARIANT and all(type(found.get(name)) is bool for name in SWITCHES)
    )
    if (
        known
        and found["hidden_act"] in ACTIVATIONS
        and found.get("position_embedding_type", "absolute") == "absolute"
        and all(type(size) is int and size >= 0 for size in sizes)
        and config.num_attention_heads > 0
        and isinstance(found.get("layer_norm_eps"), float)
        and (kind != "electra" or type(found.get("embedding_size")) is int)
        and config.hidden_size % config.num_attention_heads == 0
        and not found.get("is_decoder")
        and not found.get("add_cross_attention")
    ):
        return config
    return None


class Outputs(NamedTuple):
    """The outputs of an encoder: (B, T, h)."""

    last_hidden_state: Tensor


class Bert(nn.Module):
    """The encoder of a description (Devlin et al., 2019), without pooling layer.

    It drops hidden values in training as BERT does, but no attention.
    """

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.config = config
        self.embeddings = Embeddings(config)
        small = getattr(config, "embedding_size", config.hidden_size)
        if small != config.hidden_size:
            self.embeddings_project = nn.Linear(small, config.hidden_size)
        self.encoder = Layers(config)
        if getattr(config, "norm_first", False):
            self.final_norm = norm(config.hidden_size, config)

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
    ) -> Outputs:
        """Ids (B, T), and where they are not padding, to outputs (B, T, h)."""
        hidden = self.embeddings(input_ids, token_type_ids)
        if hasattr(self, "embeddings_project"):
            hidden = self.embeddings_project(hidden)
        mask = None
        if attention_mask is not None:
            length = input_ids.shape[1]
            mask = attention_mask.bool()[:, None, None, :].expand(-1, 1, length, -1)  # (B, 1, T, T)
        for layer in self.encoder.layer:
            hidden = layer(hidden, mask)
        if hasattr(self, "final_norm"):
            hidden = self.final_norm(hidden)
        return Outputs(hidden)

    def get_input_embeddings(self) -> nn.Embedding:
        """The table of the tokens' vectors."""
        return self.embeddings.word_embeddings


class Embeddings(nn.Module):
    """The sum of the vectors of a token, of its segment and of its position, normalised."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        width = getattr(config, "embedding_size", config.hidden_size)
        self.padding: int | None = config.pad_token_id if config.model_type in ROBERTAS else None
        self.word_embeddings = table(config.vocab_size, width)
        self.token_type_embeddings = table(config.type_vocab_size, width)
        self.position_embeddings = table(config.max_position_embeddings, width)
        has_norm = getattr(config, "norm_embeddings", True)
        self.LayerNorm = norm(width, config) if has_norm else nn.Identity()
        self.dropout = dropout(config)

    def forward(
        self,
        input_ids: Tensor,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
    ) -> Tensor:
        """(B, T) → (B, T, h)."""
        if token_type_ids is None:
            token_type_ids = zeros_like(input_ids)
        if position_ids is None:
            position_ids = self.places(input_ids)
        vectors = self.word_embeddings(input_ids) + self.token_type_embeddings(token_type_ids)
        normalised: Tensor = self.LayerNorm(vectors + self.position_embeddings(position_ids))
        kept: Tensor = self.dropout(normalised)
        return kept

    def places(self, input_ids: Tensor) -> Tensor:
        """Positions from 0: (1, T); RoBERTa's from its padding + 1, where padding stays: (B, T)."""
        if self.padding is None:
            return arange(input_ids.shape[1], device=input_ids.device)[None]
        real = input_ids.ne(self.padding).long()
        return real.cumsum(dim=1) * real + self.padding


def table(count: int, width: int) -> nn.Embedding:
    """An embedding of `count` ids whose weights are not drawn: on the meta device that imports
    torch's compiler.
    """
    return nn.Embedding.from_pretrained(empty(count, width), freeze=False)


def norm(width: int, config: BertConfig) -> nn.LayerNorm:
    """A norm of vectors."""
    return nn.LayerNorm(width, eps=config.layer_norm_eps)


def dropout(config: BertConfig) -> nn.Dropout:
    """What drops hidden values in training."""
    return nn.Dropout(getattr(config, "hidden_dropout_prob", 0.0))


class Layers(nn.Module):
    """The layers, one after the other."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        kind = NormFirstLayer if getattr(config, "norm_first", False) else Layer
        self.layer = nn.ModuleList(kind(config) for _ in range(config.num_hidden_layers))


class Layer(nn.Module):
    """Attention, then two dense layers for each token."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.attention = Attention(config)
        self.intermediate = Intermediate(config)
        self.output = Residual(config.intermediate_size, config)

    def forward(self, hidden: Tensor, mask: Tensor | None) -> Tensor:
        """(B, T, h) → (B, T, h)."""
        middle = self.attention(hidden, mask)
        outputs: Tensor = self.output(self.intermediate(middle), middle)
        return outputs


class NormFirstLayer(Layer):
    """The same layer with each norm before what it followed (Xiong et al., 2020)."""

    def forward(self, hidden: Tensor, mask: Tensor | None) -> Tensor:
        """(B, T, h) → (B, T, h)."""
        mixing, widening = self.attention.output, self.output
        mixed = self.attention.self(mixing.LayerNorm(hidden), mask)
        hidden = hidden + mixing.dropout(mixing.dense(mixed))
        wide = self.intermediate(widening.LayerNorm(hidden))
        outputs: Tensor = hidden + widening.dropout(widening.dense(wide))
        return outputs


class Attention(nn.Module):
    """Attention of all heads, mixed and added to what came in."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.self = SelfAttention(config)
        self.output = Residual(config.hidden_size, config)

    def forward(self, hidden: Tensor, mask: Tensor | None) -> Tensor:
        """(B, T, h) → (B, T, h)."""
        outputs: Tensor = self.output(self.self(hidden, mask), hidden)
        return outputs


class SelfAttention(nn.Module):
    """Attention of all heads."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.shape = (config.num_attention_heads, config.hidden_size // config.num_attention_heads)
        self.query = nn.Linear(config.hidden_size, config.hidden_size)
        self.key = nn.Linear(config.hidden_size, config.hidden_size)
        self.value = nn.Linear(config.hidden_size, config.hidden_size)

    def forward(self, hidden: Tensor, mask: Tensor | None) -> Tensor:
        """(B, T, h) → (B, T, h)."""
        query, key, value = (
            layer(hidden).unflatten(-1, self.shape).transpose(1, 2)  # (B, A, T, d)
            for layer in (self.query, self.key, self.value)
        )
        mixed = functional.scaled_dot_product_attention(
            query, key, value, attn_mask=mask, scale=self.shape[1] ** -0.5
        )
        return mixed.transpose(1, 2).flatten(2)


class Intermediate(nn.Module):
    """The wide dense layer and its activation."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.intermediate_size)
        self.activation = ACTIVATIONS[config.hidden_act]

    def forward(self, hidden: Tensor) -> Tensor:
        """(B, T, h) → (B, T, wide)."""
        return self.activation(self.dense(hidden))


class Residual(nn.Module):
    """A dense layer, added to what came in and normalised."""

    def __init__(self, width: int, config: BertConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(width, config.hidden_size)
        self.LayerNorm = norm(config.hidden_size, config)
        self.dropout = dropout(config)

    def forward(self, hidden: Tensor, before: Tensor) -> Tensor:
        """(B, T, width), (B, T, h) → (B, T, h)."""
        normalised: Tensor = self.LayerNorm(self.dropout(self.dense(hidden)) + before)
        return normalised
