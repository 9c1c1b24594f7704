"""Losses over scores. Know nothing of models, texts or batches.

Letters: B contexts, N candidates of the whole batch, C candidates of each context.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional


def in_batch_softmax(scores: Tensor, identities: Tensor) -> Tensor:
    """Cross-entropy of each context's own response among all candidates of the batch.

    scores (B, N): column i < B is the response of context i, further columns are more negatives.
    identities (N,): equal numbers mark equal texts; a column whose text is context i's response
    is no negative for it and is left out of row i. Without such duplicates it equals
    sentence-transformers' MultipleNegativesRankingLoss and the in-batch negatives of Humeau et
    al. (2020). Needs B + negatives ≥ 2 to have a gradient. Returns the mean over B.
    """
    count = len(scores)
    own = torch.eye(count, len(identities), dtype=torch.bool, device=scores.device)
    same = identities[:count, None] == identities[None, :]  # (B, N)
    masked = scores.masked_fill(same & ~own, -torch.inf)
    return functional.cross_entropy(masked, torch.arange(count, device=scores.device))


def listwise_softmax(scores: Tensor) -> Tensor:
    """Cross-entropy of the first of C candidates: (B, C) → the mean over B.

    One positive against external negatives, as Humeau et al. (2020) train the cross-encoder.
    Equals `in_batch_softmax` where every context has candidates of its own.
    """
    targets = torch.zeros(len(scores), dtype=torch.long, device=scores.device)
    return functional.cross_entropy(scores, targets)
