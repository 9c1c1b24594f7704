"""Decides when a run must stop because its loss has diverged. Knows losses only as numbers."""

from __future__ import annotations

import math
from statistics import quantiles
from typing import Any

from transformers import TrainerCallback
from transformers.trainer_callback import ExportableState

WINDOW = 32
"""Steps of which the running median of the loss and its spread are taken."""
SPREADS, LEAST = 4.0, 0.25
"""A loss has diverged when its running median exceeds the lowest by so many spreads; a spread
counts as at least this share of that median, or of 1."""


class DivergenceGuard(TrainerCallback, ExportableState):
    """Tells when the loss has diverged, by its running median and the spread around it.

    The spread is the distance between the quartiles of a window, the widest of those that ended
    before the present one began: where steps have losses of different sizes, as those of one
    pre-training task each, it covers them all. So neither a single high loss nor a first one that
    was low by chance stops a run. Checkpoints keep its state.
    """

    def __init__(self) -> None:
        self.losses: list[float] = []
        """Those of the last steps."""
        self.recent: list[float] = []
        """The spreads of the windows that overlap the present one."""
        self.median = self.lowest = math.inf
        self.spread = 0.0

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps of it."""
        return {"args": {}, "attributes": dict(vars(self))}

    def on_train_begin(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
        """Resume with what the checkpoint has kept."""
        known = state.stateful_callbacks.get(type(self).__name__, self.state())
        for name, value in known["attributes"].items():
            setattr(self, name, value)

    def has_diverged(self, loss: float) -> bool:
        """Whether the loss has diverged, given that of this step."""
        self.losses = [*self.losses, loss][-WINDOW:]
        if len(self.losses) < WINDOW:
            return False
        low, self.median, high = quantiles(self.losses, n=4)
        self.lowest = min(self.lowest, self.median)
        if len(self.recent) == WINDOW:
            self.spread = max(self.spread, self.recent.pop(0))
            spread = max(self.spread, LEAST * max(self.lowest, 1.0))
            diverged = self.median > self.lowest + SPREADS * spread
        else:
            diverged = False
        self.recent.append(high - low)
        return diverged
