"""KL divergence: the student's distribution over the candidates becomes the teacher's.

T² [Σ_j p_j (log p_j − log q_j)], p = softmax(t / T) and q = softmax(s / T) over the response and
the negatives of an example, t the teacher's scores. Hinton et al. (2015), Distilling the knowledge
in a neural network; for rankers, Lin et al. (2020), Distilling dense representations for ranking
using tightly-coupled teachers. The distribution of several teachers is the mean of theirs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from polyrank.config import require
from polyrank.training.objectives.checks import require_negatives, require_scores
from polyrank.training.objectives.objective import Collator, Given, Objective, Records, Settings

if TYPE_CHECKING:
    from torch import Tensor

    from polyrank.training.module import CrossPairs, TrainingModule, TwoTowers
    from polyrank.training.objectives.registry import ObjectiveConfig


@dataclass(frozen=True, kw_only=True)
class KlSettings(Settings):
    """Raises UsageError for a value out of its range."""

    distillation_temperature: float | None = None
    """`kl`, and `in_batch_softmax` with a teacher, divide the scores of both models by this. By
    default 8 for a teacher that scores all candidates of a step, and 1 otherwise."""

    def __post_init__(self) -> None:
        temperature = self.distillation_temperature
        known = temperature is None or temperature > 0
        require(known, "distillation_temperature", "positive", temperature)


class Kl(Objective):
    """A teacher's scores of each context's own candidates, as a distribution."""

    name = "kl"
    records = ("examples",)
    architectures = ("bi", "poly", "cross")
    settings = (KlSettings,)
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

    def mean_of_teachers(self, scores: Tensor, objective: ObjectiveConfig) -> Tensor:
        """The mean of their distributions: (K, C) → (C,)."""
        import torch

        present = torch.ones_like(scores[:1], dtype=torch.bool)
        return mean_scores(scores[:, None], present, temperature_of(objective))[0]

    def loss(
        self, module: TwoTowers | CrossPairs, encoded: dict[str, Tensor], step: dict[str, Any]
    ) -> Tensor:
        """The mean over the contexts."""
        scores, present = module.score_own(encoded, step), step["own"] >= 0  # (B, C)
        teacher = step["teacher"].to(scores.dtype)
        loss = kl_divergence(scores, teacher, present, temperature_of(module.objective))
        return module.share_of_mean(loss, len(scores))


def temperature_of(objective: ObjectiveConfig) -> float:
    """The temperature of both distributions over a context's own candidates."""
    return objective.distillation_temperature or 1.0


def kl_divergence(
    student: Tensor, teacher: Tensor, present: Tensor, temperature: float = 1.0
) -> Tensor:
    """KL(teacher ‖ student) of the softmax over each context's candidates, the mean over B: ().

    student (B, C), teacher (B, C), present (B, C): which candidates there are, in any order. Both
    are divided by `temperature`, and the loss is multiplied by its square. Equals
    sentence-transformers' DistillKLDivLoss. Needs at least two candidates.
    """
    import torch

    absent = ~present
    expected = (teacher / temperature).masked_fill(absent, -torch.inf).softmax(dim=1)
    got = (student / temperature).masked_fill(absent, -torch.inf).log_softmax(dim=1)
    # 0 · (log 0 − log 0) is 0 here and not NaN
    terms = torch.special.xlogy(expected, expected) - expected * got.masked_fill(absent, 0.0)
    return terms.sum(dim=1).mean() * temperature**2


def mean_scores(teachers: Tensor, present: Tensor, temperature: float = 1.0) -> Tensor:
    """Scores of several teachers as those of one: (K, B, C) → (B, C).

    Their softmax at the temperature is the mean of the K teachers' softmaxes at it, so the teachers
    may score in different ranges. teachers (K, B, C): K ≥ 1; present (B, C): which candidates
    there are; the others get 0. The scores of a single teacher change by a constant for each row.
    """
    hidden = (teachers / temperature).masked_fill(~present, -math.inf)
    joined = hidden.log_softmax(dim=2).logsumexp(dim=0) - math.log(len(teachers))
    return (joined * temperature).masked_fill(~present, 0.0)
