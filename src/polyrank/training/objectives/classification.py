"""Classification: the class of a pair.

[−log softmax(W · f)_label]. For cross, W · f is the head's output. For bi, f is the `concatenation`
of the two vectors u and v, before normalisation and temperature, and W is learnt beside the model.
Reimers, Gurevych (EMNLP 2019), Sentence-BERT; of its concatenations (u, v, |u−v|) is the best.

Letters: n pairs, L classes, d dimensions.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from polyrank.errors import DataError
from polyrank.records import LabelledPair
from polyrank.training.objectives.checks import named
from polyrank.training.objectives.objective import (
    Case,
    Collator,
    Given,
    Objective,
    Records,
    Settings,
)

if TYPE_CHECKING:
    from torch import Tensor, nn

    from polyrank.training.module import TrainingModule

Concatenation = Literal["u,v", "|u-v|", "u*v", "|u-v|,u*v", "u,v,u*v", "u,v,|u-v|", "u,v,|u-v|,u*v"]
FEATURES = {
    "u": lambda u, v: u,
    "v": lambda u, v: v,
    "|u-v|": lambda u, v: (u - v).abs(),
    "u*v": lambda u, v: u * v,
}
AT_ONCE = 256


@dataclass(frozen=True, kw_only=True)
class ClassificationSettings(Settings):
    """What the classifier sees."""

    concatenation: Concatenation = dataclasses.field(
        default="u,v,|u-v|", metadata={"architectures": ("bi",)}
    )
    """What the classifier of `classification` sees of the two vectors of a pair, for bi."""


class Classification(Objective):
    """Cross-entropy of the classes."""

    name = "classification"
    records = ("pairs",)
    architectures = ("bi", "cross")
    task = "classify"
    settings = (ClassificationSettings,)

    def is_default(self, case: Case) -> bool:
        """For whole numbers, but where a cross-encoder has another task."""
        if case.records != "pairs":
            return False
        if case.architecture == "cross" and case.task is not None:
            return case.task == "classify"
        return case.has_classes

    def check(self, given: Given) -> None:
        """Labels are classes, of which a cross-encoder has a given number."""
        is_cross = given.model.architecture == "cross"
        require_classes(given.examples, given.model.config.num_labels if is_cross else None)

    def dev_records(self, given: Given, dev: Records) -> Sequence[Any]:
        """Labels are classes that are trained on."""
        is_cross = given.model.architecture == "cross"
        known = given.model.config.num_labels if is_cross else num_classes(given.examples)
        require_numbered_classes(pairs := super().dev_records(given, dev), known)
        return pairs

    def make(self, given: Given) -> tuple[TrainingModule, Collator]:
        """The pairs as they are; for bi, with a classifier beside the model."""
        from polyrank.training.batches import labelled_pairs

        heads = {} if given.model.architecture == "cross" else {"classifier": new_classifier(given)}
        return labelled_pairs(given, self.loss, raw=True, heads=heads)

    def loss(
        self, module: TrainingModule, encoded: dict[str, Tensor], step: dict[str, Any]
    ) -> Tensor:
        """The mean over the pairs."""
        logits, labels = class_logits(module, encoded, step), step["labels"]
        return module.share_of_mean(class_softmax(logits, labels), len(labels))


def require_classes(pairs: Sequence[LabelledPair], num_labels: int | None) -> None:
    """Raise DataError for labels that are not classes, below `num_labels` where that is known, or
    that are all the same.
    """
    require_numbered_classes(pairs, num_labels)
    if len({pair.label for pair in pairs}) < 2:
        raise DataError(
            f"All {len(pairs)} pairs have the same class, from which nothing can be learnt.",
            "Give pairs of different classes.",
        )


def require_numbered_classes(pairs: Sequence[LabelledPair], num_labels: int | None) -> None:
    """Raise DataError for labels that are not classes, below `num_labels` where that is known."""
    for place, pair in enumerate(pairs):
        if not isinstance(pair.label, int) or pair.label < 0:
            raise DataError(
                f"The objective classification needs whole numbers from 0 on as labels, and "
                f"{named(place, 'pair')} has {pair.label}.",
                "Number the classes, or choose regression or cosent for scores.",
            )
        if num_labels is not None and pair.label >= num_labels:
            raise DataError(
                f"The classifier has {num_labels} classes, 0 to {num_labels - 1}, and "
                f"{named(place, 'pair')} has the label {pair.label}.",
                f"Give a cross-encoder --num-labels {num_classes(pairs)}, or leave out such pairs.",
            )


def num_classes(pairs: Sequence[LabelledPair]) -> int:
    """The number of classes that the labels count up to."""
    return int(max(pair.label for pair in pairs)) + 1


def new_classifier(given: Given) -> nn.Linear:
    """Sentence-BERT's classifier over the two vectors of a pair, drawn from the run's seed."""
    import torch
    from torch import nn

    model = given.model
    width = model.dimension * len(given.objective.concatenation.split(","))
    classifier = nn.Linear(width, num_classes(given.examples))
    generator = torch.Generator().manual_seed(given.config.seed)
    nn.init.normal_(classifier.weight, std=0.02, generator=generator)
    nn.init.zeros_(classifier.bias)
    return classifier.to(model.device)


def class_logits(
    module: TrainingModule, encoded: dict[str, Tensor], step: dict[str, Any]
) -> Tensor:
    """What the cross-encoder or the classifier says of each pair: (n, L)."""
    if "classifier" not in module.heads:
        return encoded["pairs"]
    u = encoded["contexts"][step["first"], 0]  # (n, d)
    v = encoded["candidates"][step["second"]]  # (n, d)
    logits: Tensor = module.heads["classifier"](concatenated(u, v, module.objective.concatenation))
    return logits


def concatenated(u: Tensor, v: Tensor, concatenation: str) -> Tensor:
    """What a classifier sees of two vectors: (n, d), (n, d) → (n, k · d).

    `concatenation` names the k parts, with commas: u, v, |u-v|, u*v.
    """
    import torch

    return torch.cat([FEATURES[part](u, v) for part in concatenation.split(",")], dim=1)


def class_softmax(logits: Tensor, labels: Tensor) -> Tensor:
    """Cross-entropy of the true class: (n, L), (n,) → the mean over n.

    On W · concatenated(u, v) it equals sentence-transformers' SoftmaxLoss; on the outputs of a
    cross-encoder, its CrossEntropyLoss.
    """
    from torch.nn import functional

    return functional.cross_entropy(logits, labels)


def classify(module: TrainingModule, collator: Collator, pairs: Sequence[LabelledPair]) -> Tensor:
    """The logits of a classifier that is trained beside a bi-encoder: (n, L), on the CPU."""
    import torch

    from polyrank.training.batches import Item, move

    logits = []
    with torch.no_grad():
        for start in range(0, len(pairs), AT_ONCE):
            items = [Item(place, one) for place, one in enumerate(pairs[start:][:AT_ONCE])]
            step = move(collator(items), module.model.device)
            logits.append(class_logits(module, module.encode_step(step), step).float().cpu())
    return torch.cat(logits)
