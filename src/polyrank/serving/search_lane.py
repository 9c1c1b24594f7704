"""The lane of searches: contexts of several requests that ask alike are searched together.

Knows vectors and queries; knows nothing of requests.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from polyrank.retrieval.engine import Found
from polyrank.retrieval.filters import Filter
from polyrank.serving.scheduling.lanes import Stage

if TYPE_CHECKING:
    from polyrank.serving.live_index import LiveIndex

MOST_TOGETHER = 32
"""Contexts of one search: more would hold up what else waits, and gain nothing."""

TOKEN = 1 << 23
"""Products of 8-bit integers that take as long as a token of a small encoder."""

CHEAPEST = 16
"""The cost of a search that looks at few candidates, in tokens."""


class Query(NamedTuple):
    """What is asked besides the context. Contexts with equal queries are searched together."""

    top_k: int
    exact: bool
    filter: Filter | None


Item = tuple[Query, NDArray[np.float32]]
"""A query and the vectors of its context (m, d)."""


class SearchLane:
    """Searches of one index in a folder. Implements Lane."""

    name = "search"
    stage: Stage = "search"

    def __init__(self, live: LiveIndex) -> None:
        self._live = live
        self._most = MOST_TOGETHER

    @property
    def window(self) -> int:
        """Enough for searches of several kinds."""
        return 4 * self._most * self.cost

    @property
    def cost(self) -> int:
        """What an exact search of one context costs, about, in tokens."""
        model: Any = self._live.served.model
        return max(CHEAPEST, len(self._live.engine) * model.num_vectors * model.dimension // TOKEN)

    def costs(self, items: Sequence[Item]) -> Sequence[int]:
        """The cost of each search."""
        manifest = self._live.engine.manifest
        has_structure = manifest is not None and bool((manifest.search or {}).get("rows"))
        exact = self.cost
        return [exact if query.exact or not has_structure else CHEAPEST for query, _ in items]

    def together(self, items: Sequence[Item], costs: Sequence[int]) -> Sequence[int]:
        """Those that ask what the oldest asks."""
        first = items[0][0]
        return [place for place, (query, _) in enumerate(items) if query == first][: self._most]

    def run(self, items: Sequence[Item]) -> list[Found]:
        """What is found for each."""
        query = items[0][0]
        return self._live.find(np.stack([context for _, context in items]), **query._asdict())

    def results(self, count: int) -> list[Any]:
        """Room for what is found."""
        return [None] * count

    def check(self, results: Sequence[Found]) -> None:
        """Whatever is found is a result."""

    def padded(self, costs: Sequence[int]) -> int:
        """No padding."""
        return sum(costs)

    def shrink(self, cost: int) -> None:
        """Search fewer contexts together from now on: the memory does not hold more."""
        self._most = max(self._most // 2, 1)
