"""From a model and the pairs of a corpus to what is trained: objective, batches, figures."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from polyrank.errors import UsageError
from polyrank.models.base import Model
from polyrank.models.bi_encoder import BiEncoder
from polyrank.pretraining.pairs import Pair
from polyrank.tokens.masking import Masking
from polyrank.training.config import TrainingConfig
from polyrank.training.figures import Measure
from polyrank.training.objectives.batches import TrainingSet
from polyrank.training.objectives.registry import ObjectiveConfig, Setup
from polyrank.training.pretraining.collator import PretrainingCollator, document
from polyrank.training.pretraining.corpora import CorpusPairs
from polyrank.training.pretraining.held_out import measure_of_corpus
from polyrank.training.pretraining.objective import Pretraining

COUNTED = 2000
"""Pairs whose tokens are counted, for the prediction of masked ones to begin with."""


def build_pretraining(
    model: Model, records: CorpusPairs, objective: ObjectiveConfig, training: TrainingConfig
) -> tuple[Setup, Measure, str]:
    """What a run trains and measures, and the name of the figure that chooses.

    Raises UsageError for a model that is no bi-encoder, or for settings of another run;
    ModelError for a tokeniser that cannot mask.
    """
    if not isinstance(model, BiEncoder):
        raise UsageError(
            f"Pre-training takes a bi-encoder, not the architecture {model.architecture}.",
            "Pre-train a bi-encoder; the others can start from it.",
        )
    if training.schedule == "plateau" or training.metric is not None:
        raise UsageError(
            "Pre-training has neither schedule = plateau nor a metric to choose.",
            "Choose another schedule, and leave out the metric.",
        )
    config = records.config
    masking = Masking(model.tokenizer.pretrained, records.masking) if records.masks else None
    budget = training.train_batch_tokens
    collator = PretrainingCollator(model, config, masking, budget, training.seed)
    tokens = some_tokens(model, records if records.masks else [])
    module = Pretraining(model, objective, tokens=tokens, seed=training.seed)
    measure, metric = measure_of_corpus(module, collator, records)
    dataset = TrainingSet(records)
    setup = Setup(objective="in_batch_softmax", module=module, collator=collator, dataset=dataset)
    return setup, measure, metric


def some_tokens(model: BiEncoder, records: Sequence[Pair]) -> Tensor:
    """The token ids of the first `COUNTED` pairs of a run, one after the other."""
    texts = [text for pair in records[:COUNTED] for text in (pair.first, document(pair))]
    rows = model.tokenizer.encode_turns(texts)
    return torch.tensor([token for row in rows for token in row], dtype=torch.int64)
