"""Token outputs to vectors: the reductions, and the context vectors of the poly-encoder.

Knows nothing of encoders or scores. Padding never reaches a result.

Letters: B texts, T tokens, h width of the encoder, m vectors.
"""

from __future__ import annotations

import torch
from torch import Tensor

from polyrank.models.config import ContextVectors, Reduction


def reduce(outputs: Tensor, mask: Tensor, reduction: Reduction, num_tokens: int = 1) -> Tensor:
    """One vector per text: (B, T, h), (B, T) → (B, h).

    `first` is the first output; `mean` and `max` go over all real tokens; `mean_first` over the
    first `num_tokens` of them.
    """
    if reduction == "first":
        return outputs[:, 0]
    if reduction == "max":
        return outputs.masked_fill(~mask[:, :, None], -torch.inf).amax(dim=1)
    if reduction == "mean_first":
        outputs, mask = outputs[:, :num_tokens], mask[:, :num_tokens]
    weights = mask.to(outputs.dtype)[:, None, :]  # (B, 1, T)
    return torch.bmm(weights, outputs)[:, 0] / mask.sum(dim=1, keepdim=True)


def select(outputs: Tensor, mask: Tensor, kind: ContextVectors, num_vectors: int) -> Tensor:
    """Outputs of some tokens as the context vectors: (B, T, h), (B, T) → (B, m, h).

    `first` takes the first `num_vectors` tokens, `last` the last, `last_and_first` the last and,
    unless it is among them, the first, as one more vector. Texts with fewer tokens are filled up
    with vectors of zeros.
    """
    lengths = mask.sum(dim=1, keepdim=True)  # (B, 1)
    places = torch.arange(num_vectors, device=outputs.device)[None, :]  # (1, m)
    start = torch.zeros_like(lengths) if kind == "first" else lengths - num_vectors
    chosen = start + places
    there = (chosen >= 0) & (chosen < lengths)  # (B, m)
    if kind == "last_and_first":
        zero = torch.zeros_like(lengths)
        chosen = torch.cat([zero, chosen], dim=1)
        there = torch.cat([lengths > num_vectors, there], dim=1)
    index = chosen.clamp(0, outputs.shape[1] - 1)[:, :, None].expand(-1, -1, outputs.shape[2])
    return outputs.gather(1, index) * there[:, :, None].to(outputs.dtype)


def attend(
    codes: Tensor,
    outputs: Tensor,
    mask: Tensor,
    scale: float,
    recency: Tensor | None = None,
    mean_share: float = 0.0,
) -> Tensor:
    """Context vectors by attention of the codes over the outputs.

    (m, h), (B, T, h), (B, T) → (B, m, h); the logits are multiplied by `scale`. With `recency`
    (m,), a token's logit falls by the code's recency for every token that comes after it.
    `mean_share` of every code's attention is spread evenly over the real tokens.
    """
    logits = torch.einsum("mh,bth->bmt", codes, outputs) * scale
    if recency is not None:
        places = torch.arange(outputs.shape[1], device=outputs.device)
        after = (mask.sum(dim=1, keepdim=True) - 1 - places).clamp(min=0)  # (B, T)
        logits = logits - recency[None, :, None] * after[:, None, :]
    weights = logits.masked_fill(~mask[:, None, :], -torch.inf).softmax(dim=-1)  # (B, m, T)
    if mean_share > 0:
        even = mask / mask.sum(dim=1, keepdim=True)  # (B, T)
        weights = (1 - mean_share) * weights + mean_share * even[:, None, :]
    return weights.to(outputs.dtype) @ outputs
