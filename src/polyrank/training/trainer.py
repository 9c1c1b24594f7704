"""The training loop: `transformers.Trainer` with our steps, optimisers, schedules and evaluation.

Knows how the loop runs and when it must stop; knows nothing of the output or the command line.
"""

from __future__ import annotations

import json
import math
import os
import shutil
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor, nn
from transformers import PrinterCallback, Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

from polyrank.errors import StorageError, TrainingError
from polyrank.folder_files import checksums_of, read_object
from polyrank.models.base import Model
from polyrank.storage import storage_errors
from polyrank.training import processes
from polyrank.training.batches import TrainingSet
from polyrank.training.config import TrainingConfig
from polyrank.training.divergence import WINDOW, DivergenceGuard
from polyrank.training.module import TrainingModule
from polyrank.training.objectives.objective import LOSS, Evaluation
from polyrank.training.objectives.registry import Setup
from polyrank.training.optimisers import PlateauSchedule, build_optimiser, build_schedule
from polyrank.training.step import gradient_step, precision_of

Figures = dict[str, float]
CHECKSUMS = "checksums.json"
"""The file of a checkpoint that is written last."""
PROBE = 1 << 20
"""Bytes."""


class OneDeviceArguments(TrainingArguments):
    """The settings of a process that trains on one device: DataParallel cannot split our steps."""

    @property
    def n_gpu(self) -> int:
        """How many GPUs this process uses."""
        return min(super().n_gpu, 1)


def training_arguments(
    config: TrainingConfig,
    *,
    folder: Path,
    device: torch.device,
    num_examples: int,
    evaluation: Evaluation | None,
) -> TrainingArguments:
    """The settings of a run as transformers names them; the rest is the trainer's own.

    Checkpoints go to `folder`. `evaluation` is None where nothing is evaluated.
    """
    steps = config.num_steps(num_examples)
    interval = config.evaluation_interval(num_examples)
    evaluates = evaluation is not None
    return OneDeviceArguments(
        output_dir=str(folder),
        per_device_train_batch_size=config.batch_size // processes.count(),
        max_steps=steps,
        learning_rate=config.learning_rate,
        max_grad_norm=config.max_grad_norm,
        use_cpu=device.type == "cpu",
        seed=config.seed,
        data_seed=config.seed,
        eval_strategy="steps" if evaluates else "no",
        eval_steps=interval,
        save_strategy="steps",
        save_steps=interval,
        save_total_limit=2,
        load_best_model_at_end=evaluates,
        metric_for_best_model=None if evaluation is None else evaluation.metric,
        greater_is_better=None if evaluation is None else evaluation.greater_is_better,
        logging_steps=max(steps // 20, 1),
        logging_first_step=True,
        logging_nan_inf_filter=False,
        disable_tqdm=True,
        report_to=[],
        remove_unused_columns=False,
        label_names=[],
        dataloader_drop_last=num_examples >= config.batch_size,
        dataloader_pin_memory=device.type == "cuda",
    )


class RankingTrainer(Trainer):
    """Trains an objective's module, which holds the model as `model`."""

    optimizer: Any
    control: Any
    lr_scheduler: Any

    def __init__(
        self,
        setup: Setup,
        config: TrainingConfig,
        arguments: TrainingArguments,
        *,
        evaluation: Evaluation | None,
        shuffle: bool,
        callbacks: Sequence[TrainerCallback],
    ) -> None:
        """`evaluation`: how the model is evaluated, if it is; `shuffle`: whether each epoch has an
        order of its own.

        In other processes than the first, dropout draws from a seed of its own from now on.
        """
        self.config = config
        self.evaluation = evaluation
        dataset = setup.dataset
        order = Places(len(dataset), config.seed, shuffle=shuffle)
        self.guard = guard = DivergenceGuard()
        self.rates: dict[str, float] = {}
        super().__init__(
            model=setup.module,
            args=arguments,
            data_collator=setup.collator,
            train_dataset=dataset,
            # evaluation does not read it; the trainer only asks whether there is one
            eval_dataset=None if evaluation is None else dataset,
            callbacks=[
                EpochKeeper(order, dataset, config),
                guard,
                LastEvaluation(),
                *callbacks,
            ],
        )
        self.order = order
        self.remove_callback(PrinterCallback)
        # A step takes care of precision and of the other processes (`training.step`), so that the
        # module must not be wrapped; accelerate has no setting for that.
        self.accelerator.prepare_model = lambda module, *_, **__: module
        if processes.rank() > 0:
            torch.manual_seed(config.seed + processes.rank())

    @property
    def trained(self) -> Model:
        """The model inside the objective."""
        return cast("TrainingModule", self.model).model

    def _get_train_sampler(self, train_dataset: Any = None) -> Places:
        """The order of the examples; that of accelerate forgets the epoch in some resumed runs."""
        return self.order

    def training_step(
        self, model: nn.Module, inputs: dict[str, Any], num_items_in_batch: Any = None
    ) -> Tensor:
        """One step forward and back. Raises TrainingError where the loss is not finite or has
        diverged.
        """
        model.train()
        autocast = partial(precision_of, self.trained)
        loss = gradient_step(model, self._prepare_inputs(inputs), autocast=autocast)
        value = float(loss)  # that of all processes together
        if not math.isfinite(value):
            problem = f"The loss is {value} after step {self.state.global_step}."
            raise processes.said_once(broken(problem))
        if self.guard.has_diverged(value):
            problem = (
                f"The loss has diverged: the median of the last {WINDOW} steps was "
                f"{self.guard.lowest:.3g} at its lowest and is {self.guard.median:.3g} after step "
                f"{self.state.global_step}."
            )
            raise processes.said_once(broken(problem))
        return loss

    @property
    def frozen(self) -> set[str]:
        """The names of the parameters that are not trained."""
        named = self.model.named_parameters(remove_duplicate=False)
        return {name for name, parameter in named if not parameter.requires_grad}

    def _issue_warnings_after_load(self, load_result: Any) -> None:
        """Raise StorageError for a checkpoint without all that is trained."""
        lacking = set(load_result.missing_keys) - self.frozen
        if lacking or load_result.unexpected_keys:
            raise StorageError(
                f"A checkpoint lacks {len(lacking)} tensors and has "
                f"{len(load_result.unexpected_keys)} that are unknown.",
                "Start the run again with --restart.",
            )

    def require_finite_weights(self) -> None:
        """Raise TrainingError where a weight is infinite or NaN."""
        norms = [p.detach().float().norm() for p in self.model.parameters() if p.requires_grad]
        if not bool(torch.isfinite(torch.stack(norms)).all()):
            step = self.state.global_step
            raise processes.said_once(broken(f"Weights are infinite or NaN after step {step}."))

    def create_optimizer(self, model: nn.Module | None = None) -> torch.optim.Optimizer:
        """The optimiser of the run's settings."""
        if self.optimizer is None:
            self.optimizer = build_optimiser(self.model, self.trained, self.config)
        optimizer: torch.optim.Optimizer = self.optimizer
        return optimizer

    def create_scheduler(self, num_training_steps: int, optimizer: Any = None) -> Any:
        """The learning rates of the run's settings."""
        if self.lr_scheduler is None:
            own = self.optimizer if optimizer is None else optimizer
            self.lr_scheduler = build_schedule(own, self.config, num_training_steps)
            self._created_lr_scheduler = True
        return self.lr_scheduler

    def _get_learning_rate(self) -> float:
        """The learning rate of the encoders; keeps those of all groups for the next entry."""
        self.rates = {group["setting"]: group["lr"] for group in self.optimizer.param_groups}
        return self.rates["learning_rate"]

    def log(self, logs: dict[str, float], *arguments: Any, **options: Any) -> None:
        """Log each group's learning rate by the name of its setting."""
        if "learning_rate" in logs:
            logs = {**logs, **self.rates}
        super().log(logs, *arguments, **options)

    def evaluate(self, *arguments: Any, **options: Any) -> Figures:
        """Evaluate the dev data in the first process; the figures are logged as `eval_…`."""
        assert self.evaluation is not None
        self.require_finite_weights()
        was_training = self.model.training
        self.model.eval()
        found = processes.run_on_first(partial(self.evaluation.measure, self.trained))
        self.model.train(was_training)
        if isinstance(self.lr_scheduler, PlateauSchedule):
            self.lr_scheduler.observe(found[LOSS])
        figures = {f"eval_{name}": value for name, value in found.items()}
        self.log(figures)
        self.control = self.callback_handler.on_evaluate(
            self.args, self.state, self.control, figures
        )
        return figures

    def _save_checkpoint(self, model: nn.Module, trial: Any) -> None:
        """Write a checkpoint, or nothing. Raises StorageError and TrainingError."""
        self.require_finite_weights()
        folder = Path(self.args.output_dir, f"{PREFIX_CHECKPOINT_DIR}-{self.state.global_step}")
        try:
            with storage_errors(folder):
                super()._save_checkpoint(model, trial)
                if self.args.should_save:
                    text = json.dumps(checksums_of(folder, without=CHECKSUMS), indent=2) + "\n"
                    (folder / CHECKSUMS).write_text(text, encoding="utf-8")
        except (StorageError, SafetensorError, RuntimeError) as error:
            reason = error.problem if isinstance(error, StorageError) else refusal(folder)
            shutil.rmtree(folder, ignore_errors=True)
            if reason is None:
                raise
            raise StorageError(
                f"A checkpoint could not be written to {folder}: {reason}",
                "Free some space and run the same command again, which resumes from the last "
                "checkpoint.",
            ) from error

    def _save_rng_state(self, output_dir: str) -> None:
        """Also wait for the others: a checkpoint with a state has the file of each process."""
        super()._save_rng_state(output_dir)
        processes.barrier()

    def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:
        """Write the trained weights of a checkpoint, and no pickled settings beside them.

        What is frozen comes with the base again.
        """
        if not self.args.should_save:
            return
        folder = Path(output_dir or self.args.output_dir)
        folder.mkdir(parents=True, exist_ok=True)
        weights = self.model.state_dict() if state_dict is None else state_dict
        weights = {name: one for name, one in weights.items() if name not in self.frozen}
        save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def is_whole(checkpoint: Path) -> bool:
    """Whether a checkpoint was written to its end, and all its files are as they were then."""
    found = read_object(checkpoint / CHECKSUMS)
    try:
        return bool(found) and found == checksums_of(checkpoint, without=CHECKSUMS)
    except OSError:
        return False


def refusal(folder: Path) -> str | None:
    """Why a disk takes no more; None if it does. Libraries that cannot write do not say why."""
    if not folder.is_dir():
        return None
    probe = folder / f"probe-{os.getpid()}"
    try:
        probe.write_bytes(bytes(PROBE))
    except OSError as error:
        return f"{error.strerror}."
    probe.unlink()
    return None


class Places(torch.utils.data.Sampler[int]):
    """The places of a training set in an order that depends on the seed and the epoch alone.

    Without `shuffle`, in their own order: for records that come shuffled and may be too many.
    """

    def __init__(self, count: int, seed: int, *, shuffle: bool = True) -> None:
        self.count = count
        self.seed = seed
        self.shuffle = shuffle
        self.epoch = 0

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[int]:
        if not self.shuffle:
            yield from range(self.count)
            return
        generator = torch.Generator().manual_seed(self.seed + self.epoch)
        yield from torch.randperm(self.count, generator=generator).tolist()


class EpochKeeper(TrainerCallback):
    """Tells the order and the data set which epoch begins, by the steps that were done."""

    def __init__(self, order: Places, dataset: TrainingSet, config: TrainingConfig) -> None:
        self.order = order
        self.dataset = dataset
        self.steps = config.steps_per_epoch(len(order))

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
        """Count the epochs from 0."""
        self.order.epoch = state.global_step // self.steps
        self.dataset.set_epoch(self.order.epoch)


class LastEvaluation(TrainerCallback):
    """Evaluates after the last step too, wherever the steps between two evaluations end."""

    def on_step_end(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
        """Ask for it."""
        if state.global_step >= state.max_steps and args.eval_strategy != "no":
            control.should_evaluate = True


def broken(problem: str) -> TrainingError:
    """The error of a run whose numbers have broken."""
    return TrainingError(
        problem,
        "Lower the learning rate, give more warm-up, or use --dtype float32; the last checkpoint "
        "is kept, and --restart discards it.",
    )
