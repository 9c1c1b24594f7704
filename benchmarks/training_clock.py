"""Wall time of training steps, batches made included, alike for every `transformers.Trainer`.

Counts from the end of the first step to the end of the last: a step's batch is in it, evaluation
before or after the run, checkpoints after the last step and the first step's warm-up are not.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any

from transformers import TrainerCallback, trainer


class TrainingClock:
    """What was counted."""

    def __init__(self) -> None:
        self.steps = 0
        self.started = 0.0
        self.first = 0.0
        self.last = 0.0

    @property
    def seconds(self) -> float:
        """Seconds of one step."""
        if self.steps > 1:
            return (self.last - self.first) / (self.steps - 1)
        return self.last - self.started


@contextlib.contextmanager
def training_clock() -> Iterator[TrainingClock]:
    """A clock for the one run that is trained inside."""
    clock = TrainingClock()

    class Counter(TrainerCallback):
        """Notes when steps begin and end."""

        def on_step_begin(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
            if not clock.steps:
                clock.started = time.perf_counter()

        def on_step_end(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
            clock.last = time.perf_counter()
            clock.first = clock.first or clock.last
            clock.steps += 1

    trainer.DEFAULT_CALLBACKS.append(Counter)
    try:
        yield clock
    finally:
        trainer.DEFAULT_CALLBACKS.remove(Counter)
