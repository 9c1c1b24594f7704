"""Losses over scores, distances and logits. Know nothing of models, texts or batches.

`docs/losses.md` says which one is for what.
"""

from polyrank.training.losses.distillation import kl_divergence, margin_mse
from polyrank.training.losses.pairs import (
    binary_cross_entropy,
    class_softmax,
    concatenated,
    cosent,
    regression,
)
from polyrank.training.losses.ranking import (
    in_batch_softmax,
    known_answers,
    listwise_softmax,
    triplet,
)

__all__ = [
    "binary_cross_entropy",
    "class_softmax",
    "concatenated",
    "cosent",
    "in_batch_softmax",
    "kl_divergence",
    "known_answers",
    "listwise_softmax",
    "margin_mse",
    "regression",
    "triplet",
]
