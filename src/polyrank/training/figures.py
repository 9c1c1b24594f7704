"""The dev figures of a run: which there are, which of them chooses, and how they are measured."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
from torch import Tensor

from polyrank.errors import DataError, UsageError, nearest
from polyrank.evaluation.pairs import evaluate_pairs, has_classes, pair_metrics
from polyrank.evaluation.ranking import evaluate
from polyrank.models.base import Model
from polyrank.records import Example, LabelledPair
from polyrank.tokens.batching import in_order
from polyrank.training import losses
from polyrank.training.config import RANKING, TrainingConfig
from polyrank.training.objectives.batches import Item
from polyrank.training.objectives.registry import Setup
from polyrank.training.objectives.two_tower import PairClassification

Measure = Callable[[Model], dict[str, float]]
Records = Sequence[Example] | Sequence[LabelledPair]
AT_ONCE = 256


def measure_of(setup: Setup, dev: Records, config: TrainingConfig) -> tuple[Measure, str]:
    """The function that measures the dev figures, and the name of the one that chooses.

    Raises UsageError for a metric that the dev data cannot give, DataError for dev examples
    without candidates.
    """
    if not dev:
        if config.schedule == "plateau":
            raise UsageError(
                "schedule = plateau needs dev data.", "Give --dev, or choose another schedule."
            )
        return nothing, "none"
    if isinstance(dev[0], LabelledPair):
        return of_pairs(setup, cast("Sequence[LabelledPair]", dev), config)
    return of_examples(cast("Sequence[Example]", dev), config)


def nothing(model: Model) -> dict[str, float]:
    """No figures, for a run without dev data."""
    return {}


def of_examples(dev: Sequence[Example], config: TrainingConfig) -> tuple[Measure, str]:
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

    return measure, metric


def of_pairs(
    setup: Setup, dev: Sequence[LabelledPair], config: TrainingConfig
) -> tuple[Measure, str]:
    """Correlations of scored pairs, accuracy of classes."""
    task = getattr(setup.module.model.config, "task", None)
    own_classifier = isinstance(setup.module, PairClassification)
    classes = has_classes(dev) and (own_classifier or task == "classify")
    known = ("accuracy",) if classes else ("spearman", "pearson")
    metric = config.metric or known[0]
    if metric not in known:
        raise UsageError(
            f"metric = {metric}, which the dev pairs cannot give.", nearest(metric, known)
        )

    def measure(model: Model) -> dict[str, float]:
        if classes and own_classifier:
            return pair_metrics(classify(setup, dev), dev)
        ranker: Any = model
        return evaluate_pairs(ranker, dev)

    return measure, metric


@torch.no_grad()
def classify(setup: Setup, pairs: Sequence[LabelledPair]) -> Tensor:
    """The logits of the classifier that is trained beside a bi-encoder: (n, L), on the CPU."""
    module: Any = setup.module
    logits = []
    for start in range(0, len(pairs), AT_ONCE):
        numbered = [Item(place, one) for place, one in enumerate(pairs[start:][:AT_ONCE])]
        step = move(setup.collator(numbered), module.model.device)
        encoded = {
            part: in_order([module.encode(part, batch) for batch in step[part]], step[part])
            for part in module.parts
        }
        u = encoded["contexts"][step["first"], 0]  # (n, d)
        v = encoded["candidates"][step["second"]]  # (n, d)
        features = losses.concatenated(u, v, module.settings.concatenation)
        logits.append(module.classifier(features).float().cpu())
    return torch.cat(logits)


def move(value: Any, device: torch.device) -> Any:
    """A step on a device."""
    if isinstance(value, Tensor):
        return value.to(device)
    if isinstance(value, dict):
        return {name: move(item, device) for name, item in value.items()}
    return [move(item, device) for item in value] if isinstance(value, list) else value
