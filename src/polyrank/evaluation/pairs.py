"""How well a model's scores or classes of pairs of texts agree with their labels.

The figures of scores are correlations, those of classes accuracy and F1. The figures of
Sentence-BERT (Reimers and Gurevych, 2019) are Spearman's correlation times 100.

Letters: n pairs, L classes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from polyrank.errors import DataError, ModelError, UsageError
from polyrank.evaluation.metric_names import PAIR_LABELS
from polyrank.evaluation.ranking import TwoTowerRanker
from polyrank.records import LabelledPair

SCORE_FIGURES = ("spearman", "pearson")
CLASS_FIGURES = ("accuracy", "macro_f1")


@dataclass(frozen=True, kw_only=True)
class ClassFigures:
    """How well one class is found."""

    precision: float
    """Of the pairs that were given this class, the share that have it; 0 if there are none."""
    recall: float
    """Of the pairs that have this class, the share that were given it; 0 if there are none."""
    f1: float
    """2 · precision · recall / (precision + recall)."""
    count: int
    """How many pairs have the class."""


@dataclass(frozen=True, kw_only=True, eq=False)
class PairResults:
    """A model's predictions for n pairs, and the right answers: scores, or the numbers of classes.

    `classes` are the model's, by their numbers; None for scores.
    """

    unit: ClassVar[str] = "pair"
    ids: tuple[str, ...]
    gold: NDArray[np.float64]
    predicted: NDArray[np.float64]
    classes: tuple[str, ...] | None = None

    def labels(self) -> dict[str, str]:
        """The figures, the first to compare by, as people write them."""
        names = SCORE_FIGURES if self.classes is None else CLASS_FIGURES
        return {name: PAIR_LABELS[name] for name in names}

    @property
    def subject(self) -> Any:
        """What was measured, whichever the model: the pairs and their labels."""
        return self.ids, self.named(self.gold).tolist()

    def named(self, numbers: NDArray[np.float64]) -> NDArray[Any]:
        """The names of some classes by their numbers (n,); scores as they are."""
        return numbers if self.classes is None else np.array(self.classes)[numbers.astype(int)]

    def figures(self) -> dict[str, float]:
        """`accuracy` and `macro_f1` of classes, `spearman` and `pearson` of scores."""
        if self.classes is None:
            return {
                "spearman": spearman(self.predicted, self.gold),
                "pearson": pearson(self.predicted, self.gold),
            }
        return {
            "accuracy": float((self.predicted == self.gold).mean()),
            "macro_f1": macro_f1(self.by_class().values()),
        }

    def by_class(self) -> dict[str, ClassFigures]:
        """The figures of every class that some pair has or was given, by its name."""
        found = {}
        for number, name in enumerate(self.classes or ()):
            has, given = self.gold == number, self.predicted == number
            right = int((has & given).sum())
            if has.any() or given.any():
                found[name] = ClassFigures(
                    precision=right / max(int(given.sum()), 1),
                    recall=right / max(int(has.sum()), 1),
                    f1=2 * right / int(has.sum() + given.sum()),
                    count=int(has.sum()),
                )
        return found

    def to_json(self) -> dict[str, Any]:
        """JSON-ready, with every pair."""
        return {
            "ids": list(self.ids),
            "gold": self.gold.tolist(),
            "predicted": self.predicted.tolist(),
            "classes": None if self.classes is None else list(self.classes),
        }

    @classmethod
    def from_json(cls, record: dict[str, Any]) -> PairResults:
        """What `to_json` gave; raises KeyError, TypeError or ValueError for anything else."""
        classes = record["classes"]
        results = cls(
            ids=tuple(record["ids"]),
            gold=np.array(record["gold"], dtype=np.float64),
            predicted=np.array(record["predicted"], dtype=np.float64),
            classes=None if classes is None else tuple(classes),
        )
        if not results.gold.shape == results.predicted.shape == (len(results.ids),):
            raise ValueError("every pair needs a label and what the model says")
        return results


def macro_f1(found: Any) -> float:
    """The mean of the F1 of the classes that some pair has or was given."""
    return float(np.mean([each.f1 for each in found]))


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


def has_classes(pairs: Sequence[LabelledPair]) -> bool:
    """Whether the labels are numbers of classes, and not scores."""
    return all(isinstance(pair.label, int) for pair in pairs)


def classes_of(model: Any, pairs: Sequence[LabelledPair]) -> tuple[str, ...] | None:
    """The classes that a model is judged by on these pairs; None where its scores are.

    Labels 0 and 1 without names may also be scores: they are classes only for a model that has two
    classes without names, or none but classes. Raises DataError for no pairs, and UsageError for a
    model that cannot give what the labels are.
    """
    if not pairs:
        raise DataError("There are no pairs to evaluate on.", "Give at least one pair.")
    known: tuple[str, ...] | None = getattr(model, "classes", None)
    only_classes = known is not None and not isinstance(model, TwoTowerRanker)
    if not has_classes(pairs):
        if only_classes:
            raise UsageError(
                f"The model predicts the classes {', '.join(known or ())}, but the pairs have "
                "scores as labels.",
                "Give pairs whose labels are classes, or a model that gives a score.",
            )
        return None
    may_be_scores = all(pair.label in (0, 1) and pair.class_name is None for pair in pairs)
    if may_be_scores and not only_classes and known != ("0", "1"):
        return None
    if known is None:
        raise UsageError(
            f"The labels of the pairs are classes ({shown_classes(pairs)}), and the model has no "
            "classifier: it gives scores, which say nothing about classes.",
            "Give a model that was trained on classes (polyrank train with --objective "
            "classification), or pairs whose labels are scores from 0 to 1.",
        )
    return known


def class_numbers(pairs: Sequence[LabelledPair], known: Sequence[str]) -> NDArray[np.float64]:
    """The number of the class of each pair among the classes that a model knows: (n,).

    Raises UsageError for another class, and for classes with names where the model's have none, or
    the reverse: numbers mean different classes in different data sets.
    """
    numbers = {name: number for number, name in enumerate(known)}
    found = []
    for place, pair in enumerate(pairs, start=1):
        name = str(pair.label) if pair.class_name is None else pair.class_name
        if name not in numbers:
            raise UsageError(
                f"The classes differ: pair {place} has the class {name}, but the model predicts "
                f"{', '.join(known)}.",
                "Give pairs of the model's classes, or a model that was trained on those of the "
                "data.",
            )
        found.append(numbers[name])
    return np.array(found, dtype=np.float64)


def shown_classes(pairs: Sequence[LabelledPair]) -> str:
    """The classes of some pairs in words."""
    names = {pair.class_name or str(pair.label) for pair in pairs}
    first = sorted(names)[:5]
    return ", ".join([*first, "…"] if len(names) > len(first) else first)


def measure_pairs(
    model: Any, pairs: Sequence[LabelledPair], *, show_progress_bar: bool = False
) -> PairResults:
    """The model's scores or classes of labelled pairs, beside their labels.

    Raises DataError for no pairs, UsageError for labels that are classes where the model gives one
    score, the reverse, or other classes than the model's, ModelError for a score that is NaN.
    """
    classes = classes_of(model, pairs)
    ids = tuple(f"pair {row}" if pair.id is None else pair.id for row, pair in enumerate(pairs, 1))
    texts = [(pair.first, pair.second) for pair in pairs]
    if classes is None:
        scores = model.score_pairs(texts, show_progress_bar=show_progress_bar)
        scores = finite(scores.float().cpu()).double().numpy()
        labels = np.array([pair.label for pair in pairs], dtype=np.float64)
        return PairResults(ids=ids, gold=labels, predicted=scores)
    labels = class_numbers(pairs, classes)
    logits = finite(model.class_logits(texts, show_progress_bar=show_progress_bar))
    predicted = logits.argmax(dim=1).double().numpy()
    return PairResults(ids=ids, gold=labels, predicted=predicted, classes=classes)


def evaluate_pairs(
    model: Any, pairs: Sequence[LabelledPair], *, show_progress_bar: bool = False
) -> dict[str, float]:
    """The figures of `measure_pairs`: `spearman` and `pearson`, or `accuracy` and `macro_f1`.

    Raises as `measure_pairs`.
    """
    return measure_pairs(model, pairs, show_progress_bar=show_progress_bar).figures()


def pair_figures(model: Any, pairs: Sequence[LabelledPair]) -> tuple[str, ...]:
    """The names of the figures that `evaluate_pairs` gives, the first to choose by.

    Raises UsageError where it gives none.
    """
    return SCORE_FIGURES if classes_of(model, pairs) is None else CLASS_FIGURES


def finite(scores: torch.Tensor) -> torch.Tensor:
    """The scores; raises ModelError where one is not a number."""
    if not bool(torch.isfinite(scores).all()):
        raise ModelError(
            "The model scored a pair with something that is not a number.",
            "The weights are probably broken: train with a lower learning rate, or load another "
            "checkpoint.",
        )
    return scores
