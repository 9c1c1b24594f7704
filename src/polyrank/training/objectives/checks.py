"""What several objectives require of their records. Knows nothing of models or batches."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from polyrank.errors import DataError
from polyrank.records import Example, LabelledPair

if TYPE_CHECKING:
    from polyrank.training.objectives.objective import Given


def require_wrong_responses(given: Given) -> None:
    """Raise DataError unless some context can get a negative: its own, or another's response."""
    examples: Sequence[Example] = given.examples
    if len({example.response for example in examples}) < 2:
        raise DataError(
            f"Training needs at least 2 examples with different responses, got {len(examples)}.",
            "Give more examples.",
        )
    brings_own = any(example.negatives or example.candidates for example in examples)
    if not brings_own and not given.answers.leave_a_wrong_one:
        raise DataError(
            f"Each of the {given.answers.num_responses} different responses is right for every "
            "context, so none can be a negative.",
            "Give examples of other contexts, or examples with negatives.",
        )


def few_responses(given: Given, setting: str, count: int) -> list[str]:
    """What to tell people where `count` negatives cannot be drawn for each context."""
    most = given.answers.num_responses - 1
    if most >= count or all(len(example.negatives) >= count for example in given.examples):
        return []
    return [
        f"The training data hold {most + 1} different responses, so a context gets at most {most} "
        f"drawn negatives instead of {setting} = {count}."
    ]


def require_negatives(name: str, examples: Sequence[Example]) -> None:
    """Raise DataError for an example without negatives of its own."""
    for place, example in enumerate(examples):
        if not example.negatives:
            raise DataError(
                f"The objective {name} needs negatives in every example, but {named(place)} "
                "has none.",
                "Add negatives to the data, for instance with polyrank mine.",
            )


def require_scores(name: str, examples: Sequence[Example]) -> None:
    """Raise DataError for an example without a teacher's score of each of its candidates."""
    for place, example in enumerate(examples):
        expected = 1 + len(example.negatives)
        got = len(example.scores or ())
        if got != expected:
            raise DataError(
                f"The objective {name} needs the teacher's score of the response and of each of "
                f"the {expected - 1} negatives, and {named(place)} has {got} scores.",
                "Let a cross-encoder score the data with polyrank distil.",
            )
        if not all(math.isfinite(score) for score in example.scores or ()):
            raise DataError(
                f"The teacher's scores must be finite numbers, but those of {named(place)} are "
                f"{list(example.scores or ())}.",
                "Score the data again.",
            )


def with_candidates_as_negatives(
    examples: Sequence[Example], most: int | None = None
) -> list[Example]:
    """Examples without negatives get those of their candidates that are not the response, or the
    first `most` of them.
    """
    made = []
    for example in examples:
        wrong = [text for text in example.candidates or () if text != example.response]
        own = example.negatives or tuple(wrong[:most])
        made.append(replace(example, negatives=own))
    return made


def require_graded_labels(name: str, pairs: Sequence[LabelledPair]) -> None:
    """Raise DataError unless all labels are from 0 to 1, and not all are equal."""
    require_shares(name, pairs)
    if len({pair.label for pair in pairs}) < 2:
        raise DataError(
            f"All {len(pairs)} pairs have the same label, from which nothing can be learnt.",
            "Give pairs with different labels.",
        )


def require_shares(name: str, pairs: Sequence[LabelledPair]) -> None:
    """Raise DataError unless all labels are from 0 to 1."""
    for place, pair in enumerate(pairs):
        if not 0 <= pair.label <= 1:
            raise DataError(
                f"The objective {name} needs labels from 0 to 1, but {named(place, 'pair')} has "
                f"{pair.label}.",
                "Scale the labels, or choose classification for classes.",
            )


def named(place: int, kind: str = "example") -> str:
    """Which record it is, counted from 1."""
    return f"{kind} {place + 1}"
