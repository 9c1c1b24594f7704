"""What all pre-training tasks share: items by number, any number of passes, one seed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, TypeVar

from polyrank.errors import DataError, UsageError
from polyrank.pretraining.pairs import Pair, Reading, text_key
from polyrank.pretraining.rng import Permutation, Random, hash_numbers
from polyrank.pretraining.split import SplitName

if TYPE_CHECKING:
    from polyrank.pretraining.corpus.schema import Kind
    from polyrank.pretraining.tables import CorpusTables

Settings = TypeVar("Settings")


@dataclass(frozen=True, kw_only=True)
class NoSettings:
    """A task without settings."""


class PaperFigures(NamedTuple):
    """The figures of Chang et al. (ICLR 2020) for a task, from the English Wikipedia."""

    pairs: float
    first_tokens: float
    second_tokens: float


class PretrainingTask(ABC, Generic[Settings]):
    """A sequence of pairs, drawn from one side of a corpus.

    `len(task)` is the number of pairs of one pass. `task[i]` depends on the seed and on i alone; i
    may exceed the first pass, and every pass draws anew. Raises UsageError if the task cannot
    use a corpus of this kind.
    """

    name: ClassVar[str]
    settings_type: ClassVar[type[Any]] = NoSettings
    kinds: ClassVar[tuple[Kind, ...]] = ("articles",)
    """The kinds of corpora that it can draw from."""
    lacking: ClassVar[str]
    """What the corpus lacks if the task has no pairs, as the end of a sentence."""
    has_passages: ClassVar[bool] = False
    """Whether the second text of its pairs is a passage, which has a frequency."""
    paper: ClassVar[PaperFigures | None] = None

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
        self.reading = self.reading_of(self.settings)
        self._key = text_key(self.name)

    @classmethod
    def reading_of(cls, settings: Settings) -> Reading:
        """How the two texts of a pair are read: apart, and compared by in-batch softmax."""
        return "apart"

    @property
    def num_answers(self) -> int:
        """How many classes the labels of pairs have, where they have any."""
        return 2

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def pair(self, item: int, rng: Random) -> Pair:
        """The pair of an item of the pass, with its random draws."""

    def frequency(self, passage: int) -> float:
        """How often a passage is the document in one pass, in expectation."""
        return 1.0

    def __getitem__(self, index: int) -> Pair:
        if index < 0 or not len(self):
            raise IndexError(f"{self.name} has no pair {index}")
        number, item = divmod(index, len(self))
        return self.pair(item, Random(self.seed, self._key, number, item))

    def __iter__(self) -> Iterator[Pair]:
        """The pairs of the first pass, in the order of the corpus."""
        return map(self.__getitem__, range(len(self)))

    def sample(self, count: int) -> Iterator[Pair]:
        """Yield different pairs drawn from the whole first pass; the seed decides which."""
        order = Permutation(len(self), hash_numbers(self.seed, count))
        return (self[order(place)] for place in range(min(count, len(self))))

    def require_pairs(self) -> None:
        """Raise DataError if there are no pairs, with what the corpus lacks."""
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


class ArticleTask(PretrainingTask[Settings]):
    """A task that draws from articles."""

    def __init__(
        self,
        tables: CorpusTables,
        split: SplitName = "train",
        seed: int = 0,
        settings: Settings | None = None,
    ) -> None:
        super().__init__(tables, split, seed, settings)
        self.articles = tables.articles(split)


class ConversationTask(PretrainingTask[Settings]):
    """A task that draws from conversations."""

    kinds = ("conversations",)

    def __init__(
        self,
        tables: CorpusTables,
        split: SplitName = "train",
        seed: int = 0,
        settings: Settings | None = None,
    ) -> None:
        super().__init__(tables, split, seed, settings)
        self.conversations = tables.conversations(split)
