"""One training run: from a new model and examples to a trained model folder.

A run is a job (`polyrank.jobs`) that works in a hidden folder beside its output:

    job.json         everything that the result depends on
    log.jsonl        what has been logged, to watch the run
    checkpoint-N/    the state after step N; its `trainer_state.json` is written last

Knows nothing of the command line.
"""

from __future__ import annotations

import gc
import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from transformers import TrainerCallback

from polyrank.data.loading import Data
from polyrank.errors import UsageError
from polyrank.jobs import Job, differences, working
from polyrank.models.base import Model
from polyrank.models.description import DESCRIPTION
from polyrank.progress import Say, bar, print_line, silent
from polyrank.runtime import peak_memory, set_seed
from polyrank.storage import require_replaceable
from polyrank.training import processes
from polyrank.training.adapters import attach_adapters, merging_adapters
from polyrank.training.config import TrainingConfig
from polyrank.training.dev_evaluation import evaluation_of
from polyrank.training.encoders import freeze, prepare
from polyrank.training.given import idle_settings, require_model, run_of
from polyrank.training.identity import training_job, with_objective
from polyrank.training.logs import LOG, JsonLog, ProgressLog, StepClock, TensorBoardLog
from polyrank.training.model_card import Provenance
from polyrank.training.objectives.objective import Evaluation
from polyrank.training.objectives.registry import ObjectiveConfig, Setup, build
from polyrank.training.pretraining.corpora import CorpusPairs
from polyrank.training.result import UNKNOWN, Run, TrainingResult, summarise
from polyrank.training.trainer import RankingTrainer, is_whole, training_arguments


def train(
    model: Model,
    examples: Data | CorpusPairs,
    output: str | Path,
    config: TrainingConfig | None = None,
    *,
    objective: ObjectiveConfig | str | None = None,
    dev: Data | None = None,
    dev_candidates: int | Literal["all"] | None = None,
    teacher: Model | Sequence[Model] | None = None,
    restart: bool = False,
    show_progress_bar: bool = True,
    say: Say | None = None,
    tensorboard: str | Path | None = None,
    provenance: Provenance = UNKNOWN,
    **settings: Any,
) -> TrainingResult:
    """Train a model in place and save it to a folder, as in `train(model, examples, "my-model")`.

    An interrupted run resumes when it is started again with the same settings and data. Precision
    is the model's `compute_dtype`: bfloat16 runs the encoders in mixed precision, with float32
    weights. Under torchrun, every process calls it with the same arguments and gets the same model
    and result; the first speaks, evaluates and saves.

    Args:
        model: A bi-, poly- or cross-encoder.
        examples: What to learn from, as for `load_examples`: a path, a list of records, mappings or
            tuples, a data set, a generator. Of a generator the first `max_steps` · `batch_size`
            rows are read, or all of them without `max_steps`. The pairs of a corpus bring
            held-out ones of their own.
        output: The folder for the model; a model there is replaced when the run is complete.
        config: All settings of the training, instead of keywords.
        objective: The name of the loss, such as `cosent`, or all settings of the objective.
        dev: What chooses the best checkpoint: examples, labelled pairs, or a corpus with
            judgements; without it, the last checkpoint is kept.
        dev_candidates: Candidates of each dev example that has none, drawn from the responses of
            all; by default 20, or fewer where there are too few. `all` makes a corpus of them.
        teacher: A model that scores the candidates of each step beside the trained one, or several,
            whose distributions are averaged (see `ObjectiveConfig.teacher_share`); they are not
            changed.
        restart: Discard an unfinished run of the same output.
        show_progress_bar: Show on standard error how far the training is: one live line on a
            terminal, lines elsewhere. False is silent.
        say: Gets the lines that are otherwise printed on standard error.
        tensorboard: A folder for the events of TensorBoard.
        provenance: Where the run comes from, for the model card; its share is part of the run's
            identity.
        **settings: Any field of `TrainingConfig` and `ObjectiveConfig`, such as `epochs=3`,
            `batch_size=64`, `learning_rate=2e-5`.

    Returns:
        What the run did: its steps, time and dev figures; `print` shows them.

    Raises:
        UsageError: A setting is unknown or given twice, another run works on the same output, or an
            unfinished run with other settings is in the way.
        MissingExtraError: LoRA needs the extra `lora`.
        DataError: The examples cannot be read, or there are too few.
        TrainingError: The loss is not finite or has diverged.
        StorageError: The model or a checkpoint cannot be written.
    """
    require_model(model, "model")
    model.require_weights("be trained")
    say = listener(say, show_progress_bar)
    processes.connect(model.device.type)
    with processes.explaining_lost_processes(), merging_adapters(model):
        with processes.sharing_errors():
            run = run_of(
                model,
                examples,
                output,
                config,
                objective=objective,
                dev=dev,
                dev_candidates=dev_candidates,
                teacher=teacher,
                tensorboard=tensorboard,
                provenance=provenance,
                settings=settings,
                say=say,
            )
            require_replaceable(run.output, DESCRIPTION, "a model")
            check_batches(len(run.examples), run.config)
            run = with_objective(run)
            job = training_job(run)  # before the model gets what the objective adds to it
            set_seed(run.config.seed)
            attach_adapters(run)
            setup = build(model, run.examples, run.config, run.objective, run.teachers)
            evaluation = evaluation_of(setup, run.dev, run.config)
        for note in (*idle_settings(run, settings), *setup.notes):
            say(note)
        require_agreement(job)
        with resuming(job, restart) as checkpoint:
            show = show_progress_bar and processes.is_first()
            result = fit(run, setup, evaluation, job.work, checkpoint, say, show=show)
            setup.module.finish()
            texts = run.texts(result, setup.module, job.identity)
            processes.run_on_first(lambda: model.save_pretrained(run.output, extra=texts))
            freeze(model, "all")
    gc.collect()  # the trainer refers to itself, and its optimiser is twice the size of the model
    return result


def listener(say: Say | None, show_progress_bar: bool) -> Say:
    """Where the first process sends its lines: to `say`, to standard error or nowhere."""
    if not processes.is_first():
        return silent
    if say is not None:
        return say
    return print_line if show_progress_bar else silent


def fit(
    run: Run,
    setup: Setup,
    evaluation: Evaluation | None,
    folder: Path,
    checkpoint: Path | None,
    say: Say,
    *,
    show: bool,
) -> TrainingResult:
    """Train from the start or from a checkpoint; the model ends up as its best checkpoint.

    Checkpoints and the log are kept in `folder`. With `show`, the progress is shown.
    """
    model, config = run.model, run.config
    with processes.sharing_errors():
        factors = prepare(model, config, run.examples, say)
        clock = StepClock()
        metric = None if evaluation is None else evaluation.metric
        callbacks: list[TrainerCallback] = [clock, JsonLog(folder / LOG)]
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
    done = 0
    if checkpoint is not None:
        done = step_of(checkpoint)
        say(f"Resuming after step {done} of {arguments.max_steps}.")
    with bar(
        "Training" if show and processes.is_first() else None,
        total=arguments.max_steps,
        unit="steps",
        done=done,
        rate=("pairs", config.batch_size),
        own_time=True,
        lines=False,  # `ProgressLog` says them
        memory=partial(peak_memory, model.device),
    ) as task:
        size = config.batch_size
        trainer.add_callback(ProgressLog(say, task, clock, trainer.guard, size, metric))
        trainer.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))
    model.eval()
    return summarise(trainer.state, clock.seconds, run, factors)


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
    """The newest checkpoint that is whole; damaged ones after it are removed."""
    for checkpoint in sorted(folder.glob("checkpoint-[0-9]*"), key=step_of, reverse=True):
        if is_whole(checkpoint):
            return checkpoint
        shutil.rmtree(checkpoint, ignore_errors=True)
    return None


def step_of(checkpoint: Path) -> int:
    """The number of steps after which a checkpoint was written."""
    return int(checkpoint.name.rpartition("-")[2])
