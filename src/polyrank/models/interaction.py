"""A pair read by one or two encoders with a gate between its texts, and compared token by token.

A pair is laid out as its two texts alone, each with its own special tokens and positions, and the
attention logits from one text to the other start lowered by a learnt gate. With the gate closed
the outputs are those of the texts read apart; training opens it as far as it helps.

Each text may have an encoder of its own. Attention has no weights, so queries, keys and values of
both texts meet in it whichever encoder made them; everything that has weights works on one token at
a time. So the tokens of a batch lie one after the other, those of the contexts first, without
padding, and are put into rows for attention alone. Knows nothing of tokenisers.

Letters: B pairs or contexts, N candidates, T tokens of a pair or context, U of a candidate, n of
the batch, h width, A heads, d width of one.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from polyrank.models.backbone import Backbone
from polyrank.models.layers import Heads, layers_of
from polyrank.models.once import Laid
from polyrank.models.pooling import attend, draw_codes, initial_recency
from polyrank.scoring.poly import poly_scores, poly_scores_each
from polyrank.tokens.batching import Batch, mask_of

WEIGHTS = (10.0, 7.5, 3.75)
"""Initial weights of the cosine of the means and of the best matches of candidate and context
tokens; together about the scale, 20, of a cosine with temperature 0.05 (docs/log.md)."""
CODE_RECENCY, CODE_MEAN, CODE_TEMPERATURE = 0.1, 0.67, 0.05
"""The codes' first recency, their even share, and the temperature of the attention over their
vectors: what a poly-encoder has by default (`PolyEncoderConfig`)."""
CLOSED = -5.0
"""A gate at or below which the texts hardly see each other: the other text has less than e^−5 of
the weight that it has with an open gate."""
HIDDEN = -1e30
"""Added to the logits of tokens that are not there; a number in bfloat16 too."""
BELOW = -2.0
"""Stands for the cosine of a token that is not there: less than any, and finite on the way back."""
BLOCK_ROWS = 16
"""Texts of one block of `score_all`: sorted by length, so that a block has little padding."""
KEPT_COSINES = 2**26
"""Cosines of tokens that are kept for the way back; more are worked out twice."""


class Sides(NamedTuple):
    """Which tokens belong to the context and which to the candidate: (B, T) booleans."""

    context: Tensor
    candidate: Tensor


def sides_of(batch: Batch) -> Sides:
    """The sides of a batch of pairs, whose `token_type_ids` mark the candidate."""
    mask, second = mask_of(batch), batch["token_type_ids"].bool()
    return Sides(mask & ~second, mask & second)


def apart(batch: Batch, gate: Tensor) -> tuple[Tensor, Tensor]:
    """How a batch of pairs is laid out to be read through a gate.

    Positions (B, T), which start again at the candidate; and what is added to the logits of the
    attention (B, 1, T, T): `gate` between the two texts, and what hides the padding.
    """
    context, candidate = sides_of(batch)
    real = context | candidate
    places = torch.arange(real.shape[1], device=real.device)[None, :]
    places = (places - candidate * context.sum(dim=1, keepdim=True)) * real  # (B, T)
    across = candidate[:, None, :, None] != candidate[:, None, None, :]
    bias = torch.where(across, gate.float(), torch.zeros((), device=real.device))
    return places, bias.masked_fill(~real[:, None, None, :], HIDDEN)


class InteractionHead(nn.Module):
    """The score of a pair: how near the texts are as a whole, and every token's best match.

    As a whole: the cosines of the candidate's mean with m vectors of the context, over which it
    attends, as in the poly-encoder; without codes, with the context's mean. Every token: late
    interaction as in ColBERT (Khattab and Zaharia, 2020), in both directions, with a learnt weight
    of each token; over outputs that have seen the other text, if they were read together. `gate` is
    the one that `apart` takes, or one for each layer and head (`models.once`).
    """

    def __init__(
        self, width: int, gate: float, gates: tuple[int, ...] = (), num_codes: int = 0
    ) -> None:
        """`gates`: the shape of the gates; by default there is one. `num_codes`: m."""
        super().__init__()
        self.weights = nn.Parameter(torch.tensor(WEIGHTS, device="cpu").log())
        self.importance = nn.Parameter(torch.zeros(2, width))
        self.gate = nn.Parameter(torch.full(gates, float(gate)))
        self.codes: nn.Parameter | None = None
        self.recency: nn.Parameter | None = None
        if num_codes:
            self.codes = nn.Parameter(torch.empty(num_codes, width))
            self.recency = nn.Parameter(initial_recency(self.codes, CODE_RECENCY))
            self.reset_codes(1.0)

    def reset_codes(self, output_norm: float) -> None:
        """Draw new codes, if there are any, for token outputs of this Euclidean norm."""
        if self.codes is not None:
            draw_codes(self.codes, output_norm, 1.0)

    def wholes(self, outputs: Tensor, mask: Tensor) -> Tensor:
        """The vectors of contexts as wholes, of norm 1: (B, T, h), (B, T) → (B, m, h)."""
        if self.codes is None:
            return mean(outputs, mask)[:, None]
        vectors = attend(self.codes, outputs, mask, 1.0, self.recency, CODE_MEAN)
        return functional.normalize(vectors, dim=-1)

    def forward(self, outputs: Tensor, sides: Sides) -> Tensor:
        """Outputs (B, T, h) of pairs to scores (B, 1)."""
        wholes, right = self.wholes(outputs, sides.context), mean(outputs, sides.candidate)
        tokens = functional.normalize(outputs, dim=-1)
        cosines = tokens @ tokens.transpose(-1, -2)  # (B, T, T)
        there = cosines.masked_fill(~sides.context[:, :, None], -torch.inf).amax(dim=1)
        back = cosines.masked_fill(~sides.candidate[:, None, :], -torch.inf).amax(dim=2)
        shares = self.shares(outputs, sides.context, 0), self.shares(outputs, sides.candidate, 1)
        scores = self.weighed(
            nearness(wholes, right[:, None])[:, 0],
            (there * shares[1]).sum(dim=-1),
            (back * shares[0]).sum(dim=-1),
        )
        return scores[:, None]

    def weighed(self, whole: Tensor, there: Tensor, back: Tensor) -> Tensor:
        """The score from how near the texts are as a whole, and their tokens in both directions."""
        return (torch.stack([whole, there, back], dim=-1) * self.weights.exp()).sum(dim=-1)

    def shares(self, outputs: Tensor, mask: Tensor, side: int) -> Tensor:
        """How much each token's match counts: (B, T, h) → (B, T), of sum 1."""
        logits = outputs @ self.importance[side]
        return logits.masked_fill(~mask, -torch.inf).softmax(dim=-1)

    def score_all(self, contexts: Tensor, candidates: Tensor) -> Tensor:
        """Every context against every candidate, read apart: (B, T, h), (N, U, h) → (B, N).

        Tokens that are not there are zeros.
        """
        wholes = self.wholes(contexts, contexts.any(dim=-1))
        rows, columns = blocks(contexts), blocks(candidates)
        size = contexts.shape[0] * contexts.shape[1] * candidates.shape[0] * candidates.shape[1]
        keep = size <= KEPT_COSINES or not torch.is_grad_enabled()
        lines = []
        for row, length in rows:
            line = []
            for column, width in columns:
                block = wholes[row], contexts[row, :length], candidates[column, :width]
                line.append(
                    self.block(*block)
                    if keep
                    else checkpoint(self.block, *block, use_reentrant=False)
                )
            lines.append(torch.cat(line, dim=1))
        scores = torch.cat(lines)
        order = [
            torch.argsort(torch.cat([places for places, _ in part])) for part in (rows, columns)
        ]
        return scores[order[0]][:, order[1]]

    def score_own(self, contexts: Tensor, candidates: Tensor, laid: Laid) -> Tensor:
        """Each candidate's score by its own context: outputs (n, h) of both, as `laid` → (C,)."""
        whole, own, together = laid.contexts, laid.candidates, laid.together
        rows, grid = whole.padded(contexts), own.padded(candidates)  # (B, T, h), (C, U, h)
        means = laid.own.padded(mean(grid, own.real))  # (B, most candidates of one, h)
        near = laid.own.tokens(nearness(self.wholes(rows, whole.real), means))  # (C,)
        shares = self.shares(rows, whole.real, 0), self.shares(grid, own.real, 1)
        tokens = together.padded(functional.normalize(candidates, dim=-1))  # (B, S, h)
        cosines = tokens @ functional.normalize(rows, dim=-1).transpose(1, 2)
        cosines = cosines.masked_fill(~whole.real[:, None, :], BELOW)  # (B, S, T)
        there = own.padded(together.tokens(cosines.amax(dim=2)))  # (C, U)
        back = own.padded(together.tokens(cosines))  # (C, U, T)
        back = back.masked_fill(~own.real[:, :, None], BELOW).amax(dim=1)
        weights = shares[0][laid.owners]
        return self.weighed(near, (there * shares[1]).sum(dim=-1), (back * weights).sum(dim=-1))

    def block(self, wholes: Tensor, contexts: Tensor, candidates: Tensor) -> Tensor:
        """`score_all` of a few texts: (B, m, h), (B, T, h), (N, U, h) → (B, N)."""
        left_mask, right_mask = contexts.any(dim=-1), candidates.any(dim=-1)
        cosines = torch.einsum(
            "bth,nuh->bntu",
            functional.normalize(contexts, dim=-1),
            functional.normalize(candidates, dim=-1),
        )
        there = cosines.masked_fill(~left_mask[:, None, :, None], -torch.inf).amax(dim=2)
        back = cosines.masked_fill(~right_mask[None, :, None, :], -torch.inf).amax(dim=3)
        return self.weighed(
            poly_scores(wholes / CODE_TEMPERATURE, mean(candidates, right_mask)) * CODE_TEMPERATURE,
            torch.einsum("bnu,nu->bn", there, self.shares(candidates, right_mask, 1)),
            torch.einsum("bnt,bt->bn", back, self.shares(contexts, left_mask, 0)),
        )


def nearness(wholes: Tensor, candidates: Tensor) -> Tensor:
    """The cosines of each context's candidates with its vectors, which they attend over.

    (B, m, h), (B, C, h), all of norm 1 → (B, C).
    """
    return poly_scores_each(wholes / CODE_TEMPERATURE, candidates) * CODE_TEMPERATURE


def mean(outputs: Tensor, mask: Tensor) -> Tensor:
    """The mean of the marked outputs, of norm 1: (B, T, h), (B, T) → (B, h)."""
    weights = mask.to(outputs.dtype)[:, None, :]
    return functional.normalize(torch.bmm(weights, outputs)[:, 0], dim=-1)


def blocks(texts: Tensor) -> list[tuple[Tensor, int]]:
    """Places of texts (N, T, h) sorted by length, some at a time, with the longest's length."""
    lengths = texts.detach().any(dim=-1).sum(dim=1)
    order = torch.argsort(lengths, stable=True)
    return [(part, max(int(lengths[part].max()), 1)) for part in order.split(BLOCK_ROWS)]


def read_side_by_side(first: Backbone, second: Backbone, batch: Batch, gate: Tensor) -> Tensor:
    """The outputs of a batch of pairs: (B, T, h), zeros at padding.

    `first` reads the contexts and `second` the candidates; they may be one and the same. Texts are
    laid out apart, and `gate` is added to the logits between them.
    """
    sides = sides_of(batch)
    order = TokenOrder(sides.context, sides.candidate)
    readers = [(first, order.size)] if first is second else order.shares(first, second)
    given, bias = apart(batch, gate)
    counts = [count for _, count in readers]
    encoders = [layers_of(reader) for reader, _ in readers]
    places = order.tokens(given).split(counts)
    parts = [
        encoder.embedded(ids, where, torch.zeros_like(ids))
        for encoder, ids, where in zip(
            encoders, order.tokens(batch["input_ids"]).split(counts), places, strict=True
        )
    ]
    for layers in zip(*(encoder.layers for encoder in encoders), strict=True):
        heads = [
            encoder.heads(layer, part, where)
            for encoder, layer, part, where in zip(encoders, layers, parts, places, strict=True)
        ]
        mixed = attended(heads, order, bias).split(counts)
        parts = [
            encoder.after_attention(layer, own, part)
            for encoder, layer, own, part in zip(encoders, layers, mixed, parts, strict=True)
        ]
    return order.rows(torch.cat(parts))


class TokenOrder:
    """Where the tokens of both sides are in a batch; those of the contexts come first."""

    def __init__(self, context: Tensor, candidate: Tensor) -> None:
        self.shape = context.shape
        found = [torch.nonzero(side.reshape(-1))[:, 0] for side in (context, candidate)]
        self.counts = [side.shape[0] for side in found]  # not len(): a tracer needs the symbol
        self.order = torch.cat(found)  # (n,)

    @property
    def size(self) -> int:
        """The number n of tokens."""
        return self.order.shape[0]

    def shares(self, first: Backbone, second: Backbone) -> list[tuple[Backbone, int]]:
        """Who reads how many of the tokens."""
        return list(zip((first, second), self.counts, strict=True))

    def tokens(self, rows: Tensor) -> Tensor:
        """(B, T, …) → (n, …)."""
        return rows.reshape(-1, *rows.shape[2:])[self.order]

    def rows(self, tokens: Tensor) -> Tensor:
        """(n, …) → (B, T, …), zeros elsewhere."""
        rows, longest = self.shape
        own = tokens.shape[1:]
        empty = tokens.new_zeros(rows * longest, *own)  # numel() would end a trace
        return empty.index_copy(0, self.order, tokens).view(rows, longest, *own)


def attended(heads: list[Heads], order: TokenOrder, bias: Tensor) -> Tensor:
    """The attention of one layer over both sides: (n, h)."""
    query, key, value = (
        order.rows(torch.cat(each)).transpose(1, 2) for each in zip(*heads, strict=True)
    )  # (B, A, T, d)
    bias = bias.to(query.dtype)
    if torch.is_grad_enabled() and query.device.type == "cpu":
        # torch's fused attention is slow on the way back on CPUs; see docs/log.md.
        logits = query @ key.transpose(-1, -2) * query.shape[-1] ** -0.5 + bias
        mixed = logits.softmax(dim=-1).to(value.dtype) @ value
    else:
        mixed = functional.scaled_dot_product_attention(query, key, value, attn_mask=bias)
    return order.tokens(mixed.transpose(1, 2).flatten(2))
