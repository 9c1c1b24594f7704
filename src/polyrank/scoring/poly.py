"""The poly-encoder's score of context vectors and candidate vectors (Humeau et al., 2020).

With l_i = y_i · e and w = softmax(l) over the m context vectors,

    s = (Σ w_i y_i) · e = Σ w_i l_i

so the score needs no second product after the logits. With one vector (m = 1) it is the
bi-encoder's inner product. A context vector of zeros stands for "no vector" (contexts with fewer
than m) and is masked. Tensors only: `poly_scores` for training and evaluation, `ExactScorer` for
search.

Letters: B contexts, m vectors of each, N candidates, C candidates of each context, d dimensions,
r rank of a context's vectors.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from polyrank.scoring.matmul import Product, product

Attention = Literal["basic", "sqrt"]

CHUNK = 128
"""Rows of one product; the last product is padded with zeros. A product with another number of rows
may add up in another order, and equal candidates would no longer score equally."""

FACTOR_GAIN = 0.7
"""The factor is used if it takes at most this share of the multiplications."""


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
    """Σ softmax(l · scale)_i l_i over the m vectors that are present.

    logits (B, m, N), mask (B, m) → (B, N).
    """
    if logits.shape[1] == 1:
        return logits[:, 0]
    return (vector_weights(logits, mask, scale) * logits).sum(dim=1)


def vector_weights(logits: Tensor, mask: Tensor, scale: float) -> Tensor:
    """How much each candidate attends to each context vector: softmax(l · scale) over m.

    logits (B, m, N), mask (B, m) → (B, m, N).
    """
    return (logits * scale).masked_fill(~mask[:, :, None], -torch.inf).softmax(dim=1)


def present(contexts: Tensor) -> Tensor:
    """Which context vectors are present and not padding: (B, m, d) → (B, m)."""
    return (contexts != 0).any(dim=-1)


def attention_scale(attention: Attention, dimension: int) -> float:
    """What the logits are multiplied by inside the softmax."""
    return dimension**-0.5 if attention == "sqrt" else 1.0


class ExactScorer:
    """Scores one context (m, d) against any candidates; bit-equal however they are cut into blocks.

    One product with the context's vectors, then Σ softmax(l)_i l_i, in float32. A search scores a
    few hundred candidates, for which a factor of the context's vectors takes longer to find than it
    saves. No gradients; parity with `poly_scores` to 1e-4.
    """

    def __init__(self, context: Tensor, attention: Attention) -> None:
        there = context[(context != 0).any(dim=1)].float()
        self._scale = attention_scale(attention, context.shape[1])
        self._product = product(there if len(there) else context[:1].float(), CHUNK)

    def scores(self, candidates: Tensor) -> Tensor:
        """(n, d) float32 → (n,) float32."""
        count = len(candidates)
        pieces = [self._chunk(chunk) for chunk in candidates.split(CHUNK)]
        return torch.cat(pieces)[:count] if pieces else candidates.new_zeros(0)

    def _chunk(self, candidates: Tensor) -> Tensor:
        """Scores of CHUNK rows, filled up."""
        missing = CHUNK - len(candidates)
        if missing:
            candidates = functional.pad(candidates, (0, 0, 0, missing))
        logits = self._product(candidates)  # (CHUNK, m)
        if logits.shape[1] == 1:
            return logits[:, 0]
        return ((logits * self._scale).softmax(dim=1) * logits).sum(dim=1)


def context_product(vectors: Tensor, rows: int) -> Product:
    """The product (n, d) → (n, m) with a context's vectors (m, d), in float32.

    Directly, or through the factor if that is cheaper.
    """
    count, dimension = vectors.shape
    if count > 1:
        rank = numerical_rank(vectors)
        if rank * (count + dimension) <= FACTOR_GAIN * count * dimension:
            factor = factorise(vectors, rank)
            first, second = product(factor.basis, rows), product(factor.weights, rows)
            return lambda candidates: second(first(candidates))
    return product(vectors, rows)


class Factor(NamedTuple):
    """Context vectors as Y ≈ W H: `weights` W (m, r), `basis` H (r, d) with orthonormal rows."""

    weights: Tensor
    basis: Tensor


def factorise(vectors: Tensor, rank: int) -> Factor:
    """The best factor of this rank: (m, d) → Factor.

    It is the truncated singular value decomposition, computed from the eigenvectors of Y Y^T,
    which are cheap for m < d.
    """
    exact = vectors.double()
    values, vectors_left = torch.linalg.eigh(exact @ exact.T)  # ascending
    left = vectors_left[:, -rank:].flip(1)  # (m, r)
    sizes = values[-rank:].flip(0).clamp_min(1e-300).sqrt()  # (r,)
    basis = (left.T @ exact) / sizes[:, None]
    weights = left * sizes
    return Factor(weights.to(vectors.dtype), basis.to(vectors.dtype))


def numerical_rank(vectors: Tensor, tolerance: float = 1e-6) -> int:
    """The number of singular values above `tolerance` times the largest; at least 1.

    A context of T tokens has rank T at most, however many vectors are made from them.
    """
    exact = vectors.double()
    values = torch.linalg.eigvalsh(exact @ exact.T)
    return max(1, int((values > tolerance**2 * values[-1]).sum()))
