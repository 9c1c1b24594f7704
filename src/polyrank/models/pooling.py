"""Token outputs to vectors: the reductions, and the context vectors of the poly-encoder.

Knows nothing of encoders or scores. Padding never reaches a result.

Letters: B texts, T tokens, h width of the encoder, m vectors.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from polyrank.models.config import ContextVectors, Reduction


def reduce(
    outputs: Tensor, mask: Tensor, reduction: Reduction, num_tokens: int = 1, prompt_length: int = 0
) -> Tensor:
    """One vector per text: (B, T, h), (B, T) → (B, h).

    `first` is the first output and `last` the last of a real token; `mean` and `max` go over all
    real tokens, `mean_first` over the first `num_tokens` of them; `mean_sqrt` is their sum by the
    root of their number, and `weighted_mean` weighs the outputs 1, 2, 3, … by their positions.
    The first `prompt_length` tokens are left out, but keep their positions. Of a text that has no
    others nothing is left: zeros, and with `first` the first output, as in sentence-transformers.
    """
    lengths = mask.sum(dim=1, keepdim=True)  # (B, 1)
    if reduction in ("first", "last"):
        remains = lengths > prompt_length
        place = prompt_length * remains if reduction == "first" else (lengths - 1).clamp(min=0)
        if reduction == "first" and prompt_length == 0:
            return outputs[:, 0]
        taken = outputs.gather(1, place[:, :, None].expand(-1, -1, outputs.shape[2]))[:, 0]
        return taken if reduction == "first" else taken * remains.to(outputs.dtype)
    outputs, mask = outputs[:, prompt_length:], mask[:, prompt_length:]
    if reduction == "max":
        if outputs.shape[1] == 0:
            return outputs.sum(dim=1)
        most = outputs.masked_fill(~mask[:, :, None], -torch.inf).amax(dim=1)
        return most.masked_fill(~mask.any(dim=1, keepdim=True), 0)
    if reduction == "mean_first":
        outputs, mask = outputs[:, :num_tokens], mask[:, :num_tokens]
    weights = mask.to(outputs.dtype)  # (B, T)
    if reduction == "weighted_mean":
        first = prompt_length + 1
        places = torch.arange(first, first + outputs.shape[1], device=outputs.device)
        weights = weights * places.to(outputs.dtype)
    total = weights.sum(dim=1, keepdim=True).clamp(min=1)
    if reduction == "mean_sqrt":
        total = total.sqrt()
    return torch.bmm(weights[:, None, :], outputs)[:, 0] / total


def after_prompt(mask: Tensor, prompt_length: int) -> Tensor:
    """The mask (B, T) without the first `prompt_length` tokens.

    A text that has no others keeps its last token.
    """
    if prompt_length == 0:
        return mask
    places = torch.arange(mask.shape[1], device=mask.device)
    starts = (mask.sum(dim=1, keepdim=True) - 1).clamp(max=prompt_length)  # (B, 1)
    return mask & (places >= starts)


def select(outputs: Tensor, mask: Tensor, kind: ContextVectors, num_vectors: int) -> Tensor:
    """Outputs of some tokens as the context vectors: (B, T, h), (B, T) → (B, m, h).

    `first` takes the first `num_vectors` tokens, `last` the last, `last_and_first` the last and,
    unless it is among them, the first, as one more vector. Texts with fewer tokens are filled up
    with vectors of zeros. The tokens of a mask follow one another, after a prompt or from the
    start.
    """
    chosen, there = selected_places(mask, kind, num_vectors)
    index = chosen.clamp(0, outputs.shape[1] - 1)[:, :, None].expand(-1, -1, outputs.shape[2])
    return outputs.gather(1, index) * there[:, :, None].to(outputs.dtype)


def selected_places(mask: Tensor, kind: ContextVectors, num_vectors: int) -> tuple[Tensor, Tensor]:
    """Which token `select` takes for each vector, and whether there is one: (B, m), (B, m)."""
    begin, end = bounds(mask)
    places = torch.arange(num_vectors, device=mask.device)[None, :]  # (1, m)
    chosen = (begin if kind == "first" else end - num_vectors) + places
    there = (chosen >= begin) & (chosen < end)  # (B, m)
    if kind == "last_and_first":
        chosen = torch.cat([begin, chosen], dim=1)
        there = torch.cat([end - begin > num_vectors, there], dim=1)
    return chosen, there


def bounds(mask: Tensor) -> tuple[Tensor, Tensor]:
    """Where the tokens of each text begin and end: (B, T) → (B, 1), (B, 1)."""
    begin = mask.to(torch.int32).argmax(dim=1, keepdim=True)
    return begin, begin + mask.sum(dim=1, keepdim=True)


def draw_codes(codes: Tensor, output_norm: float, scale: float, spread: float = 1.0) -> None:
    """Draw codes (m, h) anew, for token outputs of Euclidean norm `output_norm`.

    Their first logits over the outputs, which are multiplied by `scale`, then have the standard
    deviation `spread`. On the meta device there is nothing to draw.
    """
    if not codes.is_meta:
        nn.init.normal_(codes, std=spread / (output_norm * scale))


def initial_recency(codes: Tensor, most: float) -> Tensor:
    """The initial recency of codes (m, h), evenly from 0 to `most`: (m,), where the codes are."""
    if codes.is_meta:
        return torch.empty(len(codes), device=codes.device)
    return torch.linspace(0, most, len(codes))


def attend(
    codes: Tensor,
    outputs: Tensor,
    mask: Tensor,
    scale: float,
    recency: Tensor | None = None,
    mean_share: float = 0.0,
) -> Tensor:
    """Context vectors by attention of the codes over the outputs: `attention_weights` @ outputs.

    (m, h), (B, T, h), (B, T) → (B, m, h).
    """
    weights = attention_weights(codes, outputs, mask, scale, recency, mean_share)
    return weights.to(outputs.dtype) @ outputs


def attention_weights(
    codes: Tensor,
    outputs: Tensor,
    mask: Tensor,
    scale: float,
    recency: Tensor | None = None,
    mean_share: float = 0.0,
) -> Tensor:
    """How much each code attends to each output.

    (m, h), (B, T, h), (B, T) → (B, m, T); the logits are multiplied by `scale`. With `recency`
    (m,), a token's logit falls by the code's recency for every token that comes after it.
    `mean_share` of every code's attention is spread evenly over the real tokens.
    """
    logits = torch.einsum("mh,bth->bmt", codes, outputs) * scale
    if recency is not None:
        places = torch.arange(outputs.shape[1], device=outputs.device)
        after = (bounds(mask)[1] - 1 - places).clamp(min=0)  # (B, T)
        logits = logits - recency[None, :, None] * after[:, None, :]
    weights = logits.masked_fill(~mask[:, None, :], -torch.inf).softmax(dim=-1)  # (B, m, T)
    if mean_share > 0:
        even = mask.to(weights.dtype) / mask.sum(dim=1, keepdim=True)  # (B, T)
        weights = (1 - mean_share) * weights + mean_share * even[:, None, :]
    return weights
