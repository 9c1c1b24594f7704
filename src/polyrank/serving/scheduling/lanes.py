"""Lanes: what the compute thread can run in batches. Knows nothing of requests, order or threads.

A lane takes items of one kind: the token ids of a model's graph, the vectors of a search. Items of
one lane may run together.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from polyrank.errors import not_numbers
from polyrank.models.base import Model
from polyrank.models.cross_encoder import CrossEncoder
from polyrank.serving.failures import RequestError
from polyrank.serving.scheduling.sizing import Speed, of_like_length
from polyrank.tokens.batching import UNPADDED, collate
from polyrank.tokens.grouping import Grouped

Stage = Literal["model", "search"]
"""Which time of a request a lane's seconds are: one of `Times`."""

WINDOW = 8
"""A batch is chosen among this many batches' worth of waiting items. A larger window finds items of
more equal length, and lets a batch reach further past items that came earlier."""


class Lane(Protocol):
    """Something that computes items in batches. All but `costs` is called in the compute thread."""

    name: str
    """For logs and metrics."""
    stage: Stage

    @property
    def window(self) -> int:
        """The total cost of the items that `together` may choose from."""

    def costs(self, items: Sequence[Any]) -> Sequence[int]:
        """What each item costs, in tokens: at least 1. An item that takes as long as a text of 100
        tokens costs 100.
        """

    def together(self, items: Sequence[Any], costs: Sequence[int]) -> Sequence[int]:
        """The places of the items that run in the next batch; place 0, the oldest, is among them.

        `items` are in fair order.
        """

    def run(self, items: Sequence[Any]) -> Any:
        """The result of each item: a sequence, or an array whose first axis is the items."""

    def results(self, count: int) -> Any:
        """Room for the results of so many items: what `run` gives is assigned to its places."""

    def check(self, results: Any) -> None:
        """Raise the error of a request whose results cannot be used."""

    def padded(self, costs: Sequence[int]) -> int:
        """The tokens that a batch of items of these costs computes, padding included."""

    def shrink(self, cost: int) -> None:
        """Make batches of at most this cost from now on: the memory does not hold larger ones."""


class Tokens(NamedTuple):
    """The token ids of a text or a pair, and their segments if the encoder has them."""

    ids: Sequence[int]
    segments: Sequence[int] | None = None


class TokenLane:
    """A model and one of its graphs. Implements Lane for items that are `Tokens`."""

    stage: Stage = "model"

    def __init__(self, name: str, model: Model, graph: str) -> None:
        """Name a graph of a model.

        Args:
            name: For logs and metrics.
            model: Any model.
            graph: What is made of the tokens (see `engines.record`).
        """
        self.name = name
        self.model = model
        self.graph = graph
        is_candidate = graph.startswith("candidate")
        tokenizer = model.candidate_tokenizer if is_candidate else model.tokenizer
        self.pad_id = tokenizer.padding
        self.budget = model.batch_tokens * (UNPADDED if self.pad_id is None else 1)
        self.shape = shape_of(model, graph)
        self.speed = Speed()
        self._read: Callable[[Any], torch.Tensor] | None = None

    @property
    def window(self) -> int:
        """Enough for a batch without padding; some batches' worth where texts are padded."""
        return self.budget if self.pad_id is None else WINDOW * self.speed.limit(self.budget)

    def costs(self, items: Sequence[Tokens]) -> Sequence[int]:
        """The tokens of each item."""
        return [len(item.ids) or 1 for item in items]

    def together(self, items: Sequence[Tokens], costs: Sequence[int]) -> Sequence[int]:
        """Items of about the length of the oldest, as many as are worth a batch."""
        if self.pad_id is None:
            return range(len(items))
        return of_like_length(costs, self.speed.limit(self.budget), self.speed.overhead)

    def run(self, items: Sequence[Tokens]) -> NDArray[np.float32]:
        """The results of the items, float32: (n, *shape)."""
        if self._read is None:
            self._read = self.model.reader(self.graph)
        began = time.perf_counter()
        segments: Any = None if items[0].segments is None else [item.segments for item in items]
        batch = collate([item.ids for item in items], np.arange(len(items)), self.pad_id, segments)
        device = self.model.device
        with torch.inference_mode():
            moved = {name: tensor.to(device) for name, tensor in batch.items()}
            results: NDArray[np.float32] = self._read(moved).float().cpu().numpy()
        self.speed.add(batch["input_ids"].numel(), time.perf_counter() - began)
        return results

    def results(self, count: int) -> NDArray[np.float32]:
        """Room for the results of so many items."""
        return np.zeros((count, *self.shape), dtype=np.float32)

    def check(self, results: NDArray[np.float32]) -> None:
        """Raise RequestError for results that are not numbers."""
        what = "scores" if self.graph == "pair" else "vectors"
        require_numbers(results, f"The {what} of the model {self.name}")

    def padded(self, costs: Sequence[int]) -> int:
        """The tokens that a batch of items of these costs computes, padding included."""
        return sum(costs) if self.pad_id is None else max(costs) * len(costs)

    def shrink(self, cost: int) -> None:
        """Make batches of at most this cost from now on: the memory does not hold larger ones."""
        self.budget = min(self.budget, cost)


class ContextTokens(NamedTuple):
    """The token ids of a context and of each of some candidates."""

    context: Sequence[int]
    candidates: Sequence[Sequence[int]]


class ContextLane:
    """A cross-encoder that reads a context once for all its candidates.

    Implements Lane for items that are `ContextTokens`; the result of one is the scores of its
    candidates. Nothing is padded, so that items of any length run together.
    """

    stage: Stage = "model"
    graph = "pair"

    def __init__(self, name: str, model: CrossEncoder) -> None:
        """Name a model.

        Args:
            name: For logs and metrics.
            model: A cross-encoder with reading = once.
        """
        self.name = name
        self.model = model
        self.budget = model.batch_tokens
        self.speed = Speed()

    @property
    def window(self) -> int:
        """Enough for a batch."""
        return self.speed.limit(self.budget)

    def costs(self, items: Sequence[ContextTokens]) -> Sequence[int]:
        """The tokens of each context and its candidates."""
        return [len(item.context) + sum(map(len, item.candidates)) for item in items]

    def together(self, items: Sequence[ContextTokens], costs: Sequence[int]) -> Sequence[int]:
        """The oldest items, as many as are worth a batch."""
        limit = self.window
        return range(max(sum(end <= limit for end in accumulate(costs)), 1))

    def run(self, items: Sequence[ContextTokens]) -> list[NDArray[np.float32]]:
        """The scores of the candidates of each item, float32.

        Items of one context read it once, unless it sees its candidates.
        """
        began = time.perf_counter()
        apart = self.model.config.context_sees_candidates
        contexts: dict[Any, Sequence[int]] = {}
        places: dict[Any, int] = {}
        owners: list[int] = []
        for number, item in enumerate(items):
            key = number if apart else tuple(item.context)
            contexts[key] = item.context
            owners += [places.setdefault(key, len(places))] * len(item.candidates)
        candidates = [ids for item in items for ids in item.candidates]
        grouped = Grouped(list(contexts.values()), candidates, owners, self.budget, whole=apart)
        scores = np.zeros(len(candidates), dtype=np.float32)
        for rows, found in self.model.read_groups(grouped):
            scores[rows.numpy()] = found.numpy()
        self.speed.add(sum(self.costs(items)), time.perf_counter() - began)
        return np.split(scores, list(accumulate(len(item.candidates) for item in items))[:-1])

    def results(self, count: int) -> list[Any]:
        """Room for the scores of so many items."""
        return [None] * count

    def check(self, results: Sequence[NDArray[np.float32]]) -> None:
        """Raise RequestError for scores that are not numbers."""
        require_numbers(np.concatenate(results), f"The scores of the model {self.name}")

    def padded(self, costs: Sequence[int]) -> int:
        """The tokens: nothing is padded."""
        return sum(costs)

    def shrink(self, cost: int) -> None:
        """Make batches of at most this cost from now on: the memory does not hold larger ones."""
        self.budget = min(self.budget, cost)


def number_of(items: Sequence[Any]) -> int:
    """How many texts or pairs the items of a lane are."""
    return sum(len(each.candidates) if isinstance(each, ContextTokens) else 1 for each in items)


def require_numbers(results: NDArray[np.float32], what: str) -> None:
    """Raise RequestError for results that are not numbers: the model's fault, not the client's."""
    if not np.isfinite(results).all():
        error = not_numbers(what)
        raise RequestError(500, error.problem, error.remedy)


def shape_of(model: Any, graph: str) -> tuple[int, ...]:
    """The shape of what a graph makes of one text or pair."""
    if graph == "pair":
        return ()
    if graph.startswith("candidate"):
        return (model.dimension,)
    return (model.num_vectors, model.dimension)


class CallLane:
    """Short work of a route, one call at a time. Implements Lane for items that are functions."""

    name = "call"
    window = 1
    cost = 64
    """Of one call, in tokens."""

    def __init__(self, stage: Stage) -> None:
        self.stage: Stage = stage

    def costs(self, items: Sequence[Callable[[], Any]]) -> Sequence[int]:
        """The same for each."""
        return [self.cost] * len(items)

    def together(self, items: Sequence[Callable[[], Any]], costs: Sequence[int]) -> Sequence[int]:
        """The oldest alone."""
        return [0]

    def run(self, items: Sequence[Callable[[], Any]]) -> list[Any]:
        """What each call returns."""
        return [item() for item in items]

    def results(self, count: int) -> list[Any]:
        """Room for what so many calls return."""
        return [None] * count

    def check(self, results: Sequence[Any]) -> None:
        """Whatever a call returns is its result."""

    def padded(self, costs: Sequence[int]) -> int:
        """No padding."""
        return sum(costs)

    def shrink(self, cost: int) -> None:
        """A call cannot be made smaller."""
