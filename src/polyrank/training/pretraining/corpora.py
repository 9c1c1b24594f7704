"""From corpora and settings to the pairs of a run, and to the texts for a vocabulary."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, overload

from polyrank.config import to_mapping
from polyrank.errors import UsageError
from polyrank.pretraining.building import Source, open_tables
from polyrank.pretraining.mixture import Mixture
from polyrank.pretraining.pairs import Pair
from polyrank.pretraining.registry import TASKS, TaskSettings, make_task
from polyrank.pretraining.rng import Permutation
from polyrank.pretraining.split import SplitName
from polyrank.pretraining.tables import CorpusTables, TablesSettings
from polyrank.pretraining.task import PretrainingTask
from polyrank.tokens.masking_config import MaskingConfig
from polyrank.training.pretraining.config import PretrainingConfig

VOCABULARY_TEXTS = 100_000
"""Passages or turns that a vocabulary is made of, drawn from all of them."""


class Drawing:
    """The tasks of a run over its corpora. Each task draws from the first corpus of its kind.

    Raises UsageError for a task that has no corpus of its kind, DataError for one whose corpus
    lacks what it needs.
    """

    def __init__(
        self,
        corpora: Sequence[Source],
        config: PretrainingConfig,
        *,
        tables: TablesSettings,
        tasks: TaskSettings,
        seed: int,
    ) -> None:
        self.tables = [open_tables(corpus, tables) for corpus in corpora]
        self.config = config
        self.settings = tasks
        self.seed = seed
        self.described = [
            [corpus.fingerprint for corpus in corpora],
            to_mapping(config),
            to_mapping(tables),
            {name: to_mapping(own) for name, own in vars(tasks).items()},
            seed,
        ]

    def fitting(self, name: str) -> CorpusTables:
        """The corpus that a task draws from. Raises UsageError if there is none."""
        kinds = TASKS[name].kinds
        for tables in self.tables:
            if tables.kind in kinds:
                return tables
        raise UsageError(
            f"The task {name} needs a corpus of {' or '.join(kinds)}, got "
            f"{' and '.join(tables.kind for tables in self.tables)}.",
            "Leave the task out, or give such a corpus as well.",
        )

    def tasks(self, split: SplitName = "train") -> list[PretrainingTask[Any]]:
        """The tasks of one side."""
        return [
            make_task(name, self.fitting(name), split, self.seed, self.settings)
            for name in self.config.weights
        ]

    def mixture(self, batch_size: int) -> Mixture:
        """All tasks as one sequence."""
        weights = list(self.config.weights.values())
        batches = self.config.batches
        return Mixture(self.tasks(), weights, self.seed, batches=batches, batch_size=batch_size)

    def pairs(self, num_pairs: int, batch_size: int, masking: MaskingConfig) -> CorpusPairs:
        """As many pairs of the mixture as a run takes."""
        described = json.dumps([*self.described, to_mapping(masking), batch_size, num_pairs])
        tasks = self.tasks("held_out")
        held_out = {task.name: list(task.sample(self.config.held_out_pairs)) for task in tasks}
        return CorpusPairs(
            self.mixture(batch_size),
            num_pairs,
            config=self.config,
            masking=masking,
            masks=any(task.is_joined for task in tasks),
            fingerprint=hashlib.sha256(described.encode()).hexdigest(),
            held_out=held_out,
        )

    def texts(self) -> Texts:
        """What a vocabulary is made of."""
        return Texts(self.tables, self.seed)


class Texts:
    """Passages and turns of the training side, drawn from all of them; the same each time."""

    def __init__(self, tables: Sequence[CorpusTables], seed: int) -> None:
        self.tables = tables
        self.seed = seed

    def __iter__(self) -> Iterator[str]:
        share = VOCABULARY_TEXTS // len(self.tables)
        for tables in self.tables:
            if tables.kind == "articles":
                texts = tables.articles("train").passages
            else:
                texts = tables.conversations("train").turns
            order = Permutation(len(texts), self.seed) if len(texts) else None
            for place in range(min(share, len(texts))):
                assert order is not None
                yield texts[order(place)]


def base_folder(output: Path) -> Path:
    """Where a run keeps the new encoder that it starts from."""
    output = output.absolute()
    return output.with_name(f".{output.name}.base")


class Drawn(Protocol):
    """Pairs by number, without end, in an order that needs no shuffling."""

    def __getitem__(self, number: int) -> Pair: ...


class CorpusPairs(Sequence[Pair]):
    """As many pairs as a run takes; `pairs` holds them in the order in which they are read.

    `masks` says whether some are read as one text, partly masked. `fingerprint` tells the corpus
    and all that the pairs depend on. `held_out` are pairs of what is not trained on, by task.
    """

    def __init__(
        self,
        pairs: Drawn,
        num_pairs: int,
        *,
        config: PretrainingConfig,
        masking: MaskingConfig,
        masks: bool,
        fingerprint: str,
        held_out: Mapping[str, Sequence[Pair]],
    ) -> None:
        self.pairs = pairs
        self.num_pairs = num_pairs
        self.config = config
        self.masking = masking
        self.masks = masks
        self.fingerprint = fingerprint
        self.held_out = held_out

    def __len__(self) -> int:
        return self.num_pairs

    @overload
    def __getitem__(self, number: int) -> Pair: ...

    @overload
    def __getitem__(self, number: slice) -> Sequence[Pair]: ...

    def __getitem__(self, number: int | slice) -> Pair | Sequence[Pair]:
        if isinstance(number, slice):
            return [self.pairs[one] for one in range(*number.indices(self.num_pairs))]
        if not 0 <= number < self.num_pairs:
            raise IndexError(number)
        return self.pairs[number]

    def __iter__(self) -> Iterator[Pair]:
        return (self.pairs[number] for number in range(self.num_pairs))
