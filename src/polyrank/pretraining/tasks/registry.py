"""The tasks by name."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from polyrank.errors import UsageError, nearest
from polyrank.pretraining.split import SplitName
from polyrank.pretraining.tables import CorpusTables
from polyrank.pretraining.tasks.bfs import Bfs
from polyrank.pretraining.tasks.ict import Ict
from polyrank.pretraining.tasks.mlm import MlmTexts
from polyrank.pretraining.tasks.next_sentence import NextSentence
from polyrank.pretraining.tasks.next_utterance import NextUtterance
from polyrank.pretraining.tasks.task import Task
from polyrank.pretraining.tasks.wlp import Wlp

TASKS: dict[str, type[Task[Any]]] = {
    task.name: task for task in (MlmTexts, NextSentence, NextUtterance, Ict, Bfs, Wlp)
}


def make_task(
    name: str,
    tables: CorpusTables,
    split: SplitName = "train",
    seed: int = 0,
    settings: Iterable[Any] = (),
) -> Task[Any]:
    """A task by its name; of `settings`, which may be those of several tasks, its own count.

    Raises UsageError for a name that there is not, or a corpus of another kind.
    """
    if name not in TASKS:
        raise UsageError(f"There is no pre-training task {name!r}.", nearest(name, TASKS))
    kind = TASKS[name]
    own = next((one for one in settings if isinstance(one, kind.settings_type)), None)
    return kind(tables, split, seed, own)
