"""One context and all its candidates in one sequence: the context is read once.

The candidates of a context do not see each other. Each is laid out as if it were the only one: its
tokens see the context and themselves. The context sees itself alone, so its keys and values are
computed once and serve any number of candidates, and a candidate's score does not depend on the
others; or it sees all candidates, for comparison (Song et al., 2021, Uni-Encoder: a fast and
accurate response selection paradigm for generation-based dialogue systems).

Tokens lie one after another, without padding, wherever there are weights. For attention alone they
are put into rows: those of the contexts, those of all candidates of a context behind one another,
and those of each candidate. A softmax over two sets of keys is computed for each set, and the two
are joined by their sums; there a gate lowers or raises the attention to the other text.

Letters: B contexts, T tokens of the longest; C candidates of all contexts, U tokens of the longest,
S tokens of all candidates of one context; n tokens, h width, A heads, d width of one.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor

from polyrank.models.backbone import Backbone
from polyrank.models.layers import Heads, layers_of
from polyrank.tokens.batching import Batch

LIKE = 0.7
"""How long a row must be, as a share of the longest, to be computed together with it."""
MANY = 64
"""Queries of a row from which on fused attention is faster."""
FUSED: Any = getattr(torch.ops.aten, "_scaled_dot_product_flash_attention_for_cpu", None)
"""torch's fused attention on CPUs, with the logarithms of its sums, which its public call lacks."""
HIDDEN = -1e30
"""Added to the logits of tokens that are not there; a number in bfloat16 too."""


class Rows:
    """Where tokens that lie one after another stand in padded rows."""

    def __init__(self, lengths: Tensor) -> None:
        """`lengths` (R,): the tokens of each row."""
        self.lengths = lengths
        self.count, self.longest = len(lengths), int(lengths.max()) if len(lengths) else 0
        device = lengths.device
        places = torch.arange(self.longest, device=device)
        self.real = places < lengths[:, None]  # (R, longest)
        self.flat = torch.nonzero(self.real.reshape(-1))[:, 0]  # (n,)
        self.places = places.expand(self.count, -1)[self.real]  # (n,)
        self.row = torch.arange(self.count, device=device).repeat_interleave(lengths)  # (n,)

    @cached_property
    def bias(self) -> Tensor:
        """What hides the padding, as keys, from every query: (R, 1, 1, longest)."""
        bias = torch.zeros(self.real.shape, device=self.real.device)
        return bias.masked_fill(~self.real, HIDDEN)[:, None, None, :]

    @cached_property
    def by_length(self) -> list[tuple[Tensor, Rows]]:
        """Rows of like length, longest first: the places of their tokens, and they alone."""
        lengths, order = self.lengths.sort(descending=True, stable=True)
        sizes = lengths.tolist()
        cuts = [0]
        for place, size in enumerate(sizes):
            if size < LIKE * sizes[cuts[-1]]:
                cuts.append(place)
        starts = self.lengths.cumsum(0) - self.lengths
        parts = []
        for start, stop in pairwise([*cuts, len(sizes)]):
            rows = Rows(lengths[start:stop])
            parts.append((starts[order[start:stop]][rows.row] + rows.places, rows))
        return parts

    @cached_property
    def back(self) -> Tensor:
        """Where each token is when those of the parts `by_length` are joined: (n,)."""
        return torch.cat([tokens for tokens, _ in self.by_length]).argsort()

    def padded(self, tokens: Tensor) -> Tensor:
        """(n, …) → (R, longest, …), zeros elsewhere."""
        empty = tokens.new_zeros(self.count * self.longest, *tokens.shape[1:])
        return empty.index_copy(0, self.flat, tokens).unflatten(0, (self.count, self.longest))

    def tokens(self, rows: Tensor) -> Tensor:
        """(R, longest, …) → (n, …)."""
        return rows.flatten(0, 1)[self.flat]


class PaddedRows(Rows):
    """Rows whose tokens are given padded, one row after another; a graph has only such."""

    def __init__(self, real: Tensor) -> None:
        """`real` (R, longest): the tokens that are there."""
        self.real = real
        self.count, self.longest = real.shape
        self.places = torch.arange(real.shape[1], device=real.device).expand(real.shape).flatten()

    @cached_property
    def by_length(self) -> list[tuple[Tensor, Rows]]:
        """All rows at once: a graph cannot tell lengths apart."""
        return [(torch.arange(self.real.numel(), device=self.real.device), self)]

    def padded(self, tokens: Tensor) -> Tensor:
        """(n, …) → (R, longest, …)."""
        return tokens.reshape(*self.real.shape, *tokens.shape[1:])

    def tokens(self, rows: Tensor) -> Tensor:
        """(R, longest, …) → (n, …)."""
        return rows.flatten(0, 1)


class Laid(NamedTuple):
    """A batch of contexts with their candidates, laid out."""

    contexts: Rows
    """(B, T)."""
    candidates: Rows
    """(C, U)."""
    together: Rows
    """All candidates of a context behind one another: (B, S)."""
    context_places: Tensor
    """(n,)."""
    candidate_places: Tensor
    """(n,)."""
    owners: Tensor
    """The row of each candidate's context: (C,)."""
    own: Rows
    """The candidates of each context, each as one: (B, most of one)."""


def lay_out(batch: Batch, *, continued: bool) -> Laid:
    """Where the tokens of a batch stand.

    `continued`: a candidate's positions go on after its context's last, instead of from 0.
    """
    contexts = Rows(batch["context_lengths"])
    candidates = Rows(batch["candidate_lengths"])
    owners = batch["owners"]  # (C,), in order
    sums = torch.zeros_like(batch["context_lengths"]).index_add(
        0, owners, batch["candidate_lengths"]
    )
    places = candidates.places
    if continued:
        places = places + batch["context_lengths"][owners][candidates.row]
    counts = torch.bincount(owners, minlength=contexts.count)
    own = Rows(counts)
    return Laid(contexts, candidates, Rows(sums), contexts.places, places, owners, own)


def lay_out_padded(context: int, real: Tensor, *, continued: bool) -> Laid:
    """Where the tokens of one context, so many, and of its padded candidates stand.

    `real` (C, U): the tokens of the candidates that are there.
    """
    owners = torch.zeros_like(real[:, 0], dtype=torch.int64)
    contexts, candidates = PaddedRows(real.new_ones(1, context)), PaddedRows(real)
    places = candidates.places + context if continued else candidates.places
    together = PaddedRows(real.reshape(1, -1))
    own = PaddedRows(owners[None] == 0)
    return Laid(contexts, candidates, together, contexts.places, places, owners, own)


@dataclass
class KeptContexts:
    """What candidates need of their contexts: computed once, whatever the number of candidates."""

    keys: list[Tensor]
    """Of each layer: (B, A, T, d)."""
    values: list[Tensor]
    outputs: Tensor
    """(n, h)."""

    def packed(self) -> Tensor:
        """All of one context as one tensor: (2 · layers + 1, T, h)."""
        states = [each[0].transpose(0, 1).flatten(1) for each in (*self.keys, *self.values)]
        return torch.stack([*states, self.outputs])

    @classmethod
    def unpacked(cls, packed: Tensor, num_layers: int, num_heads: int) -> KeptContexts:
        """What was `packed`."""
        heads = packed[:-1].unflatten(-1, (num_heads, -1)).transpose(1, 2)  # (…, A, T, d)
        states = [heads[place][None] for place in range(2 * num_layers)]
        return cls(states[:num_layers], states[num_layers:], packed[-1])


def softmax_and_sum(logits: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """The softmax of logits over the last axis, in a dtype, and the logarithm of their sum."""
    wide = torch.promote_types(logits.dtype, torch.float32)
    shares = torch.softmax(logits, dim=-1, dtype=wide)
    sums = logits.amax(dim=-1, keepdim=True).to(wide) - shares.amax(dim=-1, keepdim=True).log()
    return shares.to(dtype), sums


class SoftmaxAndSum(torch.autograd.Function):
    """`softmax_and_sum`, of which only the softmax is kept for the way back."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """(…, K) → (…, K) in `dtype`, (…, 1)."""
        shares, sums = softmax_and_sum(logits, dtype)
        ctx.save_for_backward(shares)
        ctx.dtype = logits.dtype
        return shares, sums

    @staticmethod
    def backward(ctx: Any, shares_grad: Tensor, sums_grad: Tensor) -> tuple[Tensor, None]:
        """The gradient of the logits: each sum's is the softmax itself."""
        (shares,) = ctx.saved_tensors
        inner = (shares_grad * shares).sum(dim=-1, keepdim=True, dtype=sums_grad.dtype)
        gradient = (sums_grad - inner).to(shares.dtype).add(shares_grad).mul_(shares)
        return gradient.to(ctx.dtype), None


def attend(query: Tensor, key: Tensor, value: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """Attention over one set of keys: (R, A, Q, d), twice (R, A, K, d), (R, 1, 1 or Q, K).

    Returns what it mixed (R, A, Q, d) and the logarithm of its sum (R, A, Q, 1).
    """
    bias = bias.to(query.dtype)
    if is_fused(query):
        mask = bias.expand(-1, -1, query.shape[2], -1)
        mixed, sums = FUSED(query, key, value, attn_mask=mask)
        return mixed, sums[..., None]
    logits = (query * query.shape[-1] ** -0.5) @ key.transpose(-1, -2) + bias
    taken = SoftmaxAndSum.apply if torch.is_grad_enabled() else softmax_and_sum
    shares, sums = taken(logits, value.dtype)
    return shares @ value, sums


def is_fused(query: Tensor) -> bool:
    """Whether fused attention computes this, and is faster: without gradients, on a CPU."""
    return (
        FUSED is not None
        and not (torch.is_grad_enabled() or is_traced())
        and query.device.type == "cpu"
        and query.dtype in (torch.float32, torch.bfloat16)
        and query.shape[2] >= MANY
    )


def is_traced() -> bool:
    """Whether a graph is being made of this."""
    tracing: bool = torch.jit.is_tracing()  # type: ignore[attr-defined]
    return tracing or torch.compiler.is_compiling()


def joined(other: tuple[Tensor, Tensor], own: tuple[Tensor, Tensor], gate: Tensor | None) -> Tensor:
    """Attention over two sets of keys as one, from that over each: (n, A, d), (n, A, 1).

    `gate` (A,) is added to the logits of the other text.
    """
    odds = other[1] - own[1]
    if gate is not None:
        odds = odds + gate.float()[:, None]
    share = odds.sigmoid().to(own[0].dtype)
    return own[0] + share * (other[0] - own[0])


def far(bias: Tensor, queries: Tensor, keys: Tensor, reach: int | None) -> Tensor:
    """A bias that also hides keys further than `reach` positions: (R, Q), (R, K) → (R, 1, Q, K)."""
    if reach is None:
        return bias
    distance = (queries[:, :, None] - keys[:, None, :]).abs()
    return bias.expand(-1, -1, queries.shape[1], -1).masked_fill(
        (distance > reach)[:, None], HIDDEN
    )


def in_heads(rows: Rows, tokens: Tensor) -> Tensor:
    """(n, A, d) → (R, A, longest, d)."""
    return rows.padded(tokens).transpose(1, 2)


def out_of_heads(rows: Rows, mixed: Tensor) -> Tensor:
    """(R, A, longest, d) → (n, A, d)."""
    return rows.tokens(mixed.transpose(1, 2))


def attend_within(
    rows: Rows, heads: Heads, places: Tensor, reach: int | None
) -> tuple[Tensor, Tensor]:
    """Attention of each row's tokens to themselves: (n, A, d), (n, A, 1).

    Rows of like length are computed together, so that little of them is padding.
    """
    parts = rows.by_length
    if len(parts) == 1:
        return attend_in_rows(rows, heads, places, reach)
    found = [
        attend_in_rows(part, Heads(*(each[tokens] for each in heads)), places[tokens], reach)
        for tokens, part in parts
    ]
    mixed, sums = (torch.cat(each)[rows.back] for each in zip(*found, strict=True))
    return mixed, sums


def attend_in_rows(
    rows: Rows, heads: Heads, places: Tensor, reach: int | None
) -> tuple[Tensor, Tensor]:
    """`attend_within`, all rows at once."""
    query, key, value = (in_heads(rows, each) for each in heads)
    padded = rows.padded(places)
    bias = far(rows.bias, padded, padded, reach)
    mixed, sums = attend(query, key, value, bias)
    return out_of_heads(rows, mixed), out_of_heads(rows, sums)


def read_contexts(tower: Backbone, batch: Batch, laid: Laid) -> KeptContexts:
    """Read the contexts of a batch, which see themselves alone."""
    layers = layers_of(tower)
    rows, places = laid.contexts, laid.context_places
    hidden = layers.embedded(batch["context_ids"], places, torch.zeros_like(places))
    keys, values = [], []
    for layer in layers.layers:
        heads = layers.heads(layer, hidden, places)
        keys.append(in_heads(rows, heads.key))
        values.append(in_heads(rows, heads.value))
        mixed, _ = attend_within(rows, heads, places, layers.reach(layer))
        hidden = layers.after_attention(layer, mixed.flatten(1), hidden)
    return KeptContexts(keys, values, layers.finished(hidden))


def read_candidates(
    tower: Backbone,
    batch: Batch,
    laid: Laid,
    kept: KeptContexts,
    gates: Tensor | None,
    segment: int = 0,
) -> Tensor:
    """Read the candidates of a batch, each of which sees its context and itself: (n, h).

    `gates` (layers, A).
    """
    layers = layers_of(tower)
    places = laid.candidate_places
    hidden = layers.embedded(batch["candidate_ids"], places, torch.full_like(places, segment))
    for number, layer in enumerate(layers.layers):
        reach = layers.reach(layer)
        heads = layers.heads(layer, hidden, places)
        own = attend_within(laid.candidates, heads, places, reach)
        other = attend_to_contexts(laid, heads, kept.keys[number], kept.values[number], reach)
        mixed = joined(other, own, None if gates is None else gates[number])
        hidden = layers.after_attention(layer, mixed.flatten(1), hidden)
    return layers.finished(hidden)


def attend_to_contexts(
    laid: Laid, heads: Heads, key: Tensor, value: Tensor, reach: int | None
) -> tuple[Tensor, Tensor]:
    """Attention of the candidates' tokens to those of their contexts: (n, A, d), (n, A, 1)."""
    rows = laid.together
    bias = far(
        laid.contexts.bias,
        rows.padded(laid.candidate_places),
        laid.contexts.padded(laid.context_places),
        reach,
    )
    mixed, sums = attend(in_heads(rows, heads.query), key, value, bias)
    return out_of_heads(rows, mixed), out_of_heads(rows, sums)


def read_together(
    tower: Backbone,
    second: Backbone,
    batch: Batch,
    laid: Laid,
    gates: Tensor | None,
    segment: int = 0,
) -> tuple[Tensor, Tensor]:
    """Read contexts that see all their candidates, and candidates that see their contexts.

    Returns the outputs of both: (n, h) each.
    """
    one, two = layers_of(tower), layers_of(second)
    places, others = laid.context_places, laid.candidate_places
    contexts = one.embedded(batch["context_ids"], places, torch.zeros_like(places))
    candidates = two.embedded(batch["candidate_ids"], others, torch.full_like(others, segment))
    rows, together = laid.contexts, laid.together
    for number, (layer, next_layer) in enumerate(zip(one.layers, two.layers, strict=True)):
        reach, gate = one.reach(layer), None if gates is None else gates[number]
        left = one.heads(layer, contexts, places)
        right = two.heads(next_layer, candidates, others)
        bias = far(together.bias, rows.padded(places), together.padded(others), reach)
        query = in_heads(rows, left.query)
        found = attend(query, in_heads(together, right.key), in_heads(together, right.value), bias)
        seen = out_of_heads(rows, found[0]), out_of_heads(rows, found[1])
        mixed = joined(seen, attend_within(rows, left, places, reach), gate)
        key, value = (in_heads(rows, each) for each in (left.key, left.value))
        own = attend_within(laid.candidates, right, others, reach)
        both = joined(attend_to_contexts(laid, right, key, value, reach), own, gate)
        contexts = one.after_attention(layer, mixed.flatten(1), contexts)
        candidates = two.after_attention(next_layer, both.flatten(1), candidates)
    return one.finished(contexts), two.finished(candidates)
