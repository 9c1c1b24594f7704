"""What all tasks have in common: items by number, any number of passes, one seed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar, Generic, TypeVar

from polyrank.errors import DataError, UsageError
from polyrank.pretraining.draws import Draws
from polyrank.pretraining.pairs import Pair, text_key
from polyrank.pretraining.split import SplitName
from polyrank.pretraining.tables import ArticleTables, ConversationTables, CorpusTables, Kind

Settings = TypeVar("Settings")


class Task(ABC, Generic[Settings]):
    """A sequence of pairs, drawn from one side of a corpus.

    `len(task)` is the number of pairs of one pass. `task[i]` depends on the seed and on i alone; i
    may go beyond the first pass, and every pass draws anew. Raises UsageError where the corpus is
    of a kind that the task cannot use.
    """

    name: ClassVar[str]
    settings_type: ClassVar[type[Any]]
    kinds: ClassVar[tuple[Kind, ...]] = ("articles",)
    lacking: ClassVar[str]
    """What the corpus lacks where the task has no pair, as the end of a sentence."""
    has_passages: ClassVar[bool] = False
    """Whether the second of its pairs is a passage, of which there is a frequency."""

    def __init__(
        self,
        tables: CorpusTables,
        split: SplitName = "train",
        seed: int = 0,
        settings: Settings | None = None,
    ) -> None:
        if tables.kind not in self.kinds:
            raise UsageError(
                f"The task {self.name} needs a corpus of {' or '.join(self.kinds)}, got one of "
                f"{tables.kind}.",
                "Choose another task or another corpus.",
            )
        self.tables = tables
        self.split: SplitName = split
        self.seed = seed
        self.settings: Settings = self.settings_type() if settings is None else settings
        self._key = text_key(self.name)

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def pair(self, item: int, draws: Draws) -> Pair:
        """The pair of an item of the pass, with what is drawn for it."""

    def frequency(self, passage: int) -> float:
        """How often a passage is the document in one pass, in expectation."""
        return 1.0

    def draws(self, turn: int, item: int) -> Draws:
        """What is drawn for an item of a pass."""
        return Draws(self.seed, self._key, turn, item)

    def __getitem__(self, index: int) -> Pair:
        if index < 0 or not len(self):
            raise IndexError(f"{self.name} has no pair {index}")
        turn, item = divmod(index, len(self))
        return self.pair(item, self.draws(turn, item))

    def __iter__(self) -> Iterator[Pair]:
        """The pairs of the first pass, in the order of the corpus."""
        return map(self.__getitem__, range(len(self)))

    def require(self) -> None:
        """Raise DataError if there is no pair, saying what the corpus lacks."""
        if not len(self):
            side = "training" if self.split == "train" else "held-out"
            counts = self.tables.counts[self.split]
            has = ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in counts.items())
            raise DataError(
                f"The task {self.name} needs {self.lacking}; the {side} side of the corpus has "
                f"none ({has}).",
                "Leave the task out, or give a corpus that has them."
                if self.split == "train"
                else "Hold out more, or leave the task out.",
                path=self.tables.path.parent,
            )


class ArticleTask(Task[Settings]):
    """A task that draws from articles."""

    @property
    def articles(self) -> ArticleTables:
        """Its side of the corpus."""
        return self.tables.articles(self.split)


class ConversationTask(Task[Settings]):
    """A task that draws from conversations."""

    kinds = ("conversations",)

    @property
    def conversations(self) -> ConversationTables:
        """Its side of the corpus."""
        return self.tables.conversations(self.split)
