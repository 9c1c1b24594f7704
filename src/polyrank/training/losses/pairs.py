"""Losses of labelled pairs: graded, yes or no, or in classes.

Letters: n pairs, L classes, d dimensions.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

PARTS = {
    "u": lambda u, v: u,
    "v": lambda u, v: v,
    "|u-v|": lambda u, v: (u - v).abs(),
    "u*v": lambda u, v: u * v,
}


def concatenated(u: Tensor, v: Tensor, concatenation: str) -> Tensor:
    """What a classifier sees of two vectors: (n, d), (n, d) → (n, k · d).

    `concatenation` names the k parts, with commas: u, v, |u-v|, u*v. (u, v, |u−v|) is
    Sentence-BERT's (Reimers, Gurevych, 2019), and the best of its table 6.
    """
    return torch.cat([PARTS[part](u, v) for part in concatenation.split(",")], dim=1)


def class_softmax(logits: Tensor, labels: Tensor) -> Tensor:
    """Cross-entropy of the true class: (n, L), (n,) → the mean over n.

    On W · concatenated(u, v) it is Sentence-BERT's classification objective and equals
    sentence-transformers' SoftmaxLoss; on the outputs of a cross-encoder, its CrossEntropyLoss.
    """
    return functional.cross_entropy(logits, labels)


def regression(values: Tensor, labels: Tensor) -> Tensor:
    """Mean squared error: (n,), (n,) → the mean over n.

    On cosines and labels from 0 to 1 it is Sentence-BERT's regression objective and equals
    sentence-transformers' CosineSimilarityLoss; on the values of a cross-encoder, its MSELoss.
    """
    return functional.mse_loss(values, labels)


def cosent(similarities: Tensor, labels: Tensor, scale: float) -> Tensor:
    """log(1 + Σ exp(scale · (s_j − s_i))) over all pairs with label_i > label_j: (n,), (n,) → ().

    Punishes every pair that is ranked against its labels, whatever their values are; equals
    sentence-transformers' CoSENTLoss. Needs different labels in a batch: without them it is 0. Of
    Huang et al. (2024, CoSENT: consistent sentence embedding via similarity ranking).
    """
    wrong = scale * (similarities[None, :] - similarities[:, None])  # (n, n): s_j − s_i
    counts = labels[:, None] > labels[None, :]
    terms = torch.cat([similarities.new_zeros(1), wrong[counts]])
    return torch.logsumexp(terms, dim=0)


def binary_cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """Cross-entropy of yes or no, of every pair by itself: (n,), (n,) → the mean over n.

    Labels from 0 to 1 are probabilities, so that a teacher's can be learnt (Augmented SBERT,
    Thakur et al., 2021). Equals sentence-transformers' BinaryCrossEntropyLoss.
    """
    return functional.binary_cross_entropy_with_logits(logits, labels)
