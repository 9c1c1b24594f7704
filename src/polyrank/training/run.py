"""One training run: from a new model and examples to a trained model folder.

The run works in a folder beside its output, where checkpoints let it go on after an interruption;
the output appears only when it is complete. Knows nothing of the command line.
"""

from __future__ import annotations

import gc
import json
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from transformers import TrainingArguments

from polyrank.errors import UsageError
from polyrank.models.base import Model
from polyrank.models.folder import DESCRIPTION
from polyrank.progress import Say, silent
from polyrank.records import Example, LabelledPair
from polyrank.runtime import set_seed
from polyrank.storage import require_replaceable
from polyrank.training import processes
from polyrank.training.config import TrainingConfig
from polyrank.training.figures import Measure, measure_of
from polyrank.training.freezing import freeze, rescale
from polyrank.training.logs import LOG, JsonLog, StepClock, Teller, TensorBoardLog
from polyrank.training.model_card import Provenance
from polyrank.training.objectives.registry import ObjectiveConfig, Setup, build
from polyrank.training.pretraining.corpora import CorpusPairs
from polyrank.training.pretraining.setup import build_pretraining
from polyrank.training.result import RECORD, Run, TrainingResult, summarise
from polyrank.training.trainer import RankingTrainer
from polyrank.training.work import (
    discard,
    holding,
    identity,
    open_work,
    require_agreement,
    work_folder,
)

__all__ = ["RECORD", "TrainingResult", "finished", "train", "work_folder"]
DEFAULT = ObjectiveConfig()
UNKNOWN = Provenance()


def train(
    model: Model,
    examples: Sequence[Example] | Sequence[LabelledPair] | CorpusPairs,
    output: str | Path,
    config: TrainingConfig,
    *,
    objective: ObjectiveConfig = DEFAULT,
    dev: Sequence[Example] | Sequence[LabelledPair] = (),
    restart: bool = False,
    say: Say = silent,
    provenance: Provenance = UNKNOWN,
    tensorboard: Path | None = None,
    teacher: Model | None = None,
) -> TrainingResult:
    """Train `model` in place on `examples` and save it to the folder `output`.

    `dev` examples, which need candidates, or labelled pairs choose the best checkpoint; without
    them the last is kept. The pairs of a corpus bring held-out ones of their own. Precision is the
    model's `compute_dtype`: bfloat16 runs the encoders in mixed precision, with float32 weights. An
    interrupted run goes on when it is started again with the same settings. `provenance` is for
    the model card; `tensorboard` is a folder for its events. A `teacher` scores all candidates of
    each step beside the model (see `ObjectiveConfig.teacher_share`); it is not changed.

    Under torchrun, every process calls it with the same arguments and gets the same model and
    result; the first says, evaluates and saves. Raises UsageError where another run works on the
    same output or an unfinished run with other settings is in the way (unless `restart`), DataError
    for too few examples, TrainingError for a loss that is not finite or has diverged, StorageError
    if the disk refuses.
    """
    output = Path(output)
    work = work_folder(output)
    say = say if processes.is_first() else silent
    processes.connect(model.device.type)
    with processes.explaining_lost_processes(), ExitStack() as held:
        with processes.sharing_errors():
            require_replaceable(output, DESCRIPTION, "a model")
            check_batches(len(examples), config)
            set_seed(config.seed)
            setup, measure, metric = set_up(model, examples, dev, objective, config, teacher)
        identified = identity(model, examples, dev, config, objective)
        if teacher is not None:
            identified["teacher"] = teacher.fingerprint()
        require_agreement(identified)

        def hold() -> Path | None:
            held.enter_context(holding(work))
            return open_work(work, identified, restart)

        checkpoint = processes.run_on_first(hold)
        with processes.sharing_errors():
            prepare(model, config)
            steps = count_steps(len(examples), config)
            settings = arguments(model, work, config, steps, len(examples), metric)
            trainer, clock = make_trainer(setup, settings, config, measure, metric, say)
            trainer.add_callback(JsonLog(work / LOG))
            if tensorboard is not None:
                trainer.add_callback(TensorBoardLog(tensorboard / output.name))
        if checkpoint is not None:
            say(f"Going on after step {checkpoint.name.rpartition('-')[2]} of {steps}.")
        trainer.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))
        model.eval()
        result = summarise(trainer.state, clock.seconds, config)
        run = Run(
            name=output.name,
            model=model,
            module=setup.module,
            examples=examples,
            dev=dev,
            config=config,
            objective=objective,
            provenance=provenance,
            identity=identified,
        )
        processes.run_on_first(lambda: model.save_pretrained(output, extra=run.texts(result)))
        freeze(model, "all")
        if processes.is_first():
            discard(work)
    del trainer
    gc.collect()  # the trainer refers to itself, and its optimiser is twice the size of the model
    return result


def set_up(
    model: Model,
    examples: Sequence[Example] | Sequence[LabelledPair] | CorpusPairs,
    dev: Sequence[Example] | Sequence[LabelledPair],
    objective: ObjectiveConfig,
    config: TrainingConfig,
    teacher: Model | None,
) -> tuple[Setup, Measure, str]:
    """What is trained, how its dev figures are measured, and the name of the one that chooses."""
    if isinstance(examples, CorpusPairs):
        return build_pretraining(model, examples, objective, config)
    setup = build(model, examples, objective, config, teacher)
    return (setup, *measure_of(setup, dev, config))


def finished(
    model: Model,
    examples: Sequence[Example] | Sequence[LabelledPair],
    output: str | Path,
    config: TrainingConfig,
    *,
    objective: ObjectiveConfig = DEFAULT,
    dev: Sequence[Example] | Sequence[LabelledPair] = (),
) -> bool:
    """Whether `output` holds what `train` with these arguments would make."""
    try:
        record = json.loads((Path(output) / RECORD).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    same: bool = record.get("identity") == identity(model, examples, dev, config, objective)
    return same


def check_batches(num_examples: int, config: TrainingConfig) -> None:
    """Refuse steps that cannot be shared out among the processes. Raises UsageError."""
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


def steps_of_epoch(num_examples: int, config: TrainingConfig) -> int:
    """The steps of one pass. A last batch that is not full is left out of it."""
    return max(num_examples // config.batch_size, 1)


def count_steps(num_examples: int, config: TrainingConfig) -> int:
    """The steps of the whole run."""
    if config.max_steps is not None:
        return config.max_steps
    return max(round(steps_of_epoch(num_examples, config) * config.epochs), 1)


def steps_between_evaluations(num_examples: int, config: TrainingConfig) -> int:
    """After how many steps the dev data are evaluated and a checkpoint is kept."""
    if config.evaluations_per_epoch is not None:
        an_epoch = steps_of_epoch(num_examples, config)
        return max(round(an_epoch / config.evaluations_per_epoch), 1)
    return max(-(-count_steps(num_examples, config) // config.evaluations), 1)


def prepare(model: Model, config: TrainingConfig) -> None:
    """Set what is trained, the scale of the outputs, dropout and the attention that trains fastest.

    Raises UsageError for an encoder whose layers are not known, where they must be.
    """
    freeze(model, config.trainable)
    rescale(model, config.rescale_last_layer)
    for name in model.tower_names:
        tower = getattr(model, name)
        if tower is None:
            continue
        for path, module in tower.named_modules():
            if isinstance(module, torch.nn.Dropout):
                module.p = 0.0 if "attention" in path and "output" not in path else config.dropout
        if model.device.type == "cpu":
            # torch's fused attention is slow on the way back on CPUs; see docs/log.md.
            tower.encoder.set_attn_implementation("eager")


def arguments(
    model: Model, work: Path, config: TrainingConfig, steps: int, num_examples: int, metric: str
) -> TrainingArguments:
    """The run's settings as transformers names them; what is missing is the trainer's own."""
    every = steps_between_evaluations(num_examples, config)
    has_dev = metric != "none"
    settings = TrainingArguments(
        output_dir=str(work),
        per_device_train_batch_size=config.batch_size // processes.count(),
        max_steps=steps,
        learning_rate=config.learning_rate,
        max_grad_norm=config.max_grad_norm,
        use_cpu=model.device.type == "cpu",
        seed=config.seed,
        data_seed=config.seed,
        eval_strategy="steps" if has_dev else "no",
        eval_steps=every,
        save_strategy="steps",
        save_steps=every,
        save_total_limit=2,
        load_best_model_at_end=has_dev,
        metric_for_best_model=metric,
        greater_is_better=True,
        logging_steps=max(steps // 20, 1),
        logging_first_step=True,
        logging_nan_inf_filter=False,
        disable_tqdm=True,
        report_to=[],
        remove_unused_columns=False,
        label_names=[],
        dataloader_drop_last=num_examples >= config.batch_size,
        dataloader_pin_memory=model.device.type == "cuda",
    )
    if settings.n_gpu > 1:
        settings._n_gpu = 1  # a process trains on one device; DataParallel cannot split our steps
    return settings


def make_trainer(
    setup: Setup,
    settings: TrainingArguments,
    config: TrainingConfig,
    measure: Measure,
    metric: str,
    say: Say,
) -> tuple[RankingTrainer, StepClock]:
    """The trainer of a run, and the clock of its steps."""
    own: Any = setup
    trainer = RankingTrainer(
        model=own.module,
        args=settings,
        data_collator=own.collator,
        train_dataset=own.dataset,
        eval_dataset=own.dataset if metric != "none" else None,  # is only asked whether it is there
        config=config,
        measure=measure,
        metric=metric,
    )
    clock = StepClock()
    trainer.add_callback(clock)
    trainer.add_callback(Teller(say, clock, config.batch_size))
    if processes.rank() > 0:
        torch.manual_seed(config.seed + processes.rank())  # each process drops out its own
    return trainer, clock
