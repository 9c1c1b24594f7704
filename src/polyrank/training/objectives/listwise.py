"""Listwise softmax: the response of a context against its own wrong ones.

[−log(exp s(x_i, r_i) / Σ_j exp s(x_i, c_ij))], j over the response and `num_negatives` wrong ones.
Humeau et al. (ICLR 2020), who train their cross-encoder with 15 external negatives.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from polyrank.training.objectives.checks import few_responses, require_wrong_responses
from polyrank.training.objectives.objective import Case, Collator, Given, Objective

if TYPE_CHECKING:
    from torch import Tensor

    from polyrank.training.module import CrossPairs, TrainingModule


class Listwise(Objective):
    """Each context's response in a list with wrong ones."""

    name = "listwise"
    records = ("examples",)
    architectures = ("cross",)

    def is_default(self, case: Case) -> bool:
        """For cross-encoders that read only pairs."""
        has_examples = case.records == "examples"
        return has_examples and case.architecture == "cross" and case.head != "interaction"

    def check(self, given: Given) -> None:
        """Negatives are drawn from the other examples' responses."""
        require_wrong_responses(given)

    def make(self, given: Given) -> tuple[TrainingModule, Collator]:
        """Each context meets its response and `num_negatives` wrong ones."""
        from polyrank.training.batches import drawn_candidates

        return drawn_candidates(given, self.loss)

    def notes(self, given: Given) -> list[str]:
        """A note if there are few responses to draw from."""
        return few_responses(given, "num_negatives", given.config.num_negatives)

    def loss(self, module: CrossPairs, encoded: dict[str, Tensor], step: dict[str, Any]) -> Tensor:
        """The mean over the contexts."""
        import torch

        scores = module.score_own(encoded, step)  # (B, C)
        scores = scores.masked_fill(step["own"] < 0, -torch.inf)
        return module.share_of_mean(listwise_softmax(scores), len(scores))


def listwise_softmax(scores: Tensor) -> Tensor:
    """Cross-entropy of the first of C candidates: (B, C) → the mean over B.

    Equals `in_batch_softmax` where every context has candidates of its own, and the
    MultipleNegativesRankingLoss of sentence-transformers' cross-encoders, without its sigmoid, on
    the same negatives.
    """
    import torch
    from torch.nn import functional

    targets = torch.zeros(len(scores), dtype=torch.long, device=scores.device)
    return functional.cross_entropy(scores, targets)
