"""Regression: the similarity or value of a pair becomes its label.

[(z − label)²]; z is the similarity for bi and poly, the value for cross. Reimers, Gurevych (EMNLP
2019), Sentence-BERT.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from polyrank.training.objectives.checks import require_graded_labels, require_shares
from polyrank.training.objectives.objective import Case, Collator, Given, Objective, Records

if TYPE_CHECKING:
    from torch import Tensor

    from polyrank.training.module import CrossPairs, TrainingModule, TwoTowers


class Regression(Objective):
    """Graded pairs, by their values."""

    name = "regression"
    records = ("pairs",)
    architectures = ("bi", "poly", "cross")
    task = "regress"

    def is_default(self, case: Case) -> bool:
        """For cross-encoders that regress, and for scores where their task is not known."""
        if case.records != "pairs" or case.architecture != "cross":
            return False
        return case.task == "regress" or (case.task is None and not case.has_classes)

    def check(self, given: Given) -> None:
        """Labels from 0 to 1, not all equal."""
        require_graded_labels(self.name, given.examples)

    def dev_records(self, given: Given, dev: Records) -> Sequence[Any]:
        """Labels from 0 to 1."""
        require_shares(self.name, pairs := super().dev_records(given, dev))
        return pairs

    def make(self, given: Given) -> tuple[TrainingModule, Collator]:
        """The pairs as they are."""
        from polyrank.training.batches import labelled_pairs

        return labelled_pairs(given, self.loss)

    def loss(
        self, module: TwoTowers | CrossPairs, encoded: dict[str, Tensor], step: dict[str, Any]
    ) -> Tensor:
        """The mean over the pairs."""
        values = module.values_of_pairs(encoded, step)  # (n,)
        labels = step["labels"].to(values.dtype)
        return module.share_of_mean(regression(values, labels), len(labels))


def regression(values: Tensor, labels: Tensor) -> Tensor:
    """Mean squared error: (n,), (n,) → the mean over n.

    On cosines and labels from 0 to 1 it equals sentence-transformers' CosineSimilarityLoss; on the
    values of a cross-encoder, its MSELoss.
    """
    from torch.nn import functional

    return functional.mse_loss(values, labels)
