"""What a run leaves in the model folder beside the model: its record, its log, its card.

Knows the facts of a run; knows nothing of how they came about.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
import transformers
from torch import nn

from polyrank._version import __version__
from polyrank.config import to_mapping
from polyrank.models.base import Model
from polyrank.training.config import TrainingConfig
from polyrank.training.figures import Records
from polyrank.training.logs import LOG, by_number, log_text
from polyrank.training.model_card import CARD, Card, Data, Provenance, processor
from polyrank.training.objectives.registry import ObjectiveConfig, records_of
from polyrank.training.pretraining.corpora import CorpusPairs
from polyrank.training.processes import count

RECORD = "training.json"


@dataclass(frozen=True, kw_only=True)
class TrainingResult:
    """What a run did; also written to `training.json` in the model folder."""

    steps: int
    pairs: int
    seconds: float
    """Wall time of the steps alone; evaluation and checkpoints are not in it."""
    best_step: int
    figures: dict[str, float]
    """Of the dev examples, by the kept checkpoint; empty without dev examples."""
    history: list[dict[str, float]]


@dataclass(frozen=True, kw_only=True)
class Run:
    """What a run was asked to do."""

    name: str
    model: Model
    module: nn.Module
    examples: Records | CorpusPairs
    dev: Records
    config: TrainingConfig
    objective: ObjectiveConfig
    provenance: Provenance
    identity: Mapping[str, Any]

    def texts(self, result: TrainingResult) -> dict[str, str]:
        """The texts that stand beside the model, by file name."""
        record = {
            **vars(result),
            "num_examples": len(self.examples),
            "num_processes": count(),
            "polyrank_version": __version__,
            "provenance": to_mapping(self.provenance),
            "identity": self.identity,
        }
        return {
            RECORD: json.dumps(record, indent=2) + "\n",
            LOG: log_text(result.history),
            CARD: self.card(result).text(),
        }

    def card(self, result: TrainingResult) -> Card:
        """The facts of the model card."""
        model, source = self.model, self.provenance
        trained = [one for one in self.module.parameters() if one.requires_grad]
        return Card(
            name=self.name,
            architecture=model.config.architecture,
            task=getattr(model.config, "task", "rank"),
            provenance=source,
            train=data(source.train, self.examples, self.identity["examples"]),
            dev=data(source.dev, self.dev, self.identity["dev"]) if self.dev else None,
            model=to_mapping(model.config),
            objective=to_mapping(self.objective),
            training=to_mapping(self.config),
            figures=result.figures,
            steps=result.steps,
            best_step=result.best_step,
            seconds=result.seconds,
            num_parameters=sum(one.numel() for one in model.parameters()),
            num_trained=sum(one.numel() for one in trained),
            hardware=hardware(model),
        )


def data(name: str | None, records: Records | CorpusPairs, sha256: str) -> Data:
    """One set of records, as the card names it."""
    if isinstance(records, CorpusPairs):
        kind = "pairs drawn from it"
    else:
        kind = "labelled pairs" if records_of(records) == "pairs" else "examples"
    return Data(name=name, count=len(records), kind=kind, sha256=sha256)


def summarise(state: Any, seconds: float, config: TrainingConfig) -> TrainingResult:
    """The result of a finished run, from the trainer's state."""
    best_step = state.best_global_step or state.global_step
    evaluated = [
        entry
        for entry in state.log_history
        if entry["step"] == best_step and any(name.startswith("eval_") for name in entry)
    ]
    best: dict[str, float] = evaluated[-1] if evaluated else {}
    return TrainingResult(
        steps=state.global_step,
        pairs=state.global_step * config.batch_size,
        seconds=seconds,
        best_step=best_step,
        figures={
            name.removeprefix("eval_"): best[name]
            for name in sorted(best, key=by_number)
            if name.startswith("eval_")
        },
        history=state.log_history,
    )


def hardware(model: Model) -> dict[str, str]:
    """What the run was computed on, and with which versions."""
    device = model.device
    is_cuda = device.type == "cuda"
    name = torch.cuda.get_device_name(device) if is_cuda else processor()
    number = count()
    facts = {
        "device": f"{device.type}: {name}",
        "processes": str(number),
        "threads a process": str(torch.get_num_threads()),
        "precision": str(model.compute_dtype).removeprefix("torch."),
        "versions": f"polyrank {__version__}, torch {torch.__version__}, "
        f"transformers {transformers.__version__}",
    }
    if is_cuda:
        del facts["threads a process"]
    return facts
