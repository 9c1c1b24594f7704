"""The pre-training tasks by name: each is the one task of a module of `polyrank.pretraining.tasks`.

A new module there is found automatically.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field, fields, make_dataclass
from typing import TYPE_CHECKING, Any

from polyrank.discovery import subclasses_in
from polyrank.errors import UsageError, nearest
from polyrank.pretraining import tasks
from polyrank.pretraining.pairs import Reading
from polyrank.pretraining.split import SplitName
from polyrank.pretraining.task import NoSettings, PretrainingTask

if TYPE_CHECKING:
    from polyrank.pretraining.corpus.schema import Kind
    from polyrank.pretraining.tables import CorpusTables

FOUND: Iterable[type[PretrainingTask[Any]]] = subclasses_in(tasks, PretrainingTask)
TASKS: Mapping[str, type[PretrainingTask[Any]]] = {task.name: task for task in FOUND}
USUAL: Mapping[Kind, tuple[str, ...]] = {
    "articles": ("ict", "bfs", "wlp"),
    "conversations": ("mlm", "next_utterance"),
}
"""The default tasks by kind of corpus: those of Chang et al. and of Humeau et al."""

if TYPE_CHECKING:

    class TaskSettings:
        """The settings of all tasks that have some, each under its task's name."""
else:
    TaskSettings = make_dataclass(
        "TaskSettings",
        [
            (name, task.settings_type, field(default=task.settings_type()))
            for name, task in TASKS.items()
            if task.settings_type is not NoSettings
        ],
        namespace={"__module__": __name__, "__doc__": "The settings of all tasks that have any."},
        frozen=True,
        kw_only=True,
    )


def find_task(name: str) -> type[PretrainingTask[Any]]:
    """A task by its name. Raises UsageError for an unknown one."""
    if name not in TASKS:
        raise UsageError(f"There is no pre-training task {name!r}.", nearest(name, TASKS))
    return TASKS[name]


def make_task(
    name: str,
    tables: CorpusTables,
    split: SplitName = "train",
    seed: int = 0,
    settings: TaskSettings | None = None,
) -> PretrainingTask[Any]:
    """A task by its name, with its part of `settings`.

    Raises UsageError for an unknown name, or a corpus of another kind.
    """
    return find_task(name)(tables, split, seed, getattr(settings or TaskSettings(), name, None))


def reading_of(name: str, values: Mapping[str, Any]) -> Reading:
    """How a task reads the two texts of a pair, with settings by name.

    `values` may hold other settings as well; those that are missing have their defaults. Raises
    UsageError for an unknown task.
    """
    task = find_task(name)
    own = {one.name: values[one.name] for one in fields(task.settings_type) if one.name in values}
    return task.reading_of(task.settings_type(**own))
