"""The corpora of a run: its tasks, its pairs by number, and the texts for a vocabulary.

Knows nothing of tokens.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import replace
from functools import cached_property
from typing import Any, Protocol, overload

from polyrank.config import to_mapping
from polyrank.errors import UsageError
from polyrank.pretraining.mixture import Mixture
from polyrank.pretraining.pairs import Pair, Reading
from polyrank.pretraining.registry import TASKS, USUAL, TaskSettings, make_task
from polyrank.pretraining.rng import Permutation
from polyrank.pretraining.split import SplitName, TablesSettings
from polyrank.pretraining.tables import CorpusTables, DocumentSource, open_tables
from polyrank.pretraining.task import PretrainingTask
from polyrank.tokens.masking_config import MaskingConfig
from polyrank.training.objectives.objective import in_steps
from polyrank.training.pretraining.config import PretrainingConfig

VOCABULARY_TEXTS = 100_000
"""Passages or turns that a vocabulary is made of, drawn from all of them."""


class Corpora:
    """The corpora of a run, and its tasks, each of which draws from the first corpus of its kind.

    Where the configuration names no tasks, those are chosen that are usual for the corpora and have
    pairs; `config` then names them. Raises UsageError for a task that has no corpus of its kind,
    DataError for one whose corpus lacks what it needs.
    """

    def __init__(
        self,
        corpora: Sequence[DocumentSource],
        config: PretrainingConfig,
        *,
        tables: TablesSettings,
        tasks: TaskSettings,
        batch_size: int,
        seed: int,
    ) -> None:
        self.tables = [open_tables(corpus, tables) for corpus in corpora]
        self.settings = tasks
        self.left_out: dict[str, str] = {}
        """Usual tasks that were not chosen, each with what the corpus lacks for it."""
        self.config = config if config.tasks is not None else self.with_usual_tasks(config, seed)
        self.batch_size = batch_size
        self.seed = seed
        self.identity = [
            [corpus.fingerprint for corpus in corpora],
            to_mapping(self.config),
            to_mapping(tables),
            {name: to_mapping(own) for name, own in vars(tasks).items()},
            seed,
        ]
        """Everything that texts and pairs depend on, but the size of a step."""

    def with_usual_tasks(self, config: PretrainingConfig, seed: int) -> PretrainingConfig:
        """The configuration with the usual tasks of the corpora, of which each has pairs.

        Where articles have pairs for none of theirs, MLM is taken.
        """
        chosen: list[str] = []
        for kind in dict.fromkeys(tables.kind for tables in self.tables):
            tasks = [
                make_task(name, self.tables_for(name), "train", seed, self.settings)
                for name in USUAL[kind]
            ]
            self.left_out |= {task.name: task.lacking for task in tasks if not len(task)}
            chosen += [task.name for task in tasks if len(task)]
        return replace(config, tasks=",".join(dict.fromkeys(chosen or ["mlm"])))

    def tables_for(self, name: str) -> CorpusTables:
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
            make_task(name, self.tables_for(name), split, self.seed, self.settings)
            for name in self.config.weights
        ]

    @cached_property
    def mixture(self) -> Mixture:
        """All tasks of the training side as one endless sequence; its length is that of a pass."""
        return Mixture(
            self.tasks(),
            list(self.config.weights.values()),
            self.seed,
            mix_tasks=self.config.mix_tasks,
            batch_size=self.batch_size,
        )

    def pairs(self, num_pairs: int, masking: MaskingConfig) -> CorpusPairs:
        """The first pairs of the mixture, as many as a run takes."""
        described = [*self.identity, to_mapping(masking), self.batch_size, num_pairs]
        tasks = self.tasks("held_out")
        most = self.config.held_out_pairs
        return CorpusPairs(
            self.mixture,
            num_pairs,
            config=self.config,
            readings={task.reading for task in tasks},
            num_answers=max(task.num_answers for task in tasks),
            masking=masking,
            fingerprint=hashlib.sha256(json.dumps(described).encode()).hexdigest(),
            held_out={task.name: list(task.sample(most)) for task in tasks},
            held_out_steps=self.held_out_steps([task for task in tasks if len(task)]),
        )

    def held_out_steps(self, tasks: Sequence[PretrainingTask[Any]]) -> list[Sequence[Pair]]:
        """Pairs of the held-out side in steps: of all tasks by their shares, or each of one task.

        A task has up to `held_out_pairs` on average; in steps of one task, the one of the largest
        share has as many, and the others fewer by their shares.
        """
        most = self.config.held_out_pairs
        weights = [self.config.weights[task.name] for task in tasks]
        if not tasks:
            return []
        if self.config.mix_tasks:
            mixture = Mixture(tasks, weights, self.seed)
            count = min(most * len(tasks), len(mixture))
            return in_steps([mixture[number] for number in range(count)], self.batch_size)
        counts = [max(round(most * weight / max(weights)), 1) for weight in weights]
        return [
            step
            for task, count in zip(tasks, counts, strict=True)
            for step in in_steps(list(task.sample(count)), self.batch_size)
        ]

    def texts(self) -> VocabularyTexts:
        """What a vocabulary is made of."""
        return VocabularyTexts(self.tables, self.seed)


class VocabularyTexts:
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


class EndlessPairs(Protocol):
    """Pairs by number, without end, in an order that needs no shuffling."""

    def __getitem__(self, number: int) -> Pair: ...


class CorpusPairs(Sequence[Pair]):
    """The pairs of a run; `pairs` holds them in the order in which they are read.

    `readings` are how the two texts of a pair may be read. `masking` is for those that are not read
    apart. `fingerprint` identifies the corpora and all that the pairs depend on. `held_out` are
    pairs that are not trained on, by task; `held_out_steps` are such pairs in the steps of which
    the dev loss is the mean. The labels of pairs have `num_answers` classes.
    """

    def __init__(
        self,
        pairs: EndlessPairs,
        num_pairs: int,
        *,
        config: PretrainingConfig,
        readings: Set[Reading],
        masking: MaskingConfig,
        fingerprint: str,
        held_out: Mapping[str, Sequence[Pair]],
        held_out_steps: Sequence[Sequence[Pair]] = (),
        num_answers: int = 2,
    ) -> None:
        self.pairs = pairs
        self.num_pairs = num_pairs
        self.config = config
        self.readings = readings
        self.num_answers = num_answers
        self.masking = masking
        self.fingerprint = fingerprint
        self.held_out = held_out
        self.held_out_steps = held_out_steps

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
