"""What an encoder is pre-trained on and with which losses. Needs no torch."""

from __future__ import annotations

from dataclasses import dataclass

from polyrank.config import require
from polyrank.errors import UsageError, nearest
from polyrank.pretraining.registry import TASKS


@dataclass(frozen=True, kw_only=True)
class PretrainingConfig:
    """The tasks and their losses; see docs/pretraining.md."""

    tasks: str | None = None
    """Which tasks, by commas, of ict, bfs, wlp, mlm, next_sentence and next_utterance; a share of
    the pairs may follow each: ict:2,mlm:1. By default those of ict, bfs and wlp that articles have
    pairs for, and mlm and next_utterance for conversations, each with the same share."""
    mix_tasks: bool = True
    """Draw the pairs of a step from all tasks; without it, each step has one task."""
    logq: bool = False
    """Correct the in-batch softmax for texts that are drawn more often than others."""
    max_joined_length: int = 256
    """Tokens of two texts read as one, special tokens included."""
    held_out_pairs: int = 512
    """How many pairs of what is held out the figures of each task are measured on."""

    def __post_init__(self) -> None:
        for name in ("max_joined_length", "held_out_pairs"):
            require(getattr(self, name) >= 1, name, "at least 1", getattr(self, name))
        if self.tasks is not None:
            self.weights  # noqa: B018 - raises for tasks that there are not

    @property
    def weights(self) -> dict[str, float]:
        """The share of each task, once they are chosen.

        Raises UsageError for an unknown one or a share that is none.
        """
        assert self.tasks is not None
        weights: dict[str, float] = {}
        for part in self.tasks.split(","):
            name, _, share = part.strip().partition(":")
            if name not in TASKS:
                raise UsageError(f"There is no task {name!r}.", nearest(name, TASKS))
            try:
                weight = float(share or 1)
            except ValueError:
                weight = -1.0
            require(0 < weight < float("inf"), f"The share of {name}", "a positive number", share)
            require(name not in weights, "tasks", f"each task once, not {name} again", self.tasks)
            weights[name] = weight
        return weights
