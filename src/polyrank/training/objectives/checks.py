"""What records must have for an objective. Knows nothing of models or batches."""

from __future__ import annotations

import math
from collections.abc import Sequence

from polyrank.errors import DataError, UsageError
from polyrank.records import Example, LabelledPair
from polyrank.training.config import TrainingConfig
from polyrank.training.objectives.registry import ObjectiveConfig, ObjectiveName


def check_examples(
    name: ObjectiveName,
    examples: Sequence[Example],
    settings: ObjectiveConfig,
    training: TrainingConfig,
) -> None:
    """Refuse examples that the objective has nothing to learn from.

    Raises DataError, or UsageError for a batch without negatives.
    """
    if name in ("triplet", "margin_mse", "kl"):
        for place, example in enumerate(examples):
            if not example.negatives:
                raise DataError(
                    f"The objective {name} needs negatives in every example, and {named(place)} "
                    "has none.",
                    "Add negatives to the data, for instance with polyrank mine.",
                )
    if name in ("margin_mse", "kl"):
        for place, example in enumerate(examples):
            check_scores(name, place, example)
    elif name != "triplet" and len({example.response for example in examples}) < 2:
        raise DataError(
            f"Training needs at least 2 examples with different responses, got {len(examples)}.",
            "Give more examples.",
        )
    if name != "in_batch_softmax" or training.batch_size > 1:
        return
    if settings.extra_negatives == 0 and not all(example.negatives for example in examples):
        raise UsageError(
            "A batch_size of 1 leaves in_batch_softmax without negatives.",
            "Give a larger batch_size, extra_negatives, or examples with negatives.",
        )


def check_scores(name: ObjectiveName, place: int, example: Example) -> None:
    """Refuse an example without a teacher's score of each candidate."""
    wanted = 1 + len(example.negatives)
    got = len(example.scores or ())
    if got != wanted:
        raise DataError(
            f"The objective {name} needs the teacher's score of the response and of each of the "
            f"{wanted - 1} negatives, and {named(place)} has {got} scores.",
            "Let a cross-encoder score the data with polyrank distil.",
        )
    if not all(math.isfinite(score) for score in example.scores or ()):
        raise DataError(
            f"The teacher's scores must be finite numbers, and those of {named(place)} are "
            f"{list(example.scores or ())}.",
            "Score the data again.",
        )


def check_pairs(name: ObjectiveName, pairs: Sequence[LabelledPair], num_labels: int | None) -> None:
    """Refuse labels that the objective cannot use; `num_labels` are a cross-encoder's classes.

    Raises DataError.
    """
    if name == "classification":
        check_classes(pairs, num_labels)
        return
    for place, pair in enumerate(pairs):
        if not 0 <= pair.label <= 1:
            raise DataError(
                f"The objective {name} needs labels from 0 to 1, and {named(place, 'pair')} has "
                f"{pair.label}.",
                "Scale the labels, or choose classification for classes.",
            )
    if len({pair.label for pair in pairs}) < 2:
        raise DataError(
            f"All {len(pairs)} pairs have the same label, from which nothing can be learnt.",
            "Give pairs with different labels.",
        )


def check_classes(pairs: Sequence[LabelledPair], num_labels: int | None) -> None:
    """Refuse labels that are no classes."""
    for place, pair in enumerate(pairs):
        if not isinstance(pair.label, int) or pair.label < 0:
            raise DataError(
                f"The objective classification needs whole numbers from 0 on as labels, and "
                f"{named(place, 'pair')} has {pair.label}.",
                "Number the classes, or choose regression or cosent for scores.",
            )
        if num_labels is not None and pair.label >= num_labels:
            raise DataError(
                f"The cross-encoder has {num_labels} classes, 0 to {num_labels - 1}, and "
                f"{named(place, 'pair')} has the label {pair.label}.",
                f"Give --num-labels {num_classes(pairs)}.",
            )
    if len({pair.label for pair in pairs}) < 2:
        raise DataError(
            f"All {len(pairs)} pairs have the same class, from which nothing can be learnt.",
            "Give pairs of different classes.",
        )


def num_classes(pairs: Sequence[LabelledPair]) -> int:
    """The number of classes that the labels count up to."""
    return int(max(pair.label for pair in pairs)) + 1


def named(place: int, kind: str = "example") -> str:
    """Which record it is, counted from 1."""
    return f"{kind} {place + 1}"
