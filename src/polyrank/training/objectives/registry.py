"""The objectives by name, their settings, and the one that a run minimises. A new module with an
objective is found without being listed. Torch is first needed by `build`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, cast

from polyrank.discovery import subclasses_in
from polyrank.errors import UsageError, nearest
from polyrank.training import objectives
from polyrank.training.config import TrainingConfig
from polyrank.training.objectives.objective import (
    WORDS,
    Case,
    Collator,
    Evaluation,
    Given,
    Objective,
    RecordKind,
    Records,
    records_of,
)

if TYPE_CHECKING:
    from polyrank.models.base import Model
    from polyrank.records import LabelledPair
    from polyrank.training.batches import TrainingSet
    from polyrank.training.module import TrainingModule

FOUND = [one() for one in subclasses_in(objectives, Objective)]
OBJECTIVES: Mapping[str, Objective] = {one.name: one for one in FOUND}
"""All that can be chosen by name. Pre-training is chosen by its records."""
OF_BINARY = {"head": "linear"}
"""What a new cross-encoder needs to learn right from wrong: a head with an offset, which
`interaction` does not have."""
SETTINGS = tuple(
    dict.fromkeys(one for objective in OBJECTIVES.values() for one in objective.settings)
)
"""The classes of all settings of single objectives."""

if TYPE_CHECKING:
    ObjectiveName = str
else:
    ObjectiveName = Literal.__getitem__(("auto", *OBJECTIVES))


@dataclass(frozen=True, kw_only=True)
class ChosenObjective:
    """Which objective."""

    objective: ObjectiveName = "auto"
    """The loss. By default: on examples, `in_batch_softmax` for bi, poly and a cross with head =
    interaction, and `listwise` for other cross-encoders; on labelled pairs, `classification` if the
    labels are whole numbers, else `cosent` for bi and poly and `regression` for cross. A
    cross-encoder gets its task and number of classes from the data unless they are given. Only
    `margin_mse` and `kl` use a teacher's scores.
    """


@dataclass(frozen=True, kw_only=True)
class ObjectiveConfig(*reversed(SETTINGS), ChosenObjective):  # type: ignore[misc]
    """The objective of a run, with the settings of all objectives; each setting is declared in the
    file of its objective.
    """

    gradient_cache: Literal["auto", "always", "never"] = "auto"
    """Encode each step twice, first without gradients, so that it needs the memory of one batch
    only. `auto` does this if a step would need much of the memory otherwise."""

    def __post_init__(self) -> None:
        for settings in SETTINGS:
            settings.__post_init__(self)
        if self.objective != "auto" and self.objective not in OBJECTIVES:
            raise UsageError(
                f"There is no objective {self.objective!r}.", nearest(self.objective, OBJECTIVES)
            )


@dataclass(frozen=True, kw_only=True)
class Setup:
    """All that a trainer needs: what is trained, and on what."""

    objective: Objective
    """The one that the settings chose."""
    module: TrainingModule
    """Holds the model as `model`, and what is learnt beside it."""
    collator: Collator
    """Items of the data set to a step."""
    dataset: TrainingSet
    """The records by their place; `set_epoch` changes what is drawn for them."""
    given: Given
    """What the run gave its objective."""
    evaluation: Evaluation | None
    """How the model is evaluated without dev data, if it can be."""
    notes: Sequence[str] = ()
    """What people should know before the run starts, one sentence each."""


def build(
    model: Model,
    examples: Records,
    config: TrainingConfig,
    objective: ObjectiveConfig,
    teachers: Sequence[Model] = (),
) -> Setup:
    """What a run minimises, with its batches and its data set.

    The model gets the classifier that the objective trains, and loses any other.

    The `teachers` score the candidates of each step of the in-batch softmax. Raises UsageError for
    an objective or settings that do not suit the model or the kind of records, DataError for
    records that it cannot be trained on.
    """
    from polyrank.training.batches import TrainingSet

    chosen = objective_for(model, examples, objective)
    given = Given(
        model=model,
        examples=examples,
        config=config,
        objective=objective,
        teachers=tuple(teachers),
    )
    chosen.check(given)
    if chosen.task != "classify":
        model.drop_classifier()
    module, collator = chosen.make(given)
    return Setup(
        objective=chosen,
        module=module,
        collator=collator,
        dataset=TrainingSet(examples),
        given=given,
        evaluation=chosen.evaluation(given, module, collator),
        notes=chosen.notes(given),
    )


def objective_for(model: Model, examples: Records, objective: ObjectiveConfig) -> Objective:
    """The objective of a run. Raises UsageError where it does not suit the model or the records."""
    kind: dict[str, Any] = {}
    if model.architecture == "cross":
        kind = {"task": model.config.task, "head": model.config.head}
    return choose_objective(objective, model.architecture, examples, **kind)


def choose_objective(
    objective: ObjectiveConfig,
    architecture: str,
    examples: Records,
    task: str | None = None,
    head: str | None = None,
) -> Objective:
    """The objective of a run; `task` and `head` are the cross-encoder's, where they are known.

    Raises UsageError where it does not suit the architecture, its task or the records.
    """
    records = records_of(examples)
    if objective.objective == "auto":
        chosen = default_objective(architecture, examples, task, head)
    else:
        chosen = OBJECTIVES[objective.objective]
    name = chosen.name
    if architecture not in chosen.architectures:
        raise UsageError(
            f"The objective {name} cannot train the architecture {architecture}.",
            f"Choose one of {', '.join(names_for(architecture))}."
            if name in OBJECTIVES
            else f"Train the architecture {' or '.join(chosen.architectures)}.",
        )
    if records not in chosen.records:
        raise UsageError(
            f"The objective {name} needs {WORDS[chosen.records[0]]}, got {WORDS[records]}.",
            f"Choose one of {', '.join(names_for(architecture, records))}, or give other data.",
        )
    if architecture == "cross" and task not in (None, chosen.task):
        raise UsageError(
            f"The objective {name} needs a cross-encoder with task = {chosen.task}, not {task}.",
            f"Give --task {chosen.task}, or choose an objective for {task}.",
        )
    if architecture == "cross" and chosen.head is not None and head not in (None, chosen.head):
        raise UsageError(
            f"The objective {name} needs a cross-encoder that can read the two texts separately, "
            f"with head = {chosen.head}, not {head}.",
            f"Give --head {chosen.head}, or choose listwise.",
        )
    return chosen


def cross_settings(
    objective: ObjectiveConfig,
    examples: Records,
    task: str | None = None,
    head: str | None = None,
    saved: Mapping[str, Any] = MappingProxyType({}),
) -> dict[str, Any]:
    """The task and head of a cross-encoder, and its number of classes, that suit the records.

    `task` and `head` are what was asked for, `saved` the settings of a saved cross-encoder: where
    its head can learn from the records, nothing is needed. Raises UsageError as `choose_objective`.
    """
    head = saved.get("head") if head in (None, "auto") else head
    if records_of(examples) != "pairs" or head == "interaction":  # which only ranks
        is_new = head is None and objective.objective == "binary"
        return dict(OF_BINARY) if is_new else {}
    chosen = choose_objective(objective, "cross", examples, task)
    labels = [pair.label for pair in cast("Sequence[LabelledPair]", examples)]
    needed: dict[str, Any] = {"task": chosen.task}
    if head is None and chosen.name == "binary":
        needed |= OF_BINARY
    if chosen.task == "classify":
        needed["num_labels"] = max(int(max(labels)) + 1, 2)
    suits = chosen.task == saved.get("task")
    if suits and needed.get("num_labels", 0) <= saved["num_labels"]:
        return {}
    is_free = task is None and objective.objective == "auto"
    if is_free and saved.get("task") in ("rank", "regress") and max(labels) <= 1:
        return {}  # one score learns scores, and two classes as scores
    return needed


def default_objective(
    architecture: str, examples: Records, task: str | None = None, head: str | None = None
) -> Objective:
    """The objective that `auto` stands for; `task` and `head` are the cross-encoder's."""
    records = records_of(examples)
    if records == "corpus":
        from polyrank.training.pretraining.objective import Pretraining

        return Pretraining()
    labels: Any = examples
    case = Case(
        architecture=architecture,
        records=records,
        has_classes=records == "pairs" and isinstance(labels[0].label, int),
        task=task,
        head=head,
    )
    return next(one for one in OBJECTIVES.values() if one.is_default(case))


def names_for(architecture: str, records: RecordKind | None = None) -> list[str]:
    """The names of the objectives of an architecture, or of those that take such records."""
    return [
        name
        for name, one in OBJECTIVES.items()
        if architecture in one.architectures and (records is None or records in one.records)
    ]


def without_effect(
    objective: ObjectiveConfig,
    chosen: Objective,
    architecture: str,
    presets: Mapping[str, Any] = MappingProxyType({}),
) -> list[str]:
    """The names of settings that were changed and have no effect on the chosen objective.

    `presets` are those of a recipe, by name.
    """
    own = {field.name for settings in SETTINGS for field in dataclasses.fields(settings)}
    return [
        field.name
        for field in dataclasses.fields(objective)
        if field.name in own
        and getattr(objective, field.name) != presets.get(field.name, field.default)
        and not chosen.uses(field.name, architecture)
    ]
