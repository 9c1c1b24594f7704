"""CoSENT: pairs are ranked by their similarities as by their labels.

log(1 + Σ exp(scale · (z_j − z_i))) over all pairs i, j of the step with label_i > label_j, z the
similarity. Huang et al. (IEEE/ACM TASLP 2024), CoSENT: consistent sentence embedding via similarity
ranking.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from polyrank.config import require
from polyrank.training.objectives.checks import require_graded_labels, require_shares
from polyrank.training.objectives.objective import (
    Case,
    Collator,
    Given,
    Objective,
    Records,
    Settings,
)

if TYPE_CHECKING:
    from torch import Tensor

    from polyrank.training.module import TrainingModule, TwoTowers


@dataclass(frozen=True, kw_only=True)
class CosentSettings(Settings):
    """Raises UsageError for a value out of its range."""

    cosent_scale: float = 20.0
    """The factor by which `cosent` multiplies differences of cosines."""

    def __post_init__(self) -> None:
        require(self.cosent_scale > 0, "cosent_scale", "positive", self.cosent_scale)


class Cosent(Objective):
    """Similarities of graded pairs, by their order."""

    name = "cosent"
    records = ("pairs",)
    architectures = ("bi", "poly")
    settings = (CosentSettings,)

    def is_default(self, case: Case) -> bool:
        """For pairs with scores."""
        return case.records == "pairs" and case.architecture != "cross" and not case.has_classes

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

    def loss(self, module: TwoTowers, encoded: dict[str, Tensor], step: dict[str, Any]) -> Tensor:
        """Over the pairs of all processes."""
        from polyrank.training.gather import gather_rows, num_processes

        similarities = module.values_of_pairs(encoded, step)  # (n,)
        labels = gather_rows(step["labels"].to(similarities.dtype))
        loss = cosent(gather_rows(similarities), labels, module.objective.cosent_scale)
        return loss / num_processes()


def cosent(similarities: Tensor, labels: Tensor, scale: float) -> Tensor:
    """log(1 + Σ exp(scale · (s_j − s_i))) over all pairs with label_i > label_j: (n,), (n,) → ().

    Punishes every pair that is ranked against its labels, whatever their values are; equals
    sentence-transformers' CoSENTLoss. Needs different labels in a batch: without them it is 0.
    """
    import torch

    wrong = scale * (similarities[None, :] - similarities[:, None])  # (n, n): s_j − s_i
    counts = labels[:, None] > labels[None, :]
    terms = torch.cat([similarities.new_zeros(1), wrong[counts]])
    return torch.logsumexp(terms, dim=0)
