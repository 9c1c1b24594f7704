"""The poly-encoder's score of context vectors and candidate vectors (Humeau et al., 2020).

With l_i = y_i · e and w = softmax(l) over the m context vectors,

    s = (Σ w_i y_i) · e = Σ w_i l_i

so the logits, once at hand, need no second product. One vector (m = 1) is the bi-encoder's inner
product. A context vector of zeros stands for "no vector" (contexts with fewer than m) and is
masked. Tensors only: one home for training, evaluation and search.

Letters: B contexts, m vectors of each, N candidates, C candidates of each context, d dimensions.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

Attention = Literal["basic", "sqrt"]


def poly_scores(contexts: Tensor, candidates: Tensor, attention: Attention = "basic") -> Tensor:
    """Scores of every context against every candidate.

    (B, m, d), (N, d) → (B, N). `sqrt` divides the logits by √d inside the softmax. Computed in
    the dtype of the inputs, differentiable.
    """
    logits = torch.einsum("bmd,nd->bmn", contexts, candidates)  # (B, m, N)
    return combine(logits, present(contexts), attention_scale(attention, contexts.shape[-1]))


def poly_scores_each(
    contexts: Tensor, candidates: Tensor, attention: Attention = "basic"
) -> Tensor:
    """Scores of every context against its own candidates: (B, m, d), (B, C, d) → (B, C)."""
    logits = contexts @ candidates.transpose(1, 2)  # (B, m, C)
    return combine(logits, present(contexts), attention_scale(attention, contexts.shape[-1]))


def combine(logits: Tensor, mask: Tensor, scale: float) -> Tensor:
    """Σ softmax(l · scale)_i l_i over the m vectors that are there.

    logits (B, m, N), mask (B, m) → (B, N).
    """
    if logits.shape[1] == 1:
        return logits[:, 0]
    masked = (logits * scale).masked_fill(~mask[:, :, None], -torch.inf)
    return (masked.softmax(dim=1) * logits).sum(dim=1)


def present(contexts: Tensor) -> Tensor:
    """Which context vectors are there and not padding: (B, m, d) → (B, m)."""
    return (contexts != 0).any(dim=-1)


def attention_scale(attention: Attention, dimension: int) -> float:
    """What the logits are multiplied with inside the softmax."""
    return dimension**-0.5 if attention == "sqrt" else 1.0
