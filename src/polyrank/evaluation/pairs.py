"""How well scores of pairs of texts agree with their labels: correlation, or accuracy.

`spearman`, `pearson` and `accuracy` are arrays only; `evaluate_pairs` asks a model. The figures of
Sentence-BERT (Reimers and Gurevych, 2019) are Spearman's times 100.

Letters: n pairs, L classes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from polyrank.errors import DataError, ModelError, UsageError
from polyrank.evaluation.ranking import Ranker, TwoTowerRanker
from polyrank.records import Context, LabelledPair

AT_ONCE = 4096


def pearson(one: ArrayLike, other: ArrayLike) -> float:
    """Pearson's correlation of two lists of n numbers; 0 where one of them is constant."""
    left = np.asarray(one, dtype=np.float64)
    right = np.asarray(other, dtype=np.float64)
    left, right = left - left.mean(), right - right.mean()
    norm = math.sqrt(float(left @ left) * float(right @ right))
    return float(np.clip(left @ right / norm, -1.0, 1.0)) if norm > 0 else 0.0


def spearman(one: ArrayLike, other: ArrayLike) -> float:
    """Spearman's correlation: Pearson's of the ranks; equal numbers share their mean rank."""
    return pearson(mean_ranks(one), mean_ranks(other))


def mean_ranks(values: ArrayLike) -> NDArray[np.float64]:
    """The rank of each number from 1, the mean rank for equal ones: (n,)."""
    _, places, counts = np.unique(np.asarray(values), return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return (last - (counts - 1) / 2.0)[places.reshape(-1)]


def accuracy(logits: ArrayLike, classes: ArrayLike) -> float:
    """The share of n rows of logits (n, L) whose largest is at the right class."""
    return float((np.asarray(logits).argmax(axis=-1) == np.asarray(classes)).mean())


def has_classes(pairs: Sequence[LabelledPair]) -> bool:
    """Whether the labels are numbers of classes, and not scores."""
    return all(isinstance(pair.label, int) for pair in pairs)


@torch.inference_mode()
def score_pairs(model: Ranker, pairs: Sequence[LabelledPair]) -> torch.Tensor:
    """The model's score of each pair, (n,), or its logits (n, L), on the CPU.

    A text that stands in several pairs is encoded once for each side.
    """
    if not isinstance(model, TwoTowerRanker):
        return model.score_pairs([(pair.first, pair.second) for pair in pairs]).float().cpu()
    firsts: dict[Context, int] = {}
    seconds: dict[str, int] = {}
    for pair in pairs:
        firsts.setdefault(pair.first, len(firsts))
        seconds.setdefault(pair.second, len(seconds))
    contexts = model.encode_contexts(list(firsts))  # (B, m, d)
    candidates = model.encode_candidates(list(seconds))  # (N, d)
    scores = [
        model.score_each(
            contexts[[firsts[pair.first] for pair in part]],
            candidates[[seconds[pair.second] for pair in part]][:, None],
        )[:, 0]
        for part in (pairs[start : start + AT_ONCE] for start in range(0, len(pairs), AT_ONCE))
    ]
    return torch.cat(scores).float().cpu()


def evaluate_pairs(model: Ranker, pairs: Sequence[LabelledPair]) -> dict[str, float]:
    """`spearman` and `pearson` of the model's scores with the labels, or `accuracy` for classes.

    Raises DataError for no pairs, UsageError for labels that are classes where the model gives one
    score, or the reverse, ModelError for a score that is NaN.
    """
    if not pairs:
        raise DataError("There are no pairs to evaluate on.", "Give at least one pair.")
    return pair_metrics(score_pairs(model, pairs), pairs)


def pair_metrics(scores: torch.Tensor, pairs: Sequence[LabelledPair]) -> dict[str, float]:
    """The metrics of scores (n,) or logits (n, L) of the pairs. Raises as `evaluate_pairs`."""
    if not bool(torch.isfinite(scores).all()):
        raise ModelError(
            "The model scored a pair with something that is not a number.",
            "The weights are probably broken: train with a lower learning rate, or load another "
            "checkpoint.",
        )
    labels = [pair.label for pair in pairs]
    if scores.ndim == 2:
        if not has_classes(pairs):
            raise UsageError(
                "The model gives classes, but the pairs have scores as labels.",
                "Give pairs whose labels are whole numbers, or a model that gives a score.",
            )
        return {"accuracy": accuracy(scores.numpy(), labels)}
    values = scores.double().numpy()
    return {"spearman": spearman(values, labels), "pearson": pearson(values, labels)}
