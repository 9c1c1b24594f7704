"""What an encoder is pre-trained on and with which losses. Needs no torch."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, Literal, get_args

from polyrank.config import require
from polyrank.errors import UsageError, nearest
from polyrank.pretraining.tasks.ict import IctSettings
from polyrank.pretraining.tasks.mlm import MlmTextsSettings
from polyrank.pretraining.tasks.next_sentence import NextSentenceSettings
from polyrank.pretraining.tasks.next_utterance import NextUtteranceSettings
from polyrank.pretraining.tasks.wlp import WlpSettings

TaskName = Literal["ict", "bfs", "wlp", "mlm", "next_sentence", "next_utterance"]


@dataclass(frozen=True, kw_only=True)
class PretrainingConfig:
    """The tasks and their losses; see docs/pretraining.md."""

    tasks: str = "ict,bfs,wlp"
    """Which tasks, by commas, of ict, bfs, wlp, mlm, next_sentence and next_utterance; a share of
    the pairs may follow each: ict:2,mlm:1. By default all have the same."""
    batches: Literal["mixed", "single"] = "mixed"
    """Whether a step has pairs of all tasks, or of one."""
    logq: bool = False
    """Correct the in-batch softmax for texts that are drawn more often than others."""
    max_joined_length: int = 256
    """Tokens of two texts read as one, special tokens included."""
    held_out_pairs: int = 512
    """How many pairs of what is held out the figures of each task are measured on."""

    def __post_init__(self) -> None:
        for name in ("max_joined_length", "held_out_pairs"):
            require(getattr(self, name) >= 1, name, "at least 1", getattr(self, name))
        self.weights  # noqa: B018 - raises for tasks that there are not

    @property
    def weights(self) -> dict[TaskName, float]:
        """The share of each task. Raises UsageError for an unknown one or a share that is none."""
        weights: dict[TaskName, float] = {}
        for part in self.tasks.split(","):
            name, _, share = part.strip().partition(":")
            task: TaskName | None = next((one for one in get_args(TaskName) if one == name), None)
            if task is None:
                raise UsageError(f"There is no task {name!r}.", nearest(name, get_args(TaskName)))
            try:
                weight = float(share or 1)
            except ValueError:
                weight = -1.0
            require(0 < weight < float("inf"), f"The share of {name}", "a positive number", share)
            require(task not in weights, "tasks", f"each task once, not {name} again", self.tasks)
            weights[task] = weight
        return weights


@dataclass(frozen=True, kw_only=True)
class TaskSettings:
    """The settings of the single tasks."""

    ict: IctSettings = field(default=IctSettings())
    wlp: WlpSettings = field(default=WlpSettings())
    next_sentence: NextSentenceSettings = field(default=NextSentenceSettings())
    next_utterance: NextUtteranceSettings = field(default=NextUtteranceSettings())
    mlm: MlmTextsSettings = field(default=MlmTextsSettings())

    @property
    def all(self) -> list[Any]:
        """Each task's own."""
        return [getattr(self, one.name) for one in fields(self)]
