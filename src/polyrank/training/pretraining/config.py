"""What an encoder is pre-trained on and with which losses. Does not need torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from polyrank.config import require
from polyrank.errors import UsageError, nearest
from polyrank.pretraining.registry import TASKS


@dataclass(frozen=True, kw_only=True)
class PretrainingConfig:
    """The tasks and their losses; see docs/pretraining.md."""

    tasks: str | None = None
    """The tasks: ict, bfs, wlp, mlm, cmae, next_sentence and next_utterance. Separate them by
    commas; each may have a share of the pairs, as in ict:2,mlm:1. By default, articles get those
    of ict, bfs and wlp that they have pairs for, and conversations get mlm and next_utterance, each
    with the same share."""
    mix_tasks: bool = True
    """Draw the pairs of a step from all tasks. Otherwise, each step has one task."""
    logq: bool = False
    """Correct the in-batch softmax for texts that are drawn more often than others."""
    max_joined_length: int = 256
    """The maximum number of tokens of two texts that are read as one. Special tokens count."""
    decoder_vector: Literal["first", "every"] = "first"
    """Where the decoder of cmae gets the vector: as its `first` input, as in the paper, or at
    `every` token too, so that a short run makes more use of it."""
    held_out_pairs: int = 512
    """The number of held-out pairs on which each task is measured."""

    def __post_init__(self) -> None:
        for name in ("max_joined_length", "held_out_pairs"):
            require(getattr(self, name) >= 1, name, "at least 1", getattr(self, name))
        if self.tasks is not None:
            self.weights  # noqa: B018 - raises for tasks that there are not

    @property
    def weights(self) -> dict[str, float]:
        """The share of each task, once they are chosen.

        Raises UsageError for an unknown task or a share that is not a positive number.
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
