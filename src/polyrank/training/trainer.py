"""The training loop: `transformers.Trainer` with our losses, optimiser groups and evaluation.

Knows how a step becomes a loss; knows nothing of files or the command line.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from transformers import PrinterCallback, Trainer, TrainerCallback

from polyrank.errors import TrainingError
from polyrank.models.base import Model

Evaluate = Callable[[Model], dict[str, float]]
Say = Callable[[str], None]


class RankingTrainer(Trainer):
    """Trains the model of an `Objective`; evaluation is a function of the model.

    `seconds` is the wall time of the steps so far, also those before a resumption.
    """

    optimizer: Any
    control: Any

    def __init__(
        self, *, evaluate_model: Evaluate, new_learning_rate: float, say: Say, **arguments: Any
    ) -> None:
        super().__init__(**arguments)
        self.evaluate_model = evaluate_model
        self.new_learning_rate = new_learning_rate
        self.clock = StepClock()
        self.remove_callback(PrinterCallback)
        self.add_callback(self.clock)
        self.add_callback(Teller(say, self.clock))

    @property
    def trained(self) -> Model:
        """The model inside the objective."""
        objective: Any = self.model
        model: Model = objective.model
        return model

    @property
    def seconds(self) -> float:
        """Wall time of all steps, without evaluation and checkpoints."""
        return self.clock.seconds

    def compute_loss(
        self,
        model: nn.Module,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Any = None,
    ) -> Any:
        """The loss of one step. Raises TrainingError if it is not finite."""
        loss: Tensor = model(**inputs)
        if not torch.isfinite(loss):
            raise TrainingError(
                f"The loss is {loss.item()} after step {self.state.global_step}.",
                "Lower the learning rate, or use --dtype float32; the last checkpoint is kept.",
            )
        return (loss, {}) if return_outputs else loss

    def create_optimizer(self, model: nn.Module | None = None) -> torch.optim.Optimizer:
        """AdamW; weight decay on matrices alone, a learning rate of its own for what is new."""
        if self.optimizer is None:
            rates = (self.args.learning_rate, self.new_learning_rate)
            groups = parameter_groups(self.trained, *rates, self.args.weight_decay)
            self.optimizer = torch.optim.AdamW(groups, fused=self.args.device.type != "mps")
        optimizer: torch.optim.Optimizer = self.optimizer
        return optimizer

    def evaluate(self, *arguments: Any, **options: Any) -> dict[str, float]:
        """Evaluate the dev examples; the figures are logged as `eval_…`."""
        model = self.trained
        was_training = model.training
        model.eval()
        figures = {f"eval_{name}": value for name, value in self.evaluate_model(model).items()}
        model.train(was_training)
        self.log(figures)
        self.control = self.callback_handler.on_evaluate(
            self.args, self.state, self.control, figures
        )
        return figures

    def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:
        """Write the weights of a checkpoint, and no pickled settings beside them."""
        folder = Path(output_dir or self.args.output_dir)
        folder.mkdir(parents=True, exist_ok=True)
        objective: Any = self.model
        weights = objective.state_dict() if state_dict is None else state_dict
        save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


class StepClock(TrainerCallback):
    """Adds up the wall time of the steps alone and keeps it in the log for a resumption."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.started = 0.0

    def on_train_begin(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
        """Take up the time of the steps before a resumption."""
        known = [entry["seconds"] for entry in state.log_history if "seconds" in entry]
        self.seconds = known[-1] if known else 0.0
        self.started = time.perf_counter()

    def on_step_begin(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
        """Start the clock."""
        self.started = time.perf_counter()

    def on_step_end(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
        """Stop it."""
        self.seconds += time.perf_counter() - self.started


class Teller(TrainerCallback):
    """Tells people how far the training is."""

    def __init__(self, say: Say, clock: StepClock) -> None:
        self.say = say
        self.clock = clock

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **rest: Any) -> None:
        """Say the loss, or the dev figures, in one line."""
        if not logs:
            return
        if state.log_history and state.log_history[-1].get("step") == state.global_step:
            state.log_history[-1]["seconds"] = round(self.clock.seconds, 3)
        place = f"step {state.global_step}/{state.max_steps}"
        if "loss" in logs:
            done = state.global_step * args.per_device_train_batch_size
            speed = f"{done / max(self.clock.seconds, 1e-9):.0f} contexts/s"
            self.say(f"{place}  loss {float(logs['loss']):.3f}  {speed}")
        elif "eval_mrr" in logs:
            recall = {name: value for name, value in logs.items() if name == "eval_recall@1"}
            words = "".join(f"  dev R@1 {value:.3f}" for value in recall.values())
            self.say(f"{place}{words}  dev MRR {logs['eval_mrr']:.3f}")


def parameter_groups(
    model: Model, learning_rate: float, new_learning_rate: float, weight_decay: float
) -> list[dict[str, Any]]:
    """Parameters by whether they come with the base, and whether they are matrices."""
    groups: dict[tuple[bool, bool], list[nn.Parameter]] = {}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            is_new = name.split(".")[0] not in model.tower_names
            groups.setdefault((is_new, parameter.ndim > 1), []).append(parameter)
    return [
        {
            "params": parameters,
            "lr": new_learning_rate if is_new else learning_rate,
            "weight_decay": weight_decay if is_matrix and not is_new else 0.0,
        }
        for (is_new, is_matrix), parameters in groups.items()
    ]
