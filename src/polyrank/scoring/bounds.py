"""How far a poly-encoder's score can lie from what is cheaper to compute (proofs: docs/bounds.md).

With l_i = y_i · e, the score is a convex combination of the logits that leans to the larger ones:

    max l − √d^[sqrt] · W₀((m − 1) / e)  ≤  s  ≤  max l

so the best single inner product bounds the score, and a bound of the logits is one of the score.
Tensors only.

Letters: m vectors of a context, r ≤ m of its factor, d dimensions.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from polyrank.scoring.poly import Attention, attention_scale


def gap(num_vectors: int, attention: Attention = "basic", dimension: int = 1) -> float:
    """The most by which a score can lie below its best logit: W₀((m − 1) / e), for `sqrt` √d times.

    1.38, 2.31 and 3.60 for m = 16, 64 and 360; 0 for m = 1.
    """
    return lambert_w((num_vectors - 1) / math.e) / attention_scale(attention, dimension)


def lambert_w(x: float) -> float:
    """W₀(x) for x ≥ 0: the w with w · exp(w) = x. Newton's method, which here only descends."""
    w = math.log1p(x)
    while True:
        step = (w * math.exp(w) - x) / ((w + 1) * math.exp(w))
        w -= step
        if abs(step) <= 1e-14 * max(1.0, w):
            return w


class Factor(NamedTuple):
    """Context vectors as Y = W H + R, where the rows of H are orthonormal and R H^T = 0.

    `weights` W (m, r), `basis` H (r, d), `residuals` (m,) the norms of the rows of R. A logit
    differs from (W H e)_i by at most `residuals`_i · ‖e − H^T H e‖.
    """

    weights: Tensor
    basis: Tensor
    residuals: Tensor


def factorise(vectors: Tensor, rank: int) -> Factor:
    """The best factor of this rank: (m, d) → Factor.

    It is the truncated singular value decomposition, by way of the eigenvectors of Y Y^T, which
    are cheap for m < d.
    """
    exact = vectors.double()
    values, vectors_left = torch.linalg.eigh(exact @ exact.T)  # ascending
    left = vectors_left[:, -rank:].flip(1)  # (m, r)
    sizes = values[-rank:].flip(0).clamp_min(1e-300).sqrt()  # (r,)
    basis = (left.T @ exact) / sizes[:, None]
    weights = left * sizes
    residuals = (exact - weights @ basis).norm(dim=1)
    return Factor(*(part.to(vectors.dtype) for part in (weights, basis, residuals)))


def numerical_rank(vectors: Tensor, tolerance: float = 1e-6) -> int:
    """The singular values above `tolerance` times the largest; at least 1.

    A context of T tokens has rank T at most, however many vectors are made of them.
    """
    exact = vectors.double()
    values = torch.linalg.eigvalsh(exact @ exact.T)
    return max(1, int((values > tolerance**2 * values[-1]).sum()))


def upper_bounds(factor: Factor, candidates: Tensor) -> Tensor:
    """Upper bounds of the scores from a truncated factor: candidates (n, d) → (n,)."""
    inside = candidates @ factor.basis.T  # (n, r)
    outside = (candidates.square().sum(1) - inside.square().sum(1)).clamp_min(0).sqrt()  # (n,)
    logits = inside @ factor.weights.T + outside[:, None] * factor.residuals  # (n, m)
    return logits.amax(1)
