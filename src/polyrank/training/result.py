"""What a run is asked to do, and what it writes beside the model: its record, its log, its card.
Knows the facts of a run, not how they came about.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import nn

from polyrank._version import __version__
from polyrank.config import to_mapping
from polyrank.models.base import Model
from polyrank.models.hub.card import CARD, RECORD
from polyrank.records import Example, LabelledPair, RetrievalSet
from polyrank.training import processes
from polyrank.training.config import TrainingConfig
from polyrank.training.logs import LOG, by_number, log_text
from polyrank.training.model_card import Data, Provenance, model_card
from polyrank.training.objectives.objective import records_of
from polyrank.training.objectives.registry import ObjectiveConfig
from polyrank.training.pretraining.corpora import CorpusPairs

Records = Sequence[Example] | Sequence[LabelledPair] | CorpusPairs | RetrievalSet
UNKNOWN = Provenance()


@dataclass(frozen=True, kw_only=True, repr=False)
class TrainingResult:
    """What a run did; also written to `training.json` in the model folder."""

    output: Path
    """The folder of the trained model."""
    steps: int
    pairs: int
    seconds: float
    """Wall time of the steps, without evaluation and checkpoints."""
    best_step: int
    figures: dict[str, float]
    """The dev figures of the kept checkpoint; empty without dev data."""
    history: list[dict[str, float]]
    rescaling: list[float]
    """The factors by which the outputs of the encoders were multiplied at the start."""

    def __repr__(self) -> str:
        """A few lines for people."""
        lines = [
            f"Trained {self.steps:,} steps ({self.pairs:,} pairs) in {self.seconds:.1f} s.",
            f"The model of step {self.best_step:,} is in {self.output}.",
        ]
        lines += [f"  dev {name:<12} {value:.4f}" for name, value in self.figures.items()]
        return "\n".join(lines)


@dataclass(frozen=True, kw_only=True)
class Run:
    """What a run is asked to do."""

    model: Model
    examples: Sequence[Example] | Sequence[LabelledPair] | CorpusPairs
    output: Path
    config: TrainingConfig
    objective: ObjectiveConfig
    dev: Sequence[Example] | Sequence[LabelledPair] | RetrievalSet = ()
    teachers: tuple[Model, ...] = ()
    provenance: Provenance = UNKNOWN
    tensorboard: Path | None = None

    def texts(
        self, result: TrainingResult, module: nn.Module, identity: Mapping[str, Any]
    ) -> dict[str, str]:
        """The texts that are kept beside the model, by file name; `module` is what was trained."""
        parameters = parameter_counts(self.model, module)
        record = {
            **{name: value for name, value in vars(result).items() if name != "output"},
            "objective": self.objective.objective,
            "parameters": parameters,
            "num_examples": len(self.examples),
            "num_processes": processes.count(),
            "polyrank_version": __version__,
            "provenance": to_mapping(self.provenance),
            "identity": identity,
        }
        card = model_card(
            self,
            result,
            data=self.data(identity),
            parameters=parameters,
            hardware=hardware(self.model),
        )
        return {
            RECORD: json.dumps(record, indent=2) + "\n",
            LOG: log_text(result.history),
            CARD: card,
        }

    def data(self, identity: Mapping[str, Any]) -> list[Data]:
        """The records that were trained on and, if any, those that chose the checkpoint."""
        source = self.provenance
        named: list[tuple[str, str | None, str | None, Any, str]] = [
            ("training", source.train, source.share, self.examples, identity["examples"])
        ]
        if self.dev:
            named.append(("dev", source.dev, None, self.dev, identity["dev"]))
        return [
            Data(
                use=use,
                name=name,
                share=share,
                count=count_of(records),
                kind=kind_of(records),
                sha256=sha256,
            )
            for use, name, share, records, sha256 in named
        ]


def count_of(records: Records) -> int:
    """How many records there are; of a corpus that is searched, how many queries."""
    return len(records.queries) if isinstance(records, RetrievalSet) else len(records)


def parameter_counts(model: nn.Module, module: nn.Module) -> dict[str, int]:
    """The parameters of a model: all, and those trained and frozen, a shared one once each.

    `beside`: what was trained beside the model in `module` and is not kept.
    """
    own = {id(one) for one in model.parameters()}
    total = sum(one.numel() for one in model.parameters())
    trained = sum(one.numel() for one in model.parameters() if one.requires_grad)
    others = [one for one in module.parameters() if id(one) not in own]
    beside = sum(one.numel() for one in others)
    return {"total": total, "trained": trained, "frozen": total - trained, "beside": beside}


def kind_of(records: Records) -> str:
    """What the card calls some records."""
    if isinstance(records, RetrievalSet):
        return f"queries of {len(records.corpus):,} documents"
    if isinstance(records, CorpusPairs):
        return "pairs drawn from it"
    return "labelled pairs" if records_of(records) == "pairs" else "examples"


def summarise(state: Any, seconds: float, run: Run, rescaling: list[float]) -> TrainingResult:
    """The result of a finished run, from the trainer's state and what `encoders.prepare` did."""
    best_step = state.best_global_step or state.global_step
    evaluated = [
        entry
        for entry in state.log_history
        if entry["step"] == best_step and any(name.startswith("eval_") for name in entry)
    ]
    best: dict[str, float] = evaluated[-1] if evaluated else {}
    return TrainingResult(
        output=run.output,
        steps=state.global_step,
        pairs=state.global_step * run.config.batch_size,
        seconds=seconds,
        best_step=best_step,
        figures={
            name.removeprefix("eval_"): best[name]
            for name in sorted(best, key=by_number)
            if name.startswith("eval_")
        },
        history=state.log_history,
        rescaling=rescaling,
    )


def hardware(model: Model) -> dict[str, str]:
    """The hardware and software of the run."""
    device = model.device
    is_cuda = device.type == "cuda"
    name = torch.cuda.get_device_name(device) if is_cuda else processor()
    facts = {
        "device": f"{device.type}: {name}",
        "processes": str(processes.count()),
        "threads per process": str(torch.get_num_threads()),
        "precision": str(model.compute_dtype).removeprefix("torch."),
        "versions": f"polyrank {__version__}, torch {torch.__version__}, "
        f"transformers {transformers.__version__}",
    }
    if is_cuda:
        del facts["threads per process"]
    return facts


def processor() -> str:
    """The name of this machine's processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    found = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(found, "") or platform.processor() or platform.machine()
