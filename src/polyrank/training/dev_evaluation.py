"""How a run evaluates its dev data: which figures there are, and which of them chooses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from polyrank.errors import DataError, UsageError, nearest
from polyrank.evaluation.pairs import evaluate_pairs, has_classes, pair_metrics
from polyrank.evaluation.ranking import evaluate
from polyrank.models.base import Model
from polyrank.records import Example, LabelledPair
from polyrank.training.config import RANKING, TrainingConfig
from polyrank.training.objectives.classification import classify
from polyrank.training.objectives.objective import Evaluation
from polyrank.training.objectives.registry import Setup

Records = Sequence[Example] | Sequence[LabelledPair]


def evaluation_of(setup: Setup, dev: Records, config: TrainingConfig) -> Evaluation | None:
    """How the model is evaluated: as its objective says, or on dev data; None without them.

    Raises UsageError for a metric that the dev data cannot give, DataError for dev examples
    without candidates.
    """
    if setup.evaluation is not None:
        return setup.evaluation
    if not dev:
        if config.schedule == "plateau":
            raise UsageError(
                "schedule = plateau needs dev data.", "Give --dev, or choose another schedule."
            )
        return None
    if isinstance(dev[0], LabelledPair):
        return of_pairs(setup, cast("Sequence[LabelledPair]", dev), config)
    return of_examples(cast("Sequence[Example]", dev), config)


def of_examples(dev: Sequence[Example], config: TrainingConfig) -> Evaluation:
    """recall@k and MRR of examples with candidates."""
    metric = config.metric or "recall@1"
    bare = next((number for number, one in enumerate(dev, 1) if not one.candidates), None)
    if bare is not None:
        raise DataError(
            f"Dev example {bare} has no candidates to rank.",
            "Give each its candidates, or draw them with with_sampled_candidates.",
        )
    if not RANKING.fullmatch(metric):
        raise UsageError(
            f"metric = {metric} is for labelled pairs, but the dev data are examples to rank.",
            "Choose recall@K or mrr.",
        )
    fewest = min(len(example.candidates or ()) for example in dev)
    if metric.startswith("recall@") and int(metric.removeprefix("recall@")) > fewest:
        raise UsageError(
            f"metric = {metric}, but a dev example has only {fewest} candidates.",
            "Choose a smaller k, or mrr.",
        )

    def measure(model: Model) -> dict[str, float]:
        ranker: Any = model
        result = evaluate(ranker, dev, ks=config.ks)
        return {"mrr": result.mrr, **{f"recall@{k}": value for k, value in result.recall.items()}}

    return Evaluation(measure, metric)


def of_pairs(setup: Setup, dev: Sequence[LabelledPair], config: TrainingConfig) -> Evaluation:
    """Correlations of scored pairs, accuracy of classes."""
    classes = has_classes(dev) and setup.objective.task == "classify"
    known = ("accuracy",) if classes else ("spearman", "pearson")
    metric = config.metric or known[0]
    if metric not in known:
        raise UsageError(
            f"metric = {metric}, which the dev pairs cannot give.", nearest(metric, known)
        )

    def measure(model: Model) -> dict[str, float]:
        if classes and "classifier" in setup.module.heads:
            return pair_metrics(classify(setup.module, setup.collator, dev), dev)
        ranker: Any = model
        return evaluate_pairs(ranker, dev)

    return Evaluation(measure, metric)
