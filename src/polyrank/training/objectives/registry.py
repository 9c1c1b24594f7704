"""What a model is trained for: the objective and its settings. Needs no torch.

Knows which objective suits which architecture and records; knows nothing of how it is computed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

from polyrank.config import require
from polyrank.errors import UsageError
from polyrank.records import Example, LabelledPair
from polyrank.training.config import TrainingConfig

if TYPE_CHECKING:
    from torch.utils.data import Dataset

    from polyrank.models.base import Model
    from polyrank.training.objectives.module import TrainingModule

    Collator = Callable[[Sequence[Any]], dict[str, Any]]

ObjectiveName = Literal[
    "in_batch_softmax",
    "triplet",
    "regression",
    "classification",
    "cosent",
    "listwise",
    "binary",
    "margin_mse",
    "kl",
]
Records = Literal["examples", "pairs"]
Concatenation = Literal["u,v", "|u-v|", "u*v", "|u-v|,u*v", "u,v,u*v", "u,v,|u-v|", "u,v,|u-v|,u*v"]


@dataclass(frozen=True, kw_only=True)
class ObjectiveConfig:
    """What is minimised."""

    objective: Literal[
        "auto",
        "in_batch_softmax",
        "triplet",
        "regression",
        "classification",
        "cosent",
        "listwise",
        "binary",
        "margin_mse",
        "kl",
    ] = "auto"
    """The loss. By itself: on examples, `in_batch_softmax` for bi, poly and a cross with head =
    interaction, and `listwise` for other cross-encoders; on labelled pairs, `classification` of
    whole numbers and `cosent` of scores for bi and poly, and what its task says for cross. A
    teacher's scores count only for `margin_mse`, `kl`."""
    symmetric: bool = False
    """`in_batch_softmax` also ranks the contexts for each response; the two losses are averaged."""
    logq: bool = False
    """`in_batch_softmax` lowers a candidate's score by the logarithm of its frequency in the
    training set, so that frequent responses are not punished for being frequent negatives."""
    extra_negatives: int = 0
    """Wrong responses drawn from the training set for each context of `in_batch_softmax`; like an
    example's own negatives, they are negatives of every context of the step."""
    margin: float = 1.0
    """How much farther a negative must be than the response for `triplet`, in Euclidean terms."""
    concatenation: Concatenation = "u,v,|u-v|"
    """What the classifier of `classification` sees of the two vectors of a pair, for bi."""
    scale: float = 20.0
    """`cosent` multiplies the differences of cosines with it."""
    distillation_temperature: float = 1.0
    """`kl`, and `in_batch_softmax` with a teacher, divide the scores of both by it."""
    teacher_share: float = 0.5
    """With a teacher in the batch: the share of what it says of all candidates of the step in the
    loss of `in_batch_softmax`; the rest is that of the right response."""
    gradient_cache: Literal["auto", "always", "never"] = "auto"
    """Encode a step twice, first without gradients, so that its memory is that of one pass
    through the encoder. `auto` does so where a step would need much of the memory there is."""

    def __post_init__(self) -> None:
        require(self.extra_negatives >= 0, "extra_negatives", "0 or more", self.extra_negatives)
        for name in ("margin", "scale", "distillation_temperature"):
            require(getattr(self, name) > 0, name, "positive", getattr(self, name))
        share = self.teacher_share
        require(0 < share <= 1, "teacher_share", "above 0 and at most 1", share)


RECORDS: dict[ObjectiveName, tuple[Records, ...]] = {
    "in_batch_softmax": ("examples",),
    "triplet": ("examples",),
    "listwise": ("examples",),
    "binary": ("examples", "pairs"),
    "margin_mse": ("examples",),
    "kl": ("examples",),
    "regression": ("pairs",),
    "classification": ("pairs",),
    "cosent": ("pairs",),
}
"""The records that each objective is trained on."""

OBJECTIVES: dict[str, tuple[ObjectiveName, ...]] = {
    "bi": (
        "in_batch_softmax",
        "triplet",
        "regression",
        "classification",
        "cosent",
        "margin_mse",
        "kl",
    ),
    "poly": ("in_batch_softmax", "regression", "cosent", "margin_mse", "kl"),
    "cross": (
        "listwise",
        "in_batch_softmax",
        "binary",
        "classification",
        "regression",
        "margin_mse",
        "kl",
    ),
}
"""The objectives of each architecture."""

TASKS: dict[ObjectiveName, str] = {
    "in_batch_softmax": "rank",
    "listwise": "rank",
    "binary": "rank",
    "margin_mse": "rank",
    "kl": "rank",
    "classification": "classify",
    "regression": "regress",
}
"""The task that a cross-encoder must have for each of its objectives."""

ONLY_FOR: dict[str, tuple[ObjectiveName, ...]] = {
    "symmetric": ("in_batch_softmax",),
    "logq": ("in_batch_softmax",),
    "extra_negatives": ("in_batch_softmax",),
    "margin": ("triplet",),
    "concatenation": ("classification",),
    "scale": ("cosent",),
    "distillation_temperature": ("kl", "in_batch_softmax"),
    "teacher_share": ("in_batch_softmax",),
}
"""The objectives on which a setting has an effect, where these are not all."""


def records_of(examples: Sequence[Example] | Sequence[LabelledPair]) -> Records:
    """What the training set is made of, by its first record."""
    return "pairs" if examples and isinstance(examples[0], LabelledPair) else "examples"


def automatic(
    architecture: str,
    examples: Sequence[Example] | Sequence[LabelledPair],
    task: str | None = None,
    head: str | None = None,
) -> ObjectiveName:
    """The objective that `auto` stands for; `task` and `head` are the cross-encoder's."""
    if records_of(examples) == "examples":
        pairwise = architecture == "cross" and head != "interaction"
        return "listwise" if pairwise else "in_batch_softmax"
    by_task: dict[str | None, ObjectiveName] = {
        "rank": "binary",
        "classify": "classification",
        "regress": "regression",
    }
    if architecture == "cross" and task in by_task:
        return by_task[task]
    first: Any = examples[0]
    if isinstance(first.label, int):
        return "classification"
    return "regression" if architecture == "cross" else "cosent"


def chosen(
    config: ObjectiveConfig,
    architecture: str,
    examples: Sequence[Example] | Sequence[LabelledPair],
    task: str | None = None,
    head: str | None = None,
) -> ObjectiveName:
    """The objective of a run; `task` and `head` are the cross-encoder's, where they are known.

    Raises UsageError where it does not suit the architecture, its task or the records.
    """
    name = config.objective
    if name == "auto":
        name = automatic(architecture, examples, task, head)
    if name not in OBJECTIVES[architecture]:
        raise UsageError(
            f"The objective {name} cannot train the architecture {architecture}.",
            f"Choose one of {', '.join(OBJECTIVES[architecture])}.",
        )
    records = records_of(examples)
    if records not in RECORDS[name]:
        fitting = [one for one in OBJECTIVES[architecture] if records in RECORDS[one]]
        words = {"examples": "examples (context, response)", "pairs": "labelled pairs"}
        raise UsageError(
            f"The objective {name} needs {words[RECORDS[name][0]]}, got {words[records]}.",
            f"Choose one of {', '.join(fitting)}, or give other data.",
        )
    if architecture == "cross" and task is not None and task != TASKS[name]:
        raise UsageError(
            f"The objective {name} needs a cross-encoder with task = {TASKS[name]}, not {task}.",
            f"Give --task {TASKS[name]}, or choose an objective for {task}.",
        )
    if architecture == "cross" and name == "in_batch_softmax" and head not in (None, "interaction"):
        raise UsageError(
            "The objective in_batch_softmax needs a cross-encoder that can read texts apart, with "
            f"head = interaction, not {head}.",
            "Give --head interaction, or choose listwise.",
        )
    return name


def without_effect(
    config: ObjectiveConfig, objective: ObjectiveName, architecture: str
) -> list[str]:
    """The names of settings that were changed and have no effect on the objective."""
    names = []
    for field in dataclasses.fields(config):
        fitting = ONLY_FOR.get(field.name, get_args(ObjectiveName))
        unused = objective not in fitting
        unused |= field.name == "concatenation" and architecture != "bi"
        unused |= field.name == "symmetric" and architecture == "cross"
        if unused and getattr(config, field.name) != field.default:
            names.append(field.name)
    return names


@dataclass(frozen=True, kw_only=True)
class Setup:
    """What is trained, and on what: all that a trainer needs."""

    objective: ObjectiveName
    """Which one it is, where the settings said `auto`."""
    module: TrainingModule
    """Holds the model as `model`, and as its own parameters what is learnt beside the model."""
    collator: Collator
    """Records to a step."""
    dataset: Dataset[Any]
    """The records by their place; `set_epoch` changes what is drawn for them."""


def build(
    model: Model,
    examples: Sequence[Example] | Sequence[LabelledPair],
    objective: ObjectiveConfig,
    training: TrainingConfig,
    teacher: Model | None = None,
) -> Setup:
    """The objective of a run, its batches and its data set.

    A `teacher` scores all candidates of each step of a bi- or poly-encoder's in-batch softmax.
    Raises UsageError for an objective that does not suit the model or the kind of records,
    DataError for records that it cannot be trained on.
    """
    from polyrank.models.cross_encoder import CrossEncoder
    from polyrank.models.two_tower import TwoTower
    from polyrank.training.objectives.batches import TrainingSet
    from polyrank.training.objectives.checks import check_examples, check_pairs
    from polyrank.training.objectives.factory import for_cross, for_two_tower

    known: Any = examples
    reads_pairs = isinstance(model, CrossEncoder)
    kind = (model.config.task, model.config.head) if reads_pairs else (None, None)
    name = chosen(objective, model.config.architecture, examples, *kind)
    if records_of(examples) == "examples":
        check_examples(name, known, objective, training)
    else:
        limit = model.config.num_labels if isinstance(model, CrossEncoder) else None
        check_pairs(name, known, limit)
    if isinstance(model, CrossEncoder):
        module, collator = for_cross(model, name, known, objective, training)
    else:
        assert isinstance(model, TwoTower)
        module, collator = for_two_tower(model, name, known, objective, training, teacher)
    return Setup(objective=name, module=module, collator=collator, dataset=TrainingSet(known))
