"""Losses of examples: the response of a context against wrong ones.

Letters: B contexts, R responses of the whole batch, N candidates of it, C candidates and n wrong
ones of each context, d dimensions.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional


def in_batch_softmax(
    scores: Tensor,
    identities: Tensor,
    *,
    contexts: Tensor | None = None,
    log_frequencies: Tensor | None = None,
    hits: Tensor | None = None,
) -> Tensor:
    """Cross-entropy of each context's own response among all candidates of the batch.

    scores (B, N): column i < B is the response of context i, further columns are more negatives.
    identities (N,): equal numbers mark equal texts; a column whose text is context i's response
    is no negative for it and is left out of row i. contexts (R,), B ≤ R ≤ N: the same for the
    contexts that the first R columns are responses of; a column that answers an equal context is
    left out as well. log_frequencies (N,): log q of each column, which is subtracted from the
    scores (logQ correction: Yi et al., 2019, Sampling-bias-corrected neural modeling). hits (B, N):
    further columns to leave out, accidental hits; a row's own response stays in.

    The sampled softmax of two-tower models (Chang et al., 2020) and the in-batch negatives of
    Humeau et al. (2020). Without duplicates it equals sentence-transformers'
    MultipleNegativesRankingLoss with scale = 1 / temperature. Of responses against contexts,
    scores transposed and `identities` and `contexts` exchanged, it is the other half of the
    symmetric loss. Needs B + negatives ≥ 2 to have a gradient. Returns the mean over B.
    """
    count = len(scores)
    known = known_answers(count, identities, contexts)
    if hits is not None:
        known = known | (hits & ~torch.eye(*hits.shape, dtype=torch.bool, device=hits.device))
    if log_frequencies is not None:
        scores = scores - log_frequencies[None, :]
    masked = scores.masked_fill(known, -torch.inf)
    return functional.cross_entropy(masked, torch.arange(count, device=scores.device))


def known_answers(count: int, identities: Tensor, contexts: Tensor | None = None) -> Tensor:
    """Which columns are no negatives of a row, beside its own response: (B, N) booleans.

    `count` rows; `identities` and `contexts` as of `in_batch_softmax`.
    """
    known = identities[:count, None] == identities[None, :]
    if contexts is not None:
        known[:, : len(contexts)] |= contexts[:count, None] == contexts[None, :]
    own = torch.eye(count, len(identities), dtype=torch.bool, device=known.device)
    return known & ~own


def listwise_softmax(scores: Tensor) -> Tensor:
    """Cross-entropy of the first of C candidates: (B, C) → the mean over B.

    One positive against external negatives, as Humeau et al. (2020) train the cross-encoder.
    Equals `in_batch_softmax` where every context has candidates of its own, and the
    MultipleNegativesRankingLoss of sentence-transformers' cross-encoders, without its sigmoid, on
    the same negatives.
    """
    targets = torch.zeros(len(scores), dtype=torch.long, device=scores.device)
    return functional.cross_entropy(scores, targets)


def triplet(
    contexts: Tensor, responses: Tensor, negatives: Tensor, present: Tensor, margin: float
) -> Tensor:
    """How far a wrong response is from being `margin` farther away than the response.

    contexts (B, d), responses (B, d), negatives (B, n, d), present (B, n): which negatives there
    are. max(‖c − r‖ − ‖c − w‖ + margin, 0), the mean over all (context, negative). Euclidean, as
    Sentence-BERT (Reimers, Gurevych, 2019) has it, with margin 1; with one negative a context it
    equals sentence-transformers' TripletLoss. Needs vectors that are not normalised and at least
    one negative.
    """
    near = torch.linalg.vector_norm(contexts - responses, dim=-1)  # (B,)
    far = torch.linalg.vector_norm(contexts[:, None, :] - negatives, dim=-1)  # (B, n)
    return functional.relu(near[:, None] - far + margin)[present].mean()
