"""One fused pass on a GPU: logits, softmax and weighted sum of a tile never leave the chip.

Written in Triton, which torch installs on CUDA machines. Each tile of candidates meets the context
vectors in turn, with a running maximum, sum and weighted sum (online softmax), so m may be any
number. The result is the formula of `poly_scores`, computed from candidates in the type they are
stored in and summed in float32.

Letters: B contexts, m vectors of each, N candidates, d dimensions.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from polyrank.scoring.poly import Attention, attention_scale, present

TILE_CANDIDATES = 64
TILE_VECTORS = 64
TILE_DIMENSIONS = 64


CANDIDATES_AT_ONCE = 1 << 20
"""Candidates whose scores are in memory at once, for all contexts."""


def fused_top_k(
    contexts: Tensor, candidates: Tensor, k: int, attention: Attention = "basic"
) -> tuple[Tensor, Tensor]:
    """The best k scores and their rows for each context: (B, k), (B, k), best first.

    Of equal scores at the last place, any may be kept.
    """
    k = min(k, len(candidates))
    best = torch.empty(len(contexts), 0, device=candidates.device)
    rows = torch.empty(len(contexts), 0, dtype=torch.int64, device=candidates.device)
    for start in range(0, len(candidates), CANDIDATES_AT_ONCE):
        part = candidates[start : start + CANDIDATES_AT_ONCE]
        scores, found = fused_scores(contexts, part, attention).topk(min(k, len(part)))
        best, rows = torch.cat([best, scores], 1), torch.cat([rows, found + start], 1)
        best, kept = best.topk(min(k, best.shape[1]))
        rows = rows.gather(1, kept)
    return best, rows


def fused_scores(contexts: Tensor, candidates: Tensor, attention: Attention = "basic") -> Tensor:
    """Scores of every context against every candidate: (B, m, d), (N, d) → (B, N), float32.

    Contexts are converted to the type of the candidates. No gradients.
    """
    count, num_vectors, dimension = contexts.shape
    total = len(candidates)
    contexts = contexts.to(candidates.dtype).contiguous()
    candidates = candidates.contiguous()
    scores = torch.empty(count, total, dtype=torch.float32, device=candidates.device)
    grid = (triton.cdiv(total, TILE_CANDIDATES), count)
    score_tile[grid](
        contexts,
        present(contexts).to(torch.int8).contiguous(),
        candidates,
        scores,
        num_vectors,
        total,
        dimension,
        attention_scale(attention, dimension),
        TILE_N=TILE_CANDIDATES,
        TILE_M=TILE_VECTORS,
        TILE_D=TILE_DIMENSIONS,
    )
    return scores


@triton.jit  # type: ignore[untyped-decorator]
def score_tile(
    contexts: Any,
    there: Any,
    candidates: Any,
    scores: Any,
    num_vectors: Any,
    total: Any,
    dimension: Any,
    scale: Any,
    TILE_N: tl.constexpr,  # noqa: N803 - Triton's custom for constants
    TILE_M: tl.constexpr,  # noqa: N803
    TILE_D: tl.constexpr,  # noqa: N803
) -> None:
    """The scores of TILE_N candidates for one context."""
    rows = tl.program_id(0) * TILE_N + tl.arange(0, TILE_N)
    context = tl.program_id(1)
    inside = rows < total
    largest = tl.full((TILE_N,), float("-inf"), tl.float32)
    weight = tl.zeros((TILE_N,), tl.float32)
    weighted = tl.zeros((TILE_N,), tl.float32)
    for first in range(0, num_vectors, TILE_M):
        vectors = first + tl.arange(0, TILE_M)
        is_vector = vectors < num_vectors
        logits = tl.zeros((TILE_N, TILE_M), tl.float32)
        for start in range(0, dimension, TILE_D):
            parts = start + tl.arange(0, TILE_D)
            is_part = parts < dimension
            tile = tl.load(
                candidates + rows[:, None].to(tl.int64) * dimension + parts[None, :],
                mask=inside[:, None] & is_part[None, :],
                other=0.0,
            )
            against = tl.load(
                contexts + (context * num_vectors + vectors[None, :]) * dimension + parts[:, None],
                mask=is_vector[None, :] & is_part[:, None],
                other=0.0,
            )
            logits += tl.dot(tile, against, input_precision="ieee")
        counts = tl.load(there + context * num_vectors + vectors, mask=is_vector, other=0) != 0
        scaled = tl.where(counts[None, :], logits * scale, float("-inf"))
        higher = tl.maximum(largest, tl.max(scaled, axis=1))
        anchor = tl.where(higher == float("-inf"), 0.0, higher)  # no vector yet: exp(-inf) = 0
        shrink = tl.exp(largest - anchor)
        powers = tl.exp(scaled - anchor[:, None])
        weight = weight * shrink + tl.sum(powers, axis=1)
        weighted = weighted * shrink + tl.sum(powers * logits, axis=1)
        largest = higher
    found = tl.where(weight > 0, weighted / tl.where(weight > 0, weight, 1.0), 0.0)
    tl.store(scores + context.to(tl.int64) * total + rows, found, mask=inside)
