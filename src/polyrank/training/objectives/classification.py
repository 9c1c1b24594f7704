"""Classification: the class of a pair.

[−log softmax(W · f)_label]. For cross, W · f is the head's output. For bi, f is the `concatenation`
of the two vectors u and v, before normalisation and temperature, and W is the model's classifier.
Reimers, Gurevych (EMNLP 2019), Sentence-BERT; of its concatenations (u, v, |u−v|) is the best.

Letters: n pairs, L classes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from polyrank.errors import DataError
from polyrank.models.config import ClassifierConfig, Concatenation
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
    from torch import Tensor

    from polyrank.training.module import TrainingModule


@dataclass(frozen=True, kw_only=True)
class ClassificationSettings(Settings):
    """What the classifier sees."""

    concatenation: Concatenation = dataclasses.field(
        default="u,v,|u-v|", metadata={"architectures": ("bi",)}
    )
    """What the classifier of `classification` sees of the two vectors of a pair. Only for bi."""


class Classification(Objective):
    """Cross-entropy of the classes."""

    name = "classification"
    records = ("pairs",)
    architectures = ("bi", "cross")
    task = "classify"
    settings = (ClassificationSettings,)

    def is_default(self, case: Case) -> bool:
        """For whole numbers, unless a cross-encoder has another task."""
        if case.records != "pairs":
            return False
        if case.architecture == "cross" and case.task is not None:
            return case.task == "classify"
        return case.has_classes

    def check(self, given: Given) -> None:
        """Labels are classes, of which a cross-encoder has a given number."""
        is_cross = given.model.architecture == "cross"
        require_classes(given.examples, given.model.config.num_labels if is_cross else None)
        class_names(given.examples)

    def dev_records(self, given: Given, dev: Records) -> Sequence[Any]:
        """Labels are classes that are trained on."""
        is_cross = given.model.architecture == "cross"
        known = given.model.config.num_labels if is_cross else num_classes(given.examples)
        require_numbered_classes(pairs := super().dev_records(given, dev), known)
        return pairs

    def make(self, given: Given) -> tuple[TrainingModule, Collator]:
        """The pairs as they are; the model gets the classes, and a bi-encoder its classifier.

        A model with the same classes keeps its classifier.
        """
        from polyrank.training.batches import labelled_pairs

        give_classes(given)
        return labelled_pairs(given, self.loss, raw=True)

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
                f"The objective classification needs whole numbers from 0 up as labels, but "
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


def class_names(pairs: Sequence[LabelledPair], num_labels: int | None = None) -> tuple[str, ...]:
    """The name of each class, or its number where it has none: (L,).

    `num_labels` is L; by default the labels count up to it. Raises DataError where one class has
    two names or two classes have one.
    """
    names: dict[int, str] = {}
    for place, pair in enumerate(pairs):
        if pair.class_name is None:
            continue
        name = names.setdefault(int(pair.label), pair.class_name)
        if name != pair.class_name:
            raise DataError(
                f"The class {pair.label} is called {name}, and in {named(place, 'pair')} "
                f"{pair.class_name}.",
                "Give every class one name.",
            )
    found = tuple(names.get(label, str(label)) for label in range(num_labels or num_classes(pairs)))
    if len(set(found)) < len(found):
        raise DataError(
            f"Two classes have the same name: {', '.join(found)}.", "Give every class its own name."
        )
    return found


def give_classes(given: Given) -> None:
    """Give the model the classes of the training data, with a new classifier where needed.

    The new classifier of a bi-encoder is drawn from the run's seed. Raises DataError for data whose
    classes have other names than those of a cross-encoder.
    """
    model, objective = given.model, given.objective
    if model.architecture == "cross":
        known, wanted = model.classes, class_names(given.examples, model.config.num_labels)
        plain = tuple(map(str, range(len(known))))
        if known not in (plain, wanted):
            raise DataError(
                f"The cross-encoder knows the classes {', '.join(known)}, but the data have "
                f"{', '.join(wanted)}.",
                "Give data of the same classes, or start from another base.",
            )
        model.take_classifier(ClassifierConfig(classes=wanted))
        return
    wanted = class_names(given.examples)
    config = ClassifierConfig(classes=wanted, concatenation=objective.concatenation)
    if model.classifier_config != config:
        model.take_classifier(config)
        model.classifier.draw(given.config.seed)


def class_logits(
    module: TrainingModule, encoded: dict[str, Tensor], step: dict[str, Any]
) -> Tensor:
    """The logits of each pair, from the cross-encoder or the classifier: (n, L)."""
    if module.model.architecture == "cross":
        return encoded["pairs"]
    u = encoded["contexts"][step["first"], 0]  # (n, d)
    v = encoded["candidates"][step["second"]]  # (n, d)
    model: Any = module.model
    logits: Tensor = model.classifier(u, v)
    return logits


def class_softmax(logits: Tensor, labels: Tensor) -> Tensor:
    """Cross-entropy of the true class: (n, L), (n,) → the mean over n.

    On W · concatenated(u, v) it equals sentence-transformers' SoftmaxLoss; on the outputs of a
    cross-encoder, its CrossEntropyLoss.
    """
    from torch.nn import functional

    return functional.cross_entropy(logits, labels)
