"""What a run reports while it trains: lines for people, `log.jsonl`, and TensorBoard.

These are callbacks of the trainer. They know what is logged, not how it was computed.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from transformers import TrainerCallback

from polyrank.display.meter import GAP
from polyrank.display.screen import LONGEST_GAP
from polyrank.display.words import short, size, span
from polyrank.errors import MissingExtraError
from polyrank.evaluation.metric_names import NAME, label_of
from polyrank.progress import Say, Task
from polyrank.storage import storage_errors, write_text
from polyrank.training.divergence import DivergenceGuard

LOG = "log.jsonl"
FIRST = (
    "step",
    "epoch",
    "seconds",
    "loss",
    "learning_rate",
    "new_learning_rate",
    "code_learning_rate",
    "grad_norm",
)
LEFT_OUT = ("total_flos", "train_loss", "train_runtime")
"""What transformers logs at the end; the record of the run says it better."""


class StepClock(TrainerCallback):
    """Adds up the wall time of the steps, without evaluations, and keeps it in the log for a
    resumed run.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self.started = 0.0

    def on_train_begin(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
        """Start from the time of the steps before a resumption."""
        known = [entry["seconds"] for entry in state.log_history if "seconds" in entry]
        self.seconds = known[-1] if known else 0.0
        self.started = time.perf_counter()

    def on_step_begin(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
        """Start the clock."""
        self.started = time.perf_counter()

    def on_step_end(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
        """Stop it."""
        self.seconds += time.perf_counter() - self.started

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **rest: Any) -> None:
        """Put the time into the entry."""
        if state.log_history and state.log_history[-1].get("step") == state.global_step:
            state.log_history[-1]["seconds"] = round(self.seconds, 3)


class ProgressLog(TrainerCallback):
    """Shows people how far the training is: live on a terminal, elsewhere in lines."""

    def __init__(
        self,
        say: Say,
        task: Task,
        clock: StepClock,
        guard: DivergenceGuard,
        batch_size: int,
        metric: str | None = None,
    ) -> None:
        """`task` counts steps; `guard` knows their losses. `metric` is the figure that chooses the
        best checkpoint, if one does.
        """
        self.say = say
        self.task = task
        self.clock = clock
        self.guard = guard
        self.batch_size = batch_size
        self.metric = metric
        self.began = self.said = time.monotonic()
        self.first = 0
        self.rate = 0.0
        self.dev: dict[str, str] = {}

    def on_train_begin(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
        """Begin with the steps that were done before a resumption."""
        self.first = state.global_step

    def on_step_end(
        self, args: Any, state: Any, control: Any, optimizer: Any = None, **rest: Any
    ) -> None:
        """Count the step and show the mean loss of the last ones; in a log, now and then."""
        self.rate = learning_rate(optimizer)
        loss = f"{mean(self.guard.losses):.3f}"
        self.task.show(**{"loss": loss, **self.dev, "lr": f"{self.rate:.1e}"})
        self.task.reach(state.global_step)
        if time.monotonic() - self.said > LONGEST_GAP and not self.task.is_live:
            self.say_loss(state, mean(self.guard.losses))

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **rest: Any) -> None:
        """Say the loss, unless it is shown live, or the dev figures, in one line."""
        if not logs:
            return
        figures = {name[5:]: value for name, value in logs.items() if name.startswith("eval_")}
        if "loss" in logs:
            if state.global_step == 1 < args.logging_steps:
                return  # the loss of the first step is for the record
            if not self.task.is_live:
                self.say_loss(state, float(logs["loss"]))
        elif figures:
            self.say(place_of(state) + shown(figures, self.metric))
            self.dev = main_figure(figures, self.metric)

    def say_loss(self, state: Any, loss: float) -> None:
        """One line of a log: the loss, the learning rate, the speed, the time left, the memory."""
        self.said = time.monotonic()
        pairs = state.global_step * self.batch_size
        words = [
            f"loss {loss:.3f}".ljust(11),
            f"lr {self.rate:.1e}",
            per_second(pairs / max(self.clock.seconds, 1e-9)).rjust(11),
        ]
        peak = self.task.memory()
        words += [f"peak {size(peak)}"] if peak else []
        done, left = state.global_step - self.first, state.max_steps - state.global_step
        if left and done > 0:
            words.append(f"{span(left * (self.said - self.began) / done)} left")
        self.say(GAP.join([place_of(state), *words]))


def learning_rate(optimizer: Any) -> float:
    """The learning rate of the encoders."""
    rates = {group["setting"]: group["lr"] for group in optimizer.param_groups}
    return float(rates["learning_rate"])


def per_second(rate: float) -> str:
    """A number of pairs per second."""
    return f"{short(rate)} pairs/s"


def place_of(state: Any) -> str:
    """The step, in as many letters for the first as for the last."""
    return f"step {state.global_step}/{state.max_steps}".ljust(6 + 2 * len(str(state.max_steps)))


def main_figure(figures: dict[str, float], metric: str | None) -> dict[str, str]:
    """The figure that chooses the best checkpoint, by the name that people know."""
    words = shown({name: figures[name] for name in (metric,) if name in figures}, metric)
    name, _, value = words.strip().rpartition(" ")
    return {name: value} if name else {}


def shown(figures: dict[str, float], metric: str | None = None) -> str:
    """The dev figures that people want to see of the many, and the one that chooses."""
    names = {
        "loss": "loss",
        "recall@1": "R@1",
        "mrr": "MRR",
        "spearman": "Spearman",
        "accuracy": "accuracy",
    }
    names |= {"held_out": "held out"}
    if metric is not None and metric not in names:
        names[metric] = label_of(metric, None) if NAME.fullmatch(metric) else metric
    return "".join(
        f"  dev {word} {figures[name]:.3f}" for name, word in names.items() if name in figures
    )


class JsonLog(TrainerCallback):
    """Keeps `log.jsonl` in the work folder up to date, one line per entry of the history.

    What an interrupted run logged after its last checkpoint is dropped when it resumes.
    """

    def __init__(self, file: Path) -> None:
        self.file = file
        self.written = 0

    def on_train_begin(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
        """Begin with what was logged up to the checkpoint."""
        if state.is_world_process_zero:
            write_text(self.file, log_text(state.log_history))
        self.written = len(state.log_history)

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **rest: Any) -> None:
        """Append what is new."""
        if state.is_world_process_zero:
            with storage_errors(self.file), open(self.file, "a", encoding="utf-8") as handle:
                handle.write(log_text(state.log_history[self.written :]))
        self.written = len(state.log_history)


def log_text(history: Sequence[dict[str, Any]]) -> str:
    """The history as JSON lines: step, epoch, seconds, and the loss or the dev figures."""
    return "".join(json.dumps(line_of(entry)) + "\n" for entry in history if is_reported(entry))


def is_reported(entry: dict[str, Any]) -> bool:
    """Whether an entry is about a step or an evaluation, and not transformers' own summary."""
    return not any(name in entry for name in LEFT_OUT)


def by_number(name: str) -> tuple[str, int]:
    """What sorts recall@2 before recall@10."""
    word, _, number = name.partition("@")
    return word, int(number) if number.isdigit() else 0


def line_of(entry: dict[str, Any]) -> dict[str, Any]:
    """An entry for `log.jsonl`: the place first, dev figures as `dev_…`, null for NaN."""
    place = {name: entry[name] for name in FIRST if name in entry}
    rest = {
        "dev_" + name[5:] if name.startswith("eval_") else name: entry[name]
        for name in sorted(entry, key=by_number)
        if name not in place
    }
    everything: dict[str, Any] = {**place, **rest}
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in everything.items()
    }


class TensorBoardLog(TrainerCallback):
    """Writes what is logged for TensorBoard, into a folder of this run.

    Raises MissingExtraError where TensorBoard is not installed.
    """

    def __init__(self, folder: Path) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            purpose = "Logging for TensorBoard"
            raise MissingExtraError("tensorboard", "tensorboard", purpose) from error
        self.make = SummaryWriter
        self.folder = folder
        self.writer: Any = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
        """Open the file; what an interrupted run wrote after its last checkpoint is hidden."""
        if state.is_world_process_zero:
            with storage_errors(self.folder):
                self.writer = self.make(str(self.folder), purge_step=state.global_step + 1)

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **rest: Any) -> None:
        """Write every number of the entry."""
        if self.writer is None or not logs or not is_reported(logs):
            return
        for name, value in line_of({**logs, "step": state.global_step}).items():
            if isinstance(value, (int, float)) and name not in ("step", "epoch"):
                kind, _, rest_of_name = name.partition("dev_")
                tag = f"dev/{rest_of_name}" if rest_of_name and not kind else f"train/{name}"
                self.writer.add_scalar(tag, value, state.global_step)

    def on_train_end(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
        """Close the file."""
        if self.writer is not None:
            self.writer.close()
