"""How a run evaluates its dev data: the loss, the other figures, and which of them chooses.

The dev loss is the objective's own, without dropout, of steps that are the same each time. It is
computed by one process alone, as the other figures are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import torch

from polyrank.errors import DataError, UsageError, nearest
from polyrank.evaluation.metric_names import NAME, NAMES, corpus_metrics
from polyrank.evaluation.pairs import evaluate_pairs, pair_figures
from polyrank.evaluation.ranking import TwoTowerRanker, evaluate_examples, metrics_of
from polyrank.evaluation.retrieval import evaluate_retrieval, judged, measures
from polyrank.models.base import Model
from polyrank.progress import watched
from polyrank.records import Example, LabelledPair, RetrievalSet
from polyrank.training.batches import Item, move
from polyrank.training.config import TrainingConfig
from polyrank.training.gather import alone
from polyrank.training.objectives.objective import LOSS, Evaluation
from polyrank.training.objectives.registry import Setup
from polyrank.training.step import precision_of

Records = Sequence[Example] | Sequence[LabelledPair]
Dev = Records | RetrievalSet


def evaluation_of(setup: Setup, dev: Dev, config: TrainingConfig) -> Evaluation | None:
    """How the model is evaluated: the dev loss, and the figures that its objective or the dev data
    have; None without dev data.

    The loss is left out where it cannot be computed on the dev data and nothing depends on it.
    Raises UsageError for a metric that the dev data cannot give, DataError for dev examples without
    candidates, or for dev data without the loss that chooses or that the plateau watches.
    """
    figures = figures_of(setup, dev, config)
    needs_loss = config.metric == LOSS or config.schedule == "plateau"
    if figures is None:
        if needs_loss:
            setting = "metric = loss" if config.metric == LOSS else "schedule = plateau"
            raise UsageError(
                f"{setting} needs dev data.", "Give --dev, or choose another schedule or metric."
            )
        return None
    try:
        records = list(dev.examples()) if isinstance(dev, RetrievalSet) else dev
        steps = setup.objective.dev_steps(setup.given, records)
    except DataError:
        if needs_loss:
            raise
        return figures
    if not steps:
        return figures
    return with_loss(figures, loss_of(setup, steps), config)


def figures_of(setup: Setup, dev: Dev, config: TrainingConfig) -> Evaluation | None:
    """The figures beside the loss, and the one that chooses by default; None without dev data."""
    if setup.evaluation is not None:
        return own_figures(setup.evaluation, config)
    if isinstance(dev, RetrievalSet):
        return of_corpus(setup.given.model, dev, config)
    if not dev:
        return None
    if isinstance(dev[0], LabelledPair):
        return of_pairs(setup, cast("Sequence[LabelledPair]", dev), config)
    return of_examples(cast("Sequence[Example]", dev), config)


def with_loss(figures: Evaluation, loss: Callable[[], float], config: TrainingConfig) -> Evaluation:
    """Some figures and the dev loss, which chooses where `metric` says so."""

    def measure(model: Model) -> dict[str, float]:
        return {LOSS: loss(), **figures.measure(model)}

    return Evaluation(measure, LOSS if config.metric == LOSS else figures.metric)


def loss_of(setup: Setup, steps: Sequence[Sequence[Any]]) -> Callable[[], float]:
    """The function that computes the loss of some steps: the mean over their records."""
    module, collator = setup.module, setup.collator

    @torch.no_grad()
    def measure() -> float:
        was_training = module.training
        module.eval()
        total, place = 0.0, 0
        with alone(), precision_of(module.model):
            for records in steps:
                items = [Item(place + row, record) for row, record in enumerate(records)]
                loss = module(**move(collator(items), module.model.device))
                total += float(loss) * len(records)
                place += len(records)
        module.train(was_training)
        return total / place

    return measure


def own_figures(evaluation: Evaluation, config: TrainingConfig) -> Evaluation:
    """The figures of an objective that brings its own dev data."""
    known = (evaluation.metric, LOSS)
    if config.metric is not None and config.metric not in known:
        raise UsageError(
            f"metric = {config.metric} is not a figure of this objective.",
            f"Choose one of {', '.join(known)}.",
        )
    return evaluation


def of_examples(dev: Sequence[Example], config: TrainingConfig) -> Evaluation:
    """recall@k, MRR and the metric asked for, of examples with candidates."""
    metric = asked(config) or "recall@1"
    if not NAME.fullmatch(metric):
        raise UsageError(
            f"metric = {metric} is for labelled pairs, but the dev data are examples to rank.",
            f"Choose {NAMES} or loss.",
        )
    metrics_of(dev, (), [metric])

    def measure(model: Model) -> dict[str, float]:
        ranker: Any = model
        shown = watched()
        return evaluate_examples(ranker, dev, metrics=[metric], show_progress_bar=shown).figures

    return Evaluation(measure, metric)


def of_corpus(model: Model, dev: RetrievalSet, config: TrainingConfig) -> Evaluation:
    """The figures of a corpus that every query searches, and the metric asked for."""
    metric = asked(config) or "ndcg@10"
    if not isinstance(model, TwoTowerRanker):
        raise UsageError(
            "The dev data are a corpus, which a cross-encoder cannot search.",
            "Give it examples with candidates, such as with_sampled_candidates draws.",
        )
    if not NAME.fullmatch(metric):
        raise UsageError(
            f"metric = {metric} is for labelled pairs, but the dev data are a corpus to search.",
            f"Choose {NAMES} or loss.",
        )
    metrics = corpus_metrics(others=[metric])
    measures(metrics)
    judged(dev)

    def measure(model: Model) -> dict[str, float]:
        searcher: Any = model
        shown = watched()
        return evaluate_retrieval(searcher, dev, metrics=metrics, show_progress_bar=shown).means()

    return Evaluation(measure, metric)


def of_pairs(setup: Setup, dev: Sequence[LabelledPair], config: TrainingConfig) -> Evaluation:
    """Correlations of scored pairs, accuracy and macro F1 of classes."""
    known = pair_figures(setup.module.model, dev)
    metric = asked(config) or known[0]
    if metric not in known:
        raise UsageError(
            f"metric = {metric}, which the dev pairs cannot give.", nearest(metric, (*known, LOSS))
        )

    def measure(model: Model) -> dict[str, float]:
        return evaluate_pairs(model, dev, show_progress_bar=watched())

    return Evaluation(measure, metric)


def asked(config: TrainingConfig) -> str | None:
    """The figure beside the loss that `metric` names, if it names one."""
    return None if config.metric == LOSS else config.metric
