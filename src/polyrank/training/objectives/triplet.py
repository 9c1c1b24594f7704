"""Triplets: the response must be nearer to the context than each of its negatives, by a margin.

[max(‖u − v⁺‖ − ‖u − v⁻‖ + margin, 0)] over all (context, own negative), of vectors that are neither
normalised nor divided by the temperature. Reimers, Gurevych (EMNLP 2019), Sentence-BERT.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from polyrank.config import require
from polyrank.training.objectives.checks import (
    require_negatives,
    with_candidates_as_negatives,
)
from polyrank.training.objectives.objective import Collator, Given, Objective, Records, Settings

if TYPE_CHECKING:
    from torch import Tensor

    from polyrank.training.module import TrainingModule, TwoTowers


@dataclass(frozen=True, kw_only=True)
class TripletSettings(Settings):
    """Raises UsageError for a value out of its range."""

    triplet_margin: float = 1.0
    """The margin of `triplet`: how much farther a negative must be than the response, in Euclidean
    distance."""

    def __post_init__(self) -> None:
        require(self.triplet_margin > 0, "triplet_margin", "positive", self.triplet_margin)


class Triplet(Objective):
    """Euclidean distances of each context to its response and its own negatives."""

    name = "triplet"
    records = ("examples",)
    architectures = ("bi",)
    settings = (TripletSettings,)

    def check(self, given: Given) -> None:
        """Every example needs negatives."""
        require_negatives(self.name, given.examples)

    def dev_records(self, given: Given, dev: Records) -> Sequence[Any]:
        """Their own negatives, or else their wrong candidates."""
        examples = with_candidates_as_negatives(super().dev_records(given, dev))
        require_negatives(self.name, examples)
        return examples

    def make(self, given: Given) -> tuple[TrainingModule, Collator]:
        """Each context meets its own candidates alone."""
        from polyrank.training.batches import own_candidates

        return own_candidates(given, self.loss, raw=True)

    def loss(self, module: TwoTowers, encoded: dict[str, Tensor], step: dict[str, Any]) -> Tensor:
        """The mean over all (context, negative)."""
        contexts = encoded["contexts"][:, 0]  # (B, d)
        candidates = encoded["candidates"][step["own"].clamp(min=0)]  # (B, C, d)
        present = (step["own"] >= 0)[:, 1:]
        margin = module.objective.triplet_margin
        loss = triplet(contexts, candidates[:, 0], candidates[:, 1:], present, margin)
        return module.share_of_mean(loss, int(present.sum()))


def triplet(
    contexts: Tensor, responses: Tensor, negatives: Tensor, present: Tensor, margin: float
) -> Tensor:
    """How far a wrong response is from being `margin` farther away than the response: ().

    contexts (B, d), responses (B, d), negatives (B, n, d), present (B, n): which negatives there
    are. max(‖c − r‖ − ‖c − w‖ + margin, 0), the mean over all (context, negative). With one
    negative per context it equals sentence-transformers' TripletLoss. Needs vectors that are not
    normalised and at least one negative.
    """
    import torch
    from torch.nn import functional

    near = torch.linalg.vector_norm(contexts - responses, dim=-1)  # (B,)
    far = torch.linalg.vector_norm(contexts[:, None, :] - negatives, dim=-1)  # (B, n)
    return functional.relu(near[:, None] - far + margin)[present].mean()
