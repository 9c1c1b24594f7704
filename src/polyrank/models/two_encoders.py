"""One pass over two texts by two encoders: each reads its own text, and they attend to each other.

Attention has no weights, so that queries, keys and values of both texts meet in it whoever made
them; all that has weights works on one token at a time. So the tokens of a batch lie one after the
other, those of the contexts first, without padding, and are put into rows for attention alone.

Knows the parts of BERT's layers, which ELECTRA and RoBERTa share.

Letters: B pairs, T tokens of a pair, n tokens of the batch, h width, A heads, d width of one.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from polyrank.models.backbone import Backbone
from polyrank.models.interaction import apart, sides_of
from polyrank.tokens.batching import Batch


def read_side_by_side(first: Backbone, second: Backbone, batch: Batch, gate: Tensor) -> Tensor:
    """The outputs of a batch of pairs: (B, T, h), zeros where there is no token.

    `first` reads the contexts and `second` the candidates; they may be one and the same. Texts are
    laid out apart, and `gate` is added to the logits between them.
    """
    sides = sides_of(batch)
    layout = Layout(sides.context, sides.candidate)
    one = first is second
    readers = [(first, layout.size)] if one else layout.shares(first, second)
    places, bias = apart(batch, gate)
    ids, places = layout.tokens(batch["input_ids"]), layout.tokens(places)
    counts = [count for _, count in readers]
    encoders: list[Any] = [reader.encoder for reader, _ in readers]
    parts = [
        embedded(encoder, tokens, where + reader.first_place)
        for encoder, (reader, _), tokens, where in zip(
            encoders, readers, ids.split(counts), places.split(counts), strict=True
        )
    ]
    num_heads = encoders[0].config.num_attention_heads
    for layers in zip(*(encoder.encoder.layer for encoder in encoders), strict=True):
        mixed = attended(layers, parts, layout, bias, num_heads).split(counts)
        parts = [
            after_attention(layer, own, part)
            for layer, own, part in zip(layers, mixed, parts, strict=True)
        ]
    return layout.rows(torch.cat(parts))


class Layout:
    """Where the tokens of both sides are in a batch; those of the contexts come first."""

    def __init__(self, context: Tensor, candidate: Tensor) -> None:
        self.shape = context.shape
        found = [torch.nonzero(side.reshape(-1))[:, 0] for side in (context, candidate)]
        self.counts = [len(side) for side in found]
        self.order = torch.cat(found)  # (n,)

    @property
    def size(self) -> int:
        """The number n of tokens."""
        return len(self.order)

    def shares(self, first: Backbone, second: Backbone) -> list[tuple[Backbone, int]]:
        """Who reads how many of the tokens."""
        return list(zip((first, second), self.counts, strict=True))

    def tokens(self, rows: Tensor) -> Tensor:
        """(B, T, …) → (n, …)."""
        return rows.reshape(-1, *rows.shape[2:])[self.order]

    def rows(self, tokens: Tensor) -> Tensor:
        """(n, h) → (B, T, h), zeros elsewhere."""
        empty = tokens.new_zeros(self.shape.numel(), tokens.shape[-1])
        return empty.index_copy(0, self.order, tokens).view(*self.shape, -1)


def embedded(encoder: Any, ids: Tensor, places: Tensor) -> Tensor:
    """Ids and positions (n,) to what the first layer gets: (n, h)."""
    segments = torch.zeros_like(ids)
    given = {"input_ids": ids[None], "position_ids": places[None], "token_type_ids": segments[None]}
    vectors: Tensor = encoder.embeddings(**given)[0]
    project = getattr(encoder, "embeddings_project", None)  # ELECTRA's small ones
    return vectors if project is None else project(vectors)


def attended(
    layers: tuple[Any, ...], parts: list[Tensor], layout: Layout, bias: Tensor, num_heads: int
) -> Tensor:
    """The attention of one layer over both sides: (n, h)."""

    def heads(name: str) -> Tensor:
        made = [
            getattr(layer.attention.self, name)(part)
            for layer, part in zip(layers, parts, strict=True)
        ]
        return layout.rows(torch.cat(made)).unflatten(-1, (num_heads, -1)).transpose(1, 2)

    query, key, value = heads("query"), heads("key"), heads("value")  # (B, A, T, d)
    bias = bias.to(query.dtype)
    if torch.is_grad_enabled() and query.device.type == "cpu":
        # torch's fused attention is slow on the way back on CPUs; see docs/log.md.
        logits = query @ key.mT * query.shape[-1] ** -0.5 + bias
        mixed = logits.softmax(dim=-1).to(value.dtype) @ value
    else:
        mixed = functional.scaled_dot_product_attention(query, key, value, attn_mask=bias)
    return layout.tokens(mixed.transpose(1, 2).flatten(2))


def after_attention(layer: Any, mixed: Tensor, before: Tensor) -> Tensor:
    """The rest of a layer, which works on one token at a time: (n, h)."""
    middle = layer.attention.output(mixed, before)
    outputs: Tensor = layer.output(layer.intermediate(middle), middle)
    return outputs
