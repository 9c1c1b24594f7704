"""What an objective declares and does. Each has a class in a file beside this one, which `registry`
finds. Knows no objective by name. Neither this module nor an objective's file imports torch at the
top: the command line reads the declarations for `--help`, so torch is imported where tensors are
computed.
"""

from __future__ import annotations

import dataclasses
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

from polyrank.errors import DataError
from polyrank.pretraining.pairs import Pair
from polyrank.records import Example, LabelledPair
from polyrank.training.config import TrainingConfig

if TYPE_CHECKING:
    from torch import Tensor

    from polyrank.data.answers import KnownAnswers
    from polyrank.models.base import Model
    from polyrank.training.module import TrainingModule
    from polyrank.training.objectives.registry import ObjectiveConfig

Architecture = Literal["bi", "poly", "cross"]
ARCHITECTURES: tuple[Architecture, ...] = ("bi", "poly", "cross")
RecordKind = Literal["examples", "pairs", "corpus"]
"""Contexts with responses, labelled pairs of texts, or pairs drawn from a corpus."""
WORDS: dict[RecordKind, str] = {
    "examples": "examples (context, response)",
    "pairs": "labelled pairs",
    "corpus": "pairs of a corpus",
}
"""What the kinds of records are called."""
LOSS = "loss"
"""The dev figure that every objective has, and the only one where lower is better."""
Records = Sequence[Example] | Sequence[LabelledPair] | Sequence[Pair]
Collator = Callable[[Sequence[Any]], dict[str, Any]]
"""Items of the training set to a step: batches of token ids, and what the loss needs beside."""


class Evaluation(NamedTuple):
    """How a model is evaluated while it is trained."""

    measure: Callable[[Model], dict[str, float]]
    """A model that is in evaluation mode to its figures by name."""
    metric: str
    """The name of the figure that chooses the best checkpoint; higher is better, except for
    `loss`.
    """

    @property
    def greater_is_better(self) -> bool:
        """Whether the checkpoint with the highest value of the metric is the best."""
        return self.metric != LOSS


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Base of the settings of single objectives, which become fields of `ObjectiveConfig`."""

    def __post_init__(self) -> None:
        """Raise UsageError for a value out of its range."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """What is trained, and on what, as far as the default objective depends on it."""

    architecture: str
    records: RecordKind
    has_classes: bool = False
    """Whether labelled pairs have whole numbers as labels."""
    task: str | None = None
    head: str | None = None
    """Task and head of a cross-encoder, where they are known."""


@dataclass(frozen=True, kw_only=True)
class Given:
    """What a run gives its objective."""

    model: Any
    """A bi-, poly- or cross-encoder."""
    examples: Any
    """The records, in the order of the training set."""
    config: TrainingConfig
    objective: ObjectiveConfig
    teachers: tuple[Any, ...] = ()
    """Models that score the candidates of each step, if there are any."""

    @cached_property
    def answers(self) -> KnownAnswers:
        """What is right for each context, where the records are examples."""
        from polyrank.data.answers import KnownAnswers

        return KnownAnswers(self.examples)


class Objective(ABC):
    """A way to train a model. Stateless: what a run brings is passed in."""

    name: ClassVar[str]
    records: ClassVar[tuple[RecordKind, ...]]
    architectures: ClassVar[tuple[Architecture, ...]]
    task: ClassVar[str] = "rank"
    """The task that a cross-encoder must have for it."""
    head: ClassVar[str | None] = None
    """The head that a cross-encoder must have for it; None if any will do."""
    settings: ClassVar[tuple[type[Settings], ...]] = ()
    """The classes of settings that have an effect on it. A field whose metadata names
    `architectures` has one on these alone."""
    learns_from_scores: ClassVar[bool] = False
    """Whether it learns from a teacher's scores of the candidates of each example."""

    def is_default(self, case: Case) -> bool:
        """Whether `auto` stands for it."""
        return False

    def uses(self, setting: str, architecture: str) -> bool:
        """Whether a setting of some objective has an effect on this one."""
        fields = [one for settings in self.settings for one in dataclasses.fields(settings)]
        return any(
            field.name == setting
            and architecture in field.metadata.get("architectures", ARCHITECTURES)
            for field in fields
        )

    @abstractmethod
    def check(self, given: Given) -> None:
        """Raise DataError for examples, or UsageError for settings, that teach nothing."""

    def notes(self, given: Given) -> list[str]:
        """What people should know before such a run starts, one sentence each."""
        return []

    @abstractmethod
    def make(self, given: Given) -> tuple[TrainingModule, Collator]:
        """The module that is trained, which encodes a step, and what makes the steps."""

    @abstractmethod
    def loss(self, module: Any, encoded: dict[str, Tensor], step: dict[str, Any]) -> Tensor:
        """This process's share of the loss of a step, from what was encoded of it: ().

        The shares of all processes add up to the loss of their joined step.
        """

    def mean_of_teachers(self, scores: Tensor, objective: ObjectiveConfig) -> Tensor:
        """The scores of K teachers of one example's C candidates as those of one: (K, C) → (C,).

        By default, their mean.
        """
        return scores.mean(dim=0)

    def dev_records(self, given: Given, dev: Records) -> Sequence[Any]:
        """The dev records as this loss takes them, whatever figures they are evaluated by.

        Raises DataError for dev records on which it cannot be computed.
        """
        kind, trained_on = records_of(dev), records_of(given.examples)
        if kind != trained_on:
            raise DataError(
                f"There is no dev loss: {self.name} is trained on {WORDS[trained_on]}, but the "
                f"dev data are {WORDS[kind]}.",
                "Give dev data of the same kind, or choose another metric.",
            )
        return dev

    def dev_steps(self, given: Given, dev: Records) -> Sequence[Sequence[Any]]:
        """The dev records in steps, about as large as those of the training; the same each time.

        They are shuffled by the seed: neighbours in a file, such as replies of one dialogue, would
        be harder negatives than those of the training.

        Raises DataError for dev records on which the loss cannot be computed, and returns no steps
        where there are none.
        """
        if not dev:
            return []
        records = self.dev_records(given, dev)
        order = random.Random(given.config.seed).sample(range(len(records)), len(records))
        return in_steps([records[place] for place in order], given.config.batch_size)

    def evaluation(self, given: Given, module: Any, collator: Collator) -> Evaluation | None:
        """How the model is evaluated without dev data; None where it cannot be."""
        return None


def in_steps(records: Sequence[Any], batch_size: int) -> list[Sequence[Any]]:
    """Records in their order, in steps of nearly `batch_size` that differ by at most one."""
    count = max(round(len(records) / batch_size), 1)
    bounds = [len(records) * place // count for place in range(count + 1)]
    return [records[start:stop] for start, stop in pairwise(bounds)]


def records_of(examples: Records) -> RecordKind:
    """The kind of records in the training set, judged by the first."""
    if len(examples) and isinstance(examples[0], LabelledPair):
        return "pairs"
    return "corpus" if len(examples) and isinstance(examples[0], Pair) else "examples"
