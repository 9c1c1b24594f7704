"""From a model, records and settings to what is trained: objective, batches, data set."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from polyrank.errors import UsageError
from polyrank.models.base import Model
from polyrank.models.cross_encoder import CrossEncoder
from polyrank.models.two_tower import TwoTower
from polyrank.records import Example
from polyrank.training.config import TrainingConfig
from polyrank.training.objectives.batches import (
    CrossCollator,
    CrossPairCollator,
    CrossTeacherCollator,
    OwnCandidatesCollator,
    TwoTowerCollator,
    TwoTowerPairCollator,
    log_frequencies,
    responses_of,
)
from polyrank.training.objectives.checks import num_classes
from polyrank.training.objectives.cross import (
    CrossDistillation,
    CrossInBatch,
    CrossLabelled,
    CrossRanking,
)
from polyrank.training.objectives.module import TrainingModule
from polyrank.training.objectives.registry import ObjectiveConfig, ObjectiveName, records_of
from polyrank.training.objectives.two_tower import (
    Distillation,
    GradedPairs,
    InBatchSoftmax,
    InBatchTeacher,
    PairClassification,
    Triplet,
)

Collator = Callable[[Sequence[Any]], dict[str, Any]]


def for_two_tower(
    model: TwoTower,
    name: ObjectiveName,
    known: Sequence[Any],
    settings: ObjectiveConfig,
    training: TrainingConfig,
    teacher: Model | None = None,
) -> tuple[TrainingModule, Collator]:
    """The objective of a bi- or poly-encoder, and its batches."""
    budget = training.train_batch_tokens
    if name == "in_batch_softmax":
        softmax = InBatchSoftmax(model, settings)
        if teacher is not None:
            reads_apart = CrossInBatch if isinstance(teacher, CrossEncoder) else InBatchSoftmax
            check_teacher(teacher)
            softmax.teacher = InBatchTeacher(reads_apart(teacher, ObjectiveConfig()))
        return softmax, in_batch(model, known, settings, training, teacher)
    if name == "triplet":
        return Triplet(model, settings), OwnCandidatesCollator(model, budget)
    if name in ("margin_mse", "kl"):
        distillation = Distillation(model, settings, margins=name == "margin_mse")
        return distillation, OwnCandidatesCollator(model, budget)
    pairs = TwoTowerPairCollator(model, budget)
    if name == "classification":
        labels = num_classes(known)
        return (
            PairClassification(model, settings, num_labels=labels, seed=training.seed),
            pairs,
        )
    return GradedPairs(model, settings, ordered=name == "cosent"), pairs


def in_batch(
    model: TwoTower | CrossEncoder,
    known: Sequence[Example],
    settings: ObjectiveConfig,
    training: TrainingConfig,
    teacher: Any = None,
) -> Collator:
    """The batches of the in-batch softmax."""
    extra, pool = settings.extra_negatives, responses_of(known)
    return TwoTowerCollator(
        model,
        training.train_batch_tokens,
        pool=pool,
        extra_negatives=extra,
        seed=training.seed,
        log_frequencies=log_frequencies(known, pool, extra) if settings.logq else None,
        teacher=teacher,
    )


def check_teacher(teacher: Model) -> None:
    """Raise UsageError for a cross-encoder that must read every pair of a step together."""
    if isinstance(teacher, CrossEncoder) and not teacher.reads_texts_apart:
        raise UsageError(
            "A teacher of whole steps must read texts apart: a bi- or poly-encoder, or a "
            f"cross-encoder with head = interaction, not {teacher.config.head}.",
            "Choose such a teacher, or let it score pairs beforehand, without --in-batch.",
        )


def for_cross(
    model: CrossEncoder,
    name: ObjectiveName,
    known: Sequence[Any],
    settings: ObjectiveConfig,
    training: TrainingConfig,
) -> tuple[TrainingModule, Collator]:
    """The objective of a cross-encoder, and its batches."""
    budget = training.train_batch_tokens
    if name == "in_batch_softmax":
        return CrossInBatch(model, settings), in_batch(model, known, settings, training)
    if name in ("margin_mse", "kl"):
        distillation = CrossDistillation(model, settings, margins=name == "margin_mse")
        return distillation, CrossTeacherCollator(model, budget)
    if records_of(known) == "pairs":
        return CrossLabelled(model, settings, name=name), CrossPairCollator(model, budget)
    collator = CrossCollator(model, known, training.num_negatives, budget, training.seed)
    return CrossRanking(model, settings, binary=name == "binary"), collator
