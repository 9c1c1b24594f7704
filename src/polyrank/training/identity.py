"""The identity of a training run: everything that its result depends on. Knows nothing of how a run
works.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from polyrank.config import to_mapping
from polyrank.evaluation.tasks import RetrievalTask
from polyrank.folder_files import read_object
from polyrank.jobs import Job, digest_of
from polyrank.models.base import Model
from polyrank.models.hub.card import RECORD
from polyrank.records import Example, LabelledPair, RetrievalSet
from polyrank.training.config import TrainingConfig
from polyrank.training.dev_evaluation import Dev
from polyrank.training.model_card import Provenance
from polyrank.training.objectives.registry import ObjectiveConfig, objective_for
from polyrank.training.pretraining.corpora import CorpusPairs
from polyrank.training.result import UNKNOWN, Run

WORDS = {
    "architecture": "another architecture ({})",
    "training": "other settings",
    "objective": "another objective",
    "model": "another base or other settings of the model",
    "dtype": "another precision",
    "share": "another share of the training data ({})",
    "examples": "other training data",
    "dev": "other dev data",
    "teachers": "other teachers",
}
EVERYTHING = "100%"
DEFAULT = ObjectiveConfig()


def with_objective(run: Run) -> Run:
    """The run with the objective that `auto` stands for. Raises UsageError where none suits."""
    if isinstance(run.examples, CorpusPairs):  # their objective cannot be chosen
        return run
    chosen = objective_for(run.model, run.examples, run.objective)
    return replace(run, objective=replace(run.objective, objective=chosen.name))


def training_job(run: Run) -> Job:
    """The run as a job, with everything that its result depends on."""
    model = run.model
    identity = {
        "architecture": model.architecture,
        "training": to_mapping(run.config),
        "objective": to_mapping(run.objective),
        "model": model.classes_fingerprint(),
        "dtype": str(model.compute_dtype),
        "share": run.provenance.share or EVERYTHING,
        "examples": fingerprint_of(run.examples),
        "dev": fingerprint_of(run.dev),
    }
    if run.teachers:
        identity["teachers"] = sorted(teacher.fingerprint() for teacher in run.teachers)
    return Job(output=run.output, doing="training", noun="run", identity=identity, words=WORDS)


def fingerprint_of(examples: Dev | CorpusPairs) -> str:
    """The SHA-256 of records, in their order; for pairs of a corpus, of what they are drawn by."""
    if isinstance(examples, RetrievalSet):
        return RetrievalTask(data=examples).digest
    return examples.fingerprint if isinstance(examples, CorpusPairs) else digest_of(examples)


def finished(
    model: Model,
    examples: Sequence[Example] | Sequence[LabelledPair],
    output: str | Path,
    config: TrainingConfig,
    *,
    objective: ObjectiveConfig = DEFAULT,
    dev: Dev = (),
    provenance: Provenance = UNKNOWN,
) -> bool:
    """Whether `output` holds what `train` with these arguments would make."""
    output = Path(output)
    record = read_object(output / RECORD)
    if not record:
        return False
    run = Run(
        model=model,
        examples=examples,
        dev=dev,
        output=output,
        config=config,
        objective=objective,
        provenance=provenance,
    )
    same: bool = record.get("identity") == training_job(with_objective(run)).plain
    return same
