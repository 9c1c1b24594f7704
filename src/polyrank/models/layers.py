"""The layers of an encoder, one step at a time, for attention of our own between them.

Everything in an encoder that has weights works on one token at a time; only attention brings tokens
together, and it has no weights. So an encoder whose tokens lie one after another, without padding,
can be read through these steps with any attention. Knows nothing of texts, scores or tokenisers.

Letters: n tokens, h width, A heads, d width of one head.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from polyrank.errors import UsageError
from polyrank.models.backbone import Backbone, known_ids
from polyrank.models.bert import BERTS

MODERN = ("modernbert",)
STEPWISE = (*BERTS, *MODERN)
"""The kinds of encoders whose layers are known here."""


class Heads(NamedTuple):
    """What attention takes of some tokens: (n, A, d) each."""

    query: Tensor
    key: Tensor
    value: Tensor


class EncoderLayers(ABC):
    """An encoder as its embeddings, the two halves of each layer, and its end."""

    def __init__(self, backbone: Backbone) -> None:
        encoder: Any = backbone.encoder
        self.encoder = encoder
        self.first_place = backbone.first_place
        self.num_heads: int = encoder.config.num_attention_heads

    @property
    def shape(self) -> tuple[int, int]:
        """The number of layers, and the number A of heads of each."""
        return len(self.layers), self.num_heads

    @property
    @abstractmethod
    def layers(self) -> list[Any]:
        """The layers, first to last."""

    @abstractmethod
    def embedded(self, ids: Tensor, places: Tensor, segments: Tensor) -> Tensor:
        """Ids, positions from 0 and segments (n,) to what the first layer gets: (n, h)."""

    @abstractmethod
    def heads(self, layer: Any, hidden: Tensor, places: Tensor) -> Heads:
        """What a layer's attention takes of its inputs (n, h)."""

    @abstractmethod
    def after_attention(self, layer: Any, mixed: Tensor, hidden: Tensor) -> Tensor:
        """A layer's output from what attention mixed (n, A · d), and its inputs (n, h): (n, h)."""

    def finished(self, hidden: Tensor) -> Tensor:
        """The encoder's outputs from those of its last layer: (n, h)."""
        return hidden

    def reach(self, layer: Any) -> int | None:
        """How many positions away attention may look; None for any."""
        return None

    def split(self, projected: Tensor) -> Tensor:
        """(n, A · d) → (n, A, d)."""
        return projected.unflatten(-1, (self.num_heads, -1))


class BertLayers(EncoderLayers):
    """BERT's layers, which ELECTRA and RoBERTa share."""

    @property
    def layers(self) -> list[Any]:
        """Those of the encoder in the model."""
        return list(self.encoder.encoder.layer)

    def embedded(self, ids: Tensor, places: Tensor, segments: Tensor) -> Tensor:
        """The sum of three vectors, normalised; ELECTRA's small ones are projected."""
        types = self.encoder.config.type_vocab_size
        with known_ids(ids):
            vectors: Tensor = self.encoder.embeddings(
                input_ids=ids[None],
                position_ids=(places + self.first_place)[None],
                token_type_ids=segments.clamp(max=types - 1)[None],
            )[0]
        project = getattr(self.encoder, "embeddings_project", None)
        return vectors if project is None else project(vectors)

    def heads(self, layer: Any, hidden: Tensor, places: Tensor) -> Heads:
        """Three linear layers."""
        attention = layer.attention.self
        made = (attention.query, attention.key, attention.value)
        return Heads(*(self.split(linear(hidden)) for linear in made))

    def after_attention(self, layer: Any, mixed: Tensor, hidden: Tensor) -> Tensor:
        """Mixed, added and normalised; widened, narrowed, added and normalised."""
        middle = layer.attention.output(mixed, hidden)
        outputs: Tensor = layer.output(layer.intermediate(middle), middle)
        return outputs


class ModernBertLayers(EncoderLayers):
    """ModernBERT's: norms come first, positions turn queries and keys, some layers look near."""

    @property
    def layers(self) -> list[Any]:
        """Those of the model."""
        return list(self.encoder.layers)

    def embedded(self, ids: Tensor, places: Tensor, segments: Tensor) -> Tensor:
        """The vectors of the tokens alone, normalised."""
        with known_ids(ids):
            vectors: Tensor = self.encoder.embeddings(input_ids=ids[None])[0]
        return vectors

    def heads(self, layer: Any, hidden: Tensor, places: Tensor) -> Heads:
        """One linear layer; queries and keys are turned by their positions."""
        made = layer.attn.Wqkv(layer.attn_norm(hidden)).unflatten(-1, (3, self.num_heads, -1))
        query, key, value = made.unbind(dim=-3)
        cos, sin = self.encoder.rotary_emb(hidden[None], places[None], layer.attention_type)
        cos, sin = cos[0, :, None], sin[0, :, None]  # (n, 1, d)
        return Heads(turn(query, cos, sin), turn(key, cos, sin), value)

    def after_attention(self, layer: Any, mixed: Tensor, hidden: Tensor) -> Tensor:
        """What attention mixed is added, then what the gated layer makes of the normalised sum."""
        middle = hidden + layer.attn.out_drop(layer.attn.Wo(mixed))
        outputs: Tensor = middle + layer.mlp(layer.mlp_norm(middle))
        return outputs

    def finished(self, hidden: Tensor) -> Tensor:
        """Normalised once more."""
        outputs: Tensor = self.encoder.final_norm(hidden)
        return outputs

    def reach(self, layer: Any) -> int | None:
        """The half window of a layer that looks near."""
        near = layer.attention_type == "sliding_attention"
        return int(self.encoder.config.sliding_window) if near else None


def turn(vectors: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate pairs of numbers by angles: (n, A, d), (n, 1, d) → (n, A, d)."""
    wide = vectors.to(torch.promote_types(vectors.dtype, torch.float32))
    first, second = wide.chunk(2, dim=-1)
    turned = wide * cos.to(wide.dtype) + torch.cat((-second, first), dim=-1) * sin.to(wide.dtype)
    return turned.to(vectors.dtype)


def require_kind(backbone: Backbone, kinds: Sequence[str], setting: str, instead: str) -> None:
    """Raise UsageError for an encoder of another kind; the one inside a graph was of one of them.

    `setting` needs the kinds, and `instead` is what other encoders can have.
    """
    if backbone.kind is not None and backbone.kind not in kinds:
        raise UsageError(
            f"{setting} needs an encoder of the kind {', '.join(kinds)}, not {backbone.kind}.",
            f"Choose {instead}, or another encoder.",
        )


def gates_of(backbone: Backbone) -> tuple[int, ...]:
    """The shape of gates of their own for each layer and head; () for an encoder inside a graph."""
    return () if backbone.kind is None else layers_of(backbone).shape


def layers_of(backbone: Backbone) -> EncoderLayers:
    """The layers of an encoder of the kinds `STEPWISE`."""
    assert backbone.kind in STEPWISE, "the model has required it"
    return ModernBertLayers(backbone) if backbone.kind in MODERN else BertLayers(backbone)
