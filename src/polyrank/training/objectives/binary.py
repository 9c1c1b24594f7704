"""Binary cross-entropy: each pair alone is right or wrong.

[−(t log σ(s) + (1 − t) log(1 − σ(s)))] over all pairs, σ(s) = 1 / (1 + exp(−s)). Nogueira, Cho
(2019), Passage re-ranking with BERT; with labels that are probabilities, such as a teacher's,
Thakur et al. (NAACL 2021), Augmented SBERT.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from polyrank.training.objectives.checks import (
    few_responses,
    require_graded_labels,
    require_shares,
    require_wrong_responses,
)
from polyrank.training.objectives.objective import (
    Case,
    Collator,
    Given,
    Objective,
    Records,
    records_of,
)

if TYPE_CHECKING:
    from torch import Tensor

    from polyrank.training.module import CrossPairs, TrainingModule


class Binary(Objective):
    """Labelled pairs, or each example's response (1) and wrong ones (0)."""

    name = "binary"
    records = ("examples", "pairs")
    architectures = ("cross",)

    def is_default(self, case: Case) -> bool:
        """For labelled pairs and a cross-encoder that ranks."""
        return case.records == "pairs" and case.architecture == "cross" and case.task == "rank"

    def check(self, given: Given) -> None:
        """Labels are probabilities; negatives are drawn from the other examples' responses."""
        if records_of(given.examples) == "pairs":
            require_graded_labels(self.name, given.examples)
        else:
            require_wrong_responses(given)

    def dev_records(self, given: Given, dev: Records) -> Sequence[Any]:
        """Labels are probabilities."""
        records = super().dev_records(given, dev)
        if records_of(records) == "pairs":
            require_shares(self.name, records)
        return records

    def make(self, given: Given) -> tuple[TrainingModule, Collator]:
        """The pairs, or each context with its response and `num_negatives` wrong ones."""
        from polyrank.training.batches import drawn_candidates, labelled_pairs

        if records_of(given.examples) == "pairs":
            return labelled_pairs(given, self.loss)
        return drawn_candidates(given, self.loss)

    def notes(self, given: Given) -> list[str]:
        """A note if there are few responses to draw from."""
        if records_of(given.examples) == "pairs":
            return []
        return few_responses(given, "num_negatives", given.config.num_negatives)

    def loss(self, module: CrossPairs, encoded: dict[str, Tensor], step: dict[str, Any]) -> Tensor:
        """The mean over the pairs."""
        logits = encoded["pairs"]  # (n,)
        if "labels" in step:
            labels = step["labels"].to(logits.dtype)
        else:
            labels = logits.new_zeros(len(logits))
            labels[step["own"][:, 0]] = 1
        return module.share_of_mean(binary_cross_entropy(logits, labels), len(labels))


def binary_cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """Cross-entropy of yes or no: (n,), (n,) → the mean over n.

    Labels from 0 to 1 are probabilities. Equals sentence-transformers' BinaryCrossEntropyLoss.
    """
    from torch.nn import functional

    return functional.binary_cross_entropy_with_logits(logits, labels)
