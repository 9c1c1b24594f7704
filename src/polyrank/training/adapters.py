"""Adapters (LoRA) for one run: put into the model before it, saved with it, merged after it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from polyrank.errors import UsageError
from polyrank.models.adapters.folders import find_bases
from polyrank.models.adapters.layers import attach, is_adapted, merge
from polyrank.models.base import Model
from polyrank.training.pretraining.corpora import CorpusPairs
from polyrank.training.result import Run


def attach_adapters(run: Run) -> None:
    """Give the run's model the adapters that its settings ask for; set the seed beforehand.

    Unless they are to be merged, the model will be saved as adapters. Raises UsageError where it
    cannot be, or has no layers for them, and MissingExtraError without peft.
    """
    config, model = run.config, run.model
    if config.lora_rank is None:
        return
    if isinstance(run.examples, CorpusPairs):
        raise UsageError(
            "lora_rank cannot be used to pre-train, which changes the whole encoder.",
            "Leave lora_rank out, and use it with `polyrank train`.",
        )
    rank = config.lora_rank
    alpha = 2.0 * rank if config.lora_alpha is None else config.lora_alpha
    bases = {} if config.lora_merge else find_bases(model)
    for base in bases.values():
        if Path(base.name).resolve() == run.output.resolve():
            raise UsageError(
                f"{run.output} holds the base of the adapter, which the model needs.",
                "Choose another output, or give lora_merge=True (--lora-merge).",
            )
    targets = config.lora_targets
    attach(model, rank=rank, alpha=alpha, dropout=config.lora_dropout, targets=targets)
    model.bases = bases


@contextmanager
def merging_adapters(model: Model) -> Iterator[None]:
    """Leave an ordinary model, however the block ends."""
    try:
        yield
    finally:
        if is_adapted(model):
            merge(model)
        model.bases = {}
