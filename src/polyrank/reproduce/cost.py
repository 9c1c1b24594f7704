"""What a table costs: runs, contexts and, roughly, minutes. Does not need torch. The minutes cover
training and timing but not evaluation. They are estimated from measurements (docs/results.md) of
all-MiniLM-L6-v2 and small new encoders on two idle CPU cores.
"""

from __future__ import annotations

from dataclasses import dataclass

from polyrank.reproduce.table import Overrides, Scale, Table, Train

SECONDS_A_CONTEXT = 0.055
SECONDS_A_PAIR = 0.025
"""Of a pre-training."""
SECONDS_OF_TIMING = 30.0
"""Of a model whose queries are timed."""


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What a table takes with one seed."""

    rows: int
    trainings: int
    contexts: int | None
    """All contexts and pairs that are trained on; None where epochs, not steps, are given."""
    minutes: float | None

    def __str__(self) -> str:
        words = f"{self.rows} rows, {self.trainings} trainings"
        if self.contexts is None:
            return f"{words}, by epochs"
        minutes = "" if self.minutes is None else f", about {max(round(self.minutes), 1):,} min"
        return f"{words}, {self.contexts:,} contexts{minutes}"


def cost_of(table: Table, scale: Scale, overrides: Overrides, *, new: bool = True) -> Cost:
    """What a table takes; `new` is whether pre-training begins with new encoders."""
    rows = table.rows(scale)
    contexts, trainings, counted = 0, 0, True
    seconds = SECONDS_OF_TIMING * len(rows) if table.task == "speed" else 0.0
    for stage in table.stages(scale):
        if isinstance(stage, Train):
            values, is_run = stage.resolved(scale, overrides), stage.effort > 0
            each = SECONDS_A_CONTEXT
        else:
            values, is_run = stage.resolved(scale, overrides, new=new), bool(stage.tasks)
            each = SECONDS_A_PAIR
        if not is_run:
            continue
        trainings += 1
        if values.get("max_steps") is None:
            counted = False
            continue
        pairs = values["max_steps"] * values["batch_size"]
        contexts += pairs
        if values.get("head") == "linear":  # reads each context with every wrong response
            each *= 1 + values["num_negatives"]
        seconds += pairs * each
    return Cost(
        rows=len(rows),
        trainings=trainings,
        contexts=contexts if counted else None,
        minutes=seconds / 60 if scale.name == "small" else None,
    )
