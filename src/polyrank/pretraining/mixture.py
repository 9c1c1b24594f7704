"""Several tasks as one shuffled sequence, to be read in order from any place.

Item i depends only on the seed and i. So a run resumes where it stopped, and processes divide the
numbers among them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any

from polyrank.config import require
from polyrank.errors import UsageError
from polyrank.pretraining.pairs import Pair, link_key, of_corpus
from polyrank.pretraining.rng import Permutation, hash_numbers
from polyrank.pretraining.task import PretrainingTask
from polyrank.pretraining.tasks.bfs import Bfs

ROUND = 10_000
"""The shares of the tasks are exact over so many units (pairs, or batches of one task)."""

ORDERS_KEPT = 64


class Mixture:
    """Draws from tasks by weight, each task in a shuffled order, pass after pass.

    With `mix_tasks` neighbours are of any tasks, as in the paper. Without it each block of
    `batch_size` items, counted from 0, is of one task, whose in-batch negatives are harder.
    `len()` is the number of pairs of all tasks in one pass; a task with a large weight comes to its
    later passes before that, and item numbers may go beyond it.

    Raises UsageError for weights that do not fit, DataError for a task without pairs.
    """

    def __init__(
        self,
        tasks: Sequence[PretrainingTask[Any]],
        weights: Sequence[float] | None = None,
        seed: int = 0,
        *,
        mix_tasks: bool = True,
        batch_size: int = 1,
    ) -> None:
        self.tasks = list(tasks)
        self.seed = seed
        require(bool(self.tasks), "tasks", "at least one", 0)
        require(batch_size >= 1, "batch_size", "at least 1", batch_size)
        for task in self.tasks:
            task.require_pairs()
        equal = [1.0] * len(self.tasks)
        self._quotas = quotas(equal if weights is None else weights, self.tasks)
        self._places = places(self._quotas, hash_numbers(seed, len(self.tasks)))
        self._unit = 1 if mix_tasks else batch_size
        self._orders: dict[tuple[int, int], Permutation] = {}
        corpora = list(dict.fromkeys(str(task.tables.path) for task in self.tasks))
        self._corpora = [corpora.index(str(task.tables.path)) for task in self.tasks]
        names = {
            (task.name, corpus) for task, corpus in zip(self.tasks, self._corpora, strict=True)
        }
        self._shares_queries = [
            {("bfs", corpus), ("wlp", corpus)} <= names for corpus in self._corpora
        ]
        self._bfs = {
            corpus: task
            for task, corpus in zip(self.tasks, self._corpora, strict=True)
            if isinstance(task, Bfs)
        }
        self._mixed = mix_tasks

    @property
    def shares(self) -> list[float]:
        """The share of each task."""
        return [quota / ROUND for quota in self._quotas]

    def __len__(self) -> int:
        return sum(map(len, self.tasks))

    def __getitem__(self, index: int) -> Pair:
        number, place = self.locate(index)
        pair = self.tasks[number][place]
        return self._joint(number, pair)

    def __iter__(self) -> Iterator[Pair]:
        """The first `len(self)` pairs."""
        return map(self.__getitem__, range(len(self)))

    def locate(self, index: int) -> tuple[int, int]:
        """The number of the task of an item, and the item of that task."""
        if index < 0:
            raise IndexError(f"a mixture has no pair {index}")
        unit, within = divmod(index, self._unit)
        turn, place = divmod(unit, ROUND)
        number, rank = self._places[place]
        before = turn * self._quotas[number] + rank
        count = len(self.tasks[number])
        one_pass, item = divmod(before * self._unit + within, count)
        return number, one_pass * count + self._order(number, one_pass, count)(item)

    def _order(self, number: int, turn: int, count: int) -> Permutation:
        """The order of a task in one pass."""
        order = self._orders.get((number, turn))
        if order is None:
            if len(self._orders) >= ORDERS_KEPT:
                self._orders.clear()
            order = self._orders[number, turn] = Permutation(
                count, hash_numbers(self.seed, number, turn)
            )
        return order

    def _joint(self, number: int, pair: Pair) -> Pair:
        """A pair as the mixture sees it: its keys among those of the other tasks."""
        corpus = self._corpora[number]
        wanted = pair.wanted
        if self._shares_queries[number] and pair.task in ("bfs", "wlp"):
            wanted = both_wanted(wanted, self._bfs[corpus])
        return pair._replace(
            wanted=of_corpus(wanted, corpus),
            answers=of_corpus(pair.answers, corpus),
            frequency=self._frequency(number, pair),
        )

    def _frequency(self, number: int, pair: Pair) -> float:
        """How often the document is in `len(self)` pairs, from any task.

        In batches of one task: in the pairs of that task.
        """
        if pair.passage is None or not self._mixed:
            return pair.frequency
        total = 0.0
        for other, task in enumerate(self.tasks):
            if self._corpora[other] == self._corpora[number] and task.has_passages:
                often = pair.frequency if other == number else task.frequency(pair.passage)
                total += self._quotas[other] / ROUND * often / len(task)
        return total * len(self)


def places(quotas: Sequence[int], seed: int) -> list[tuple[int, int]]:
    """For each place of a round, its task and how many units of that task come before.

    The tasks are shuffled; each continues where it was, so one pass ends before the next begins.
    """
    starts = list(accumulate(quotas))
    order = Permutation(sum(quotas), seed)
    before = [0] * len(quotas)
    found = []
    for place in range(sum(quotas)):
        number = bisect_right(starts, order(place))
        found.append((number, before[number]))
        before[number] += 1
    return found


def both_wanted(wanted: frozenset[int], bfs: Bfs) -> frozenset[int]:
    """What a lead sentence wants that `bfs` and WLP ask with: whatever it wants in either."""
    articles = {key >> 2 for key in wanted}
    return frozenset(key for one in articles for key in (bfs.wanted_key(one), link_key(one)))


def quotas(weights: Sequence[float], tasks: Sequence[PretrainingTask[Any]]) -> list[int]:
    """How many of `ROUND` units each task has: by weight, rounded to the largest remainders."""
    names = ", ".join(task.name for task in tasks)
    if len(weights) != len(tasks):
        raise UsageError(
            f"There are {len(tasks)} tasks ({names}) and {len(weights)} weights.",
            "Give as many weights as tasks, or none.",
        )
    if any(not 0 < weight < float("inf") for weight in weights):
        raise UsageError(
            f"The weights of the tasks ({names}) must be above 0, got "
            f"{', '.join(f'{weight:g}' for weight in weights)}.",
            "Leave a task out instead of giving it no weight.",
        )
    exact = [weight / sum(weights) * ROUND for weight in weights]
    rounded = [max(1, int(value)) for value in exact]
    by_remainder = sorted(range(len(exact)), key=lambda n: exact[n] - rounded[n], reverse=True)
    for number in by_remainder[: max(0, ROUND - sum(rounded))]:
        rounded[number] += 1
    rounded[rounded.index(max(rounded))] += ROUND - sum(rounded)
    return rounded
