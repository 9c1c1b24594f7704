"""Margin-MSE: the student's margins between a response and its negatives become the teacher's.

[((s(x, r) − s(x, c)) − (t(x, r) − t(x, c)))²] over all negatives c of all examples, t the teacher's
scores. Hofstätter et al. (2020), Improving efficient neural ranking models with cross-architecture
knowledge distillation.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from polyrank.training.objectives.checks import require_negatives, require_scores
from polyrank.training.objectives.objective import Collator, Given, Objective, Records

if TYPE_CHECKING:
    from torch import Tensor

    from polyrank.training.module import CrossPairs, TrainingModule, TwoTowers


class MarginMse(Objective):
    """A teacher's scores of each context's own candidates, of which only differences count."""

    name = "margin_mse"
    records = ("examples",)
    architectures = ("bi", "poly", "cross")
    learns_from_scores = True

    def check(self, given: Given) -> None:
        """Every example needs negatives and the teacher's scores."""
        require_negatives(self.name, given.examples)
        require_scores(self.name, given.examples)

    def dev_records(self, given: Given, dev: Records) -> Sequence[Any]:
        """They need negatives and the teacher's scores as well."""
        examples = super().dev_records(given, dev)
        require_negatives(self.name, examples)
        require_scores(self.name, examples)
        return examples

    def make(self, given: Given) -> tuple[TrainingModule, Collator]:
        """Each context meets its own candidates alone."""
        from polyrank.training.batches import own_candidates

        return own_candidates(given, self.loss)

    def loss(
        self, module: TwoTowers | CrossPairs, encoded: dict[str, Tensor], step: dict[str, Any]
    ) -> Tensor:
        """The mean over all negatives."""
        scores, present = module.score_own(encoded, step), step["own"] >= 0  # (B, C)
        loss = margin_mse(scores, step["teacher"].to(scores.dtype), present)
        return module.share_of_mean(loss, int(present[:, 1:].sum()))


def margin_mse(student: Tensor, teacher: Tensor, present: Tensor) -> Tensor:
    """Squared error of the margins between the response and each other candidate: ().

    student (B, C), teacher (B, C), present (B, C): which candidates there are, the response first.
    The mean over all margins. Teacher and student may score in different ranges. Equals
    sentence-transformers' MarginMSELoss. Needs at least one negative.
    """
    from torch.nn import functional

    margins = student[:, :1] - student[:, 1:]
    expected = teacher[:, :1] - teacher[:, 1:]
    there = present[:, 1:]
    return functional.mse_loss(margins[there], expected[there])
