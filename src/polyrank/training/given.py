"""Turns the arguments of `train` into a run: settings from keywords, records from data of any kind.
Knows nothing of how a run works.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from polyrank.config import with_keywords
from polyrank.data.loading import Data, load_examples, load_records
from polyrank.data.memory import is_streamed, name_of
from polyrank.errors import UsageError
from polyrank.models.base import Model
from polyrank.progress import Say
from polyrank.records import Example, LabelledPair
from polyrank.training.config import TrainingConfig
from polyrank.training.config import without_effect as idle_in_training
from polyrank.training.dev_data import NumCandidates, dev_examples, dev_for
from polyrank.training.dev_evaluation import Dev
from polyrank.training.model_card import Provenance
from polyrank.training.objectives.registry import ObjectiveConfig, objective_for
from polyrank.training.objectives.registry import without_effect as idle_in_objective
from polyrank.training.pretraining.corpora import CorpusPairs
from polyrank.training.result import Run

ELSEWHERE: Mapping[str, str] = MappingProxyType(
    {
        "lr": "learning_rate",
        "num_epochs": "epochs",
        "num_train_epochs": "epochs",
        "per_device_train_batch_size": "batch_size",
        "train_batch_size": "batch_size",
        "optimizer": "optimiser",
        "lr_scheduler_type": "schedule",
        "scheduler": "schedule",
        "warmup_ratio": "warmup",
        "warmup_steps": "warmup",
        "loss": "objective",
        "train_objectives": "objective",
        "evaluator": "dev",
        "eval_dataset": "dev",
        "evaluation_steps": "evaluations",
        "eval_steps": "evaluations",
        "output_dir": "output",
        "output_path": "output",
    }
)
"""What other libraries call a setting, and what it is called here."""


def run_of(
    model: Model,
    examples: Data | CorpusPairs,
    output: str | Path,
    config: TrainingConfig | None,
    *,
    objective: ObjectiveConfig | str | None,
    dev: Data | None,
    dev_candidates: NumCandidates,
    teacher: Model | Sequence[Model] | None,
    tensorboard: str | Path | None,
    provenance: Provenance,
    settings: Mapping[str, Any],
    say: Say,
) -> Run:
    """The run that arguments of `train` ask for. Raises UsageError, DataError."""
    config, objective = settings_of("train()", config, objective, settings)
    records = examples_of(examples, config, say)
    return Run(
        model=model,
        examples=records,
        dev=dev_of(dev, dev_candidates, model.architecture, config.seed, say),
        output=Path(output),
        config=config,
        objective=objective,
        teachers=teachers_of(teacher),
        provenance=replace(
            provenance,
            base=provenance.base or model.hub_id or (str(model.path) if model.path else None),
            train=provenance.train or name_of(examples),
            dev=provenance.dev or name_of(dev),
        ),
        tensorboard=None if tensorboard is None else Path(tensorboard),
    )


def settings_of(
    where: str,
    config: TrainingConfig | None,
    objective: ObjectiveConfig | str | None,
    settings: Mapping[str, Any],
) -> tuple[TrainingConfig, ObjectiveConfig]:
    """Both settings objects, with the keywords put in. Raises UsageError."""
    require_settings("config", config, TrainingConfig)
    settings, objective = objective_given(objective, settings)
    made = with_keywords(
        where,
        settings,
        elsewhere=ELSEWHERE,
        config=TrainingConfig if config is None else config,
        objective=ObjectiveConfig if objective is None else objective,
    )
    return made["config"], made["objective"]


def idle_settings(run: Run, names: Iterable[str]) -> list[str]:
    """A sentence for each of some settings that has no effect beside the others of the run."""
    if isinstance(run.examples, CorpusPairs):
        return []
    chosen = objective_for(run.model, run.examples, run.objective)
    idle = {
        name: f"with {cause} = {value}"
        if (value := getattr(run.config, cause)) is not None
        else f"without {cause}"
        for name, cause in idle_in_training(run.config).items()
    }
    for name in idle_in_objective(run.objective, chosen, run.model.architecture):
        idle[name] = f"with the objective {chosen.name}"
    if not run.dev:
        idle["metric"] = "with no dev data"
    return [f"{name} has no effect {idle[name]}." for name in names if name in idle]


def objective_given(
    objective: ObjectiveConfig | str | None, settings: Mapping[str, Any]
) -> tuple[dict[str, Any], ObjectiveConfig | None]:
    """Keywords that hold the name of an objective, where that is all that was given of it."""
    if isinstance(objective, str):
        return {**settings, "objective": objective}, None
    require_settings("objective", objective, ObjectiveConfig)
    return dict(settings), objective


def examples_of(
    examples: Data | CorpusPairs, config: TrainingConfig, say: Say
) -> Sequence[Example] | Sequence[LabelledPair] | CorpusPairs:
    """The records to train on; of a stream, as many as the steps need. Raises DataError."""
    if isinstance(examples, CorpusPairs):
        return examples
    limit = None
    if is_streamed(examples):
        needed = "max_steps · batch_size" if config.max_steps else "all"
        limit = config.max_steps * config.batch_size if config.max_steps else None
        words = "all examples" if limit is None else f"the first {limit:,} examples ({needed})"
        say(f"The examples come one by one: reading {words}.")
    return load_examples(examples, limit=limit, say=say)


def dev_of(
    dev: Data | None, num_candidates: NumCandidates, architecture: str, seed: int, say: Say
) -> Dev:
    """The dev records as the architecture takes them. Raises DataError."""
    if dev is None or (isinstance(dev, Sequence) and not dev):
        return []
    records = load_records(dev, say=say, name="dev")
    drawn = dev_examples(records, num_candidates, seed=seed, say=say)
    return dev_for(drawn, architecture, num_candidates, seed=seed, say=say)


def teachers_of(teacher: Model | Sequence[Model] | None) -> tuple[Model, ...]:
    """One teacher, several or none, as a tuple. Raises UsageError for what is not a model."""
    if teacher is None:
        return ()
    teachers = tuple(teacher) if isinstance(teacher, (list, tuple)) else (teacher,)
    for one in teachers:
        require_model(one, "teacher")
    return teachers


def require_model(model: object, name: str) -> None:
    """Raise UsageError for what is not a model, such as its path."""
    if not isinstance(model, Model):
        got = f"the text {model!r}" if isinstance(model, str) else f"a {type(model).__name__}"
        raise UsageError(
            f"{name} must be a bi-, poly- or cross-encoder, got {got}.",
            "Load one first, for example with BiEncoder.from_pretrained(path).",
        )


def require_settings(name: str, given: object, cls: type) -> None:
    """Raise UsageError for what is not an instance of a settings class."""
    if given is not None and not isinstance(given, cls):
        raise UsageError(
            f"{name} must be of the type {cls.__name__}, got a {type(given).__name__}.",
            f"Give the settings as keywords, or {name}={cls.__name__}(…).",
        )
