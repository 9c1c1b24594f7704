"""One training run: from a new model and examples to a trained model folder.

A run is a job (`polyrank.jobs`) that works in a hidden folder beside its output:

    job.json         everything that the result depends on
    log.jsonl        what has been logged, for whoever wants to look on
    checkpoint-N/    the state after step N; its `trainer_state.json` is written last

Knows nothing of the command line.
"""

from __future__ import annotations

import gc
import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from polyrank.config import to_mapping
from polyrank.errors import UsageError
from polyrank.evaluation.tasks import RetrievalTask
from polyrank.jobs import Job, differences, digest_of, working
from polyrank.models.base import Model
from polyrank.models.folder import DESCRIPTION
from polyrank.progress import Say, silent
from polyrank.records import Example, LabelledPair, RetrievalSet
from polyrank.runtime import set_seed
from polyrank.storage import require_replaceable
from polyrank.training import processes
from polyrank.training.config import TrainingConfig
from polyrank.training.dev_evaluation import Dev, evaluation_of
from polyrank.training.encoders import freeze, prepare
from polyrank.training.logs import LOG, JsonLog, ProgressLog, StepClock, TensorBoardLog
from polyrank.training.model_card import Provenance
from polyrank.training.objectives.objective import Evaluation
from polyrank.training.objectives.registry import ObjectiveConfig, Setup, build, objective_for
from polyrank.training.pretraining.corpora import CorpusPairs
from polyrank.training.result import RECORD, UNKNOWN, Run, TrainingResult, summarise
from polyrank.training.trainer import RankingTrainer, training_arguments

STATE = "trainer_state.json"
WORDS = {
    "architecture": "another architecture ({})",
    "training": "other settings",
    "objective": "another objective",
    "model": "another base or other settings of the model",
    "dtype": "another precision",
    "share": "another share of the training data ({})",
    "examples": "other training data",
    "dev": "other dev data",
    "teacher": "another teacher",
}
EVERYTHING = "100%"
DEFAULT = ObjectiveConfig()


def train(
    model: Model,
    examples: Sequence[Example] | Sequence[LabelledPair] | CorpusPairs,
    output: str | Path,
    config: TrainingConfig,
    *,
    objective: ObjectiveConfig = DEFAULT,
    dev: Dev = (),
    restart: bool = False,
    say: Say = silent,
    provenance: Provenance = UNKNOWN,
    tensorboard: Path | None = None,
    teacher: Model | None = None,
) -> TrainingResult:
    """Train `model` in place on `examples` and save it to the folder `output`.

    `dev` examples, which need candidates, labelled pairs, or a corpus that bi- and poly-encoders
    search, choose the best checkpoint; without them the last is kept. The pairs of a corpus bring
    held-out ones of their own. Precision is the model's `compute_dtype`: bfloat16 runs the encoders
    in mixed precision, with float32 weights. An interrupted run resumes when it is started again
    with the same settings. `provenance` is for the model card; its share is part of the run's
    identity. `tensorboard` is a folder for its events. A `teacher` scores all candidates of each
    step beside the model (see `ObjectiveConfig.teacher_share`); it is not changed.

    Under torchrun, every process calls it with the same arguments and gets the same model and
    result; the first speaks, evaluates and saves. Raises UsageError where another run works on the
    same output or an unfinished run with other settings is in the way (unless `restart`), DataError
    for too few examples, TrainingError for a loss that is not finite or has diverged, StorageError
    if the disk refuses.
    """
    run = Run(
        model=model,
        examples=examples,
        dev=dev,
        output=Path(output),
        config=config,
        objective=objective,
        teacher=teacher,
        provenance=provenance,
        tensorboard=tensorboard,
    )
    say = say if processes.is_first() else silent
    processes.connect(model.device.type)
    with processes.explaining_lost_processes():
        with processes.sharing_errors():
            require_replaceable(run.output, DESCRIPTION, "a model")
            check_batches(len(examples), config)
            run = with_objective(run)
            job = training_job(run)  # before the model gets what the objective adds to it
            set_seed(config.seed)
            setup = build(model, examples, config, run.objective, teacher)
            evaluation = evaluation_of(setup, dev, config)
        for note in setup.notes:
            say(note)
        require_agreement(job)
        with resuming(job, restart) as checkpoint:
            result = fit(run, setup, evaluation, job.work, checkpoint, say)
            setup.module.finish()
            texts = run.texts(result, setup.module, job.identity)
            processes.run_on_first(lambda: model.save_pretrained(run.output, extra=texts))
            freeze(model, "all")
    gc.collect()  # the trainer refers to itself, and its optimiser is twice the size of the model
    return result


def fit(
    run: Run,
    setup: Setup,
    evaluation: Evaluation | None,
    folder: Path,
    checkpoint: Path | None,
    say: Say,
) -> TrainingResult:
    """Train from the start or from a checkpoint; the model ends as the best checkpoint has it.

    Checkpoints and the log are kept in `folder`.
    """
    model, config = run.model, run.config
    with processes.sharing_errors():
        factors = prepare(model, config, run.examples, say)
        clock = StepClock()
        metric = None if evaluation is None else evaluation.metric
        progress = ProgressLog(say, clock, config.batch_size, metric)
        callbacks: list[TrainerCallback] = [clock, progress, JsonLog(folder / LOG)]
        if run.tensorboard is not None:
            callbacks.append(TensorBoardLog(run.tensorboard / run.output.name))
        arguments = training_arguments(
            config,
            folder=folder,
            device=model.device,
            num_examples=len(run.examples),
            evaluation=evaluation,
        )
        trainer = RankingTrainer(
            setup,
            config,
            arguments,
            evaluation=evaluation,
            shuffle=not isinstance(run.examples, CorpusPairs),  # which come shuffled
            callbacks=callbacks,
        )
    if checkpoint is not None:
        say(f"Resuming after step {step_of(checkpoint)} of {arguments.max_steps}.")
    trainer.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))
    model.eval()
    return summarise(trainer.state, clock.seconds, config, factors)


def with_objective(run: Run) -> Run:
    """The run with the objective that `auto` stands for. Raises UsageError where none suits."""
    if isinstance(run.examples, CorpusPairs):  # their objective cannot be chosen
        return run
    chosen = objective_for(run.model, run.examples, run.objective)
    return replace(run, objective=replace(run.objective, objective=chosen.name))


def training_job(run: Run) -> Job:
    """The run as a job, with everything that its result depends on."""
    model, teacher = run.model, run.teacher
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
    if teacher is not None:
        identity["teacher"] = teacher.fingerprint()
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
    try:
        record = json.loads((output / RECORD).read_text(encoding="utf-8"))
    except (OSError, ValueError):
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


def check_batches(num_examples: int, config: TrainingConfig) -> None:
    """Refuse steps that cannot be divided among the processes. Raises UsageError."""
    number = processes.count()
    if config.batch_size % number:
        raise UsageError(
            f"batch_size = {config.batch_size} cannot be divided among {number} processes.",
            f"Choose a multiple of {number}; it is the size of the whole step.",
        )
    if number > 1 and num_examples < config.batch_size:
        raise UsageError(
            f"{number} processes need whole steps of batch_size = {config.batch_size}, but there "
            f"are only {num_examples} examples.",
            "Choose a smaller batch_size, or train with one process.",
        )


def require_agreement(job: Job) -> None:
    """Raise UsageError unless all processes are about to do the same run."""
    identities: list[dict[str, Any]] = processes.gather_objects(job.plain)
    for number, identity in enumerate(identities):
        if identity != identities[0]:
            first = replace(job, identity=identities[0])
            raise processes.said_once(
                UsageError(
                    f"The processes do not agree on the run: process {number} has "
                    f"{differences(first, {'identity': identity})} than process 0.",
                    "Give every process the same files, base and settings.",
                )
            )


@contextmanager
def resuming(job: Job, restart: bool) -> Iterator[Path | None]:
    """Hold the job's folder in the first process; gives all the last checkpoint of the same run."""
    with ExitStack() as held:

        def hold() -> Path | None:
            work = held.enter_context(working(job, restart=restart))
            work.keep()
            return last_checkpoint(work.folder)

        yield processes.run_on_first(hold)


def last_checkpoint(folder: Path) -> Path | None:
    """The newest whole checkpoint: its state is written last, and can be read."""
    return max(filter(is_whole, folder.glob("checkpoint-*")), key=step_of, default=None)


def step_of(checkpoint: Path) -> int:
    """The number of steps after which a checkpoint was written."""
    return int(checkpoint.name.rpartition("-")[2])


def is_whole(checkpoint: Path) -> bool:
    """Whether a checkpoint was written to its end."""
    try:
        return isinstance(json.loads((checkpoint / STATE).read_text(encoding="utf-8")), dict)
    except (OSError, ValueError):
        return False
