"""Search in a collection: inner-product searches in Milvus, the poly score here.

With l_i = y_i · e the poly score is a convex combination of the l_i, so it is at most max_i l_i,
for both kinds of attention. If the last of the n candidates found along y_i has the product t_i, no
other candidate has more than t_i along y_i. So a candidate that no search found scores at most
max_i t_i, and the best k are certain once the k-th score exceeds that by more than the rounding
error of floating-point sums (docs/bounds.md).

Letters: B contexts, m vectors of each, N candidates, d dimensions.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from polyrank.errors import not_numbers
from polyrank.retrieval.engine import SearchReport, Strategy
from polyrank.retrieval.milvus.collection import MOST_HITS, Collection
from polyrank.retrieval.milvus.schema import IDENTIFIER, VECTOR, Description, vector_of
from polyrank.retrieval.search.approximate import probes_of
from polyrank.scoring.poly import Attention, ExactScorer

BLOCK_ROWS = 4096
MOST_PROBES = 16
FIRST = 64
WIDEN = 4
EXPLORED = 4
"""How many candidates a graph explores for each one requested."""


@dataclass(slots=True)
class Ranking:
    """The best k of one context so far, by (score, id)."""

    context: Tensor
    attention: Attention
    top_k: int
    best: list[tuple[float, str]] = field(default_factory=list)
    num_scored: int = 0
    _scorer: ExactScorer = field(init=False)

    def __post_init__(self) -> None:
        self._scorer = ExactScorer(self.context, self.attention)

    def offer(self, identifiers: Sequence[str], vectors: NDArray[np.float32]) -> None:
        """Score candidates that have not been scored yet. Raises ModelError for a score of NaN."""
        for start in range(0, len(vectors), BLOCK_ROWS):
            part = vectors[start : start + BLOCK_ROWS]
            self._keep(identifiers[start : start + BLOCK_ROWS], self._scores(part))
        self.num_scored += len(vectors)

    def _scores(self, vectors: NDArray[np.float32]) -> NDArray[np.float32]:
        with torch.inference_mode():
            values: NDArray[np.float32] = self._scorer.scores(torch.from_numpy(vectors)).numpy()
        if np.isnan(values).any():
            raise not_numbers("The scores of a context")
        return values

    def _keep(self, identifiers: Sequence[str], scores: NDArray[np.float32]) -> None:
        places = np.flatnonzero(scores >= self.threshold).tolist()
        offered = [(float(scores[place]), identifiers[place]) for place in places]
        self.best = heapq.nlargest(self.top_k, self.best + offered)

    @property
    def threshold(self) -> float:
        """The k-th score; −inf while there are fewer."""
        return self.best[-1][0] if len(self.best) == self.top_k else -np.inf

    def forget(self) -> None:
        """Forget what was scored and start again."""
        self.best, self.num_scored = [], 0

    def report(self, strategy: Strategy, num_candidates: int, *, certified: bool) -> SearchReport:
        """How the best were found."""
        return SearchReport(
            strategy=strategy,
            num_candidates=num_candidates,
            num_scored=self.num_scored,
            certified=certified,
        )


Outcome = tuple[Ranking, SearchReport]


class Searcher:
    """Searches of one collection, among the candidates that match an expression."""

    def __init__(self, collection: Collection, description: Description, expression: str) -> None:
        self._collection = collection
        self._description = description
        self._expression = expression
        self._num_candidates = collection.count(expression)

    def search(self, contexts: Tensor, top_k: int, *, exact: bool) -> list[Outcome]:
        """The best of each context (B, m, d); fewer than k only if there are fewer."""
        rankings = [Ranking(each, self._description.attention, top_k) for each in contexts]
        find = self._certain if exact else self._likely
        reports = find(rankings) if self._num_candidates else [None] * len(rankings)
        missed = [r for r, report in zip(rankings, reports, strict=True) if report is None]
        total = self._scan(missed) if self._num_candidates else 0
        return [
            (ranking, report or ranking.report("scan", total, certified=True))
            for ranking, report in zip(rankings, reports, strict=True)
        ]

    def _likely(self, rankings: list[Ranking]) -> list[SearchReport | None]:
        """One round of approximate searches for all contexts; None if it found too few."""
        directions = [
            probes_of(context, MOST_PROBES) if bool(context.any()) else context[:0]
            for context in (ranking.context for ranking in rankings)
        ]
        sizes = [len(each) for each in directions]
        if not sum(sizes):
            return [None] * len(rankings)
        limit = min(max(FIRST, 2 * rankings[0].top_k), MOST_HITS, self._num_candidates)
        found = self._collection.search(
            torch.cat(directions).numpy(), limit, self._expression, self._parameters(limit)
        )
        starts = np.cumsum([0, *sizes])
        unions = [
            {identifier for each in found[start:end] for identifier in each.ids}
            for start, end in pairwise(starts)
        ]
        vectors = self._vectors(set().union(*unions))
        return [
            self._likely_report(ranking, union & vectors.keys(), vectors)
            for ranking, union in zip(rankings, unions, strict=True)
        ]

    def _likely_report(
        self, ranking: Ranking, union: set[str], vectors: Mapping[str, NDArray[np.float32]]
    ) -> SearchReport | None:
        if len(union) < min(ranking.top_k, self._num_candidates):
            return None
        identifiers = sorted(union)
        ranking.offer(identifiers, np.stack([vectors[each] for each in identifiers]))
        certified = len(union) >= self._num_candidates
        return ranking.report("approximate", self._num_candidates, certified=certified)

    def _parameters(self, limit: int) -> dict[str, Any]:
        """What the index is searched with."""
        kind = self._description.index_type
        if kind.startswith("HNSW"):
            return {"ef": min(2 * MOST_HITS, EXPLORED * limit)}
        if kind.startswith("IVF"):
            lists = self._description.lists
            return {"nprobe": min(lists, max(8, lists // 8))}
        return {}

    def _certain(self, rankings: list[Ranking]) -> list[SearchReport | None]:
        """Exact searches for each context; None if only a scan can be certain."""
        if self._description.index_type != "FLAT":
            return [None] * len(rankings)
        return [self._widened(ranking) for ranking in rankings]

    def _widened(self, ranking: Ranking) -> SearchReport | None:
        """Search along every vector of the context, for more and more candidates."""
        vectors = distinct(ranking.context)  # (n, d)
        seen: set[str] = set()
        limit = max(FIRST, 2 * ranking.top_k)
        while len(vectors) and limit <= MOST_HITS and len(vectors) * limit < self._num_candidates:
            found = self._collection.search(vectors.numpy(), limit, self._expression, {})
            if any(len(each.ids) < limit for each in found):
                break
            fresh = {each for nearest in found for each in nearest.ids} - seen
            rows = self._vectors(fresh)
            if rows:
                ranking.offer(list(rows), np.stack(list(rows.values())))
            seen |= fresh
            unseen = max(float(each.products[-1]) for each in found)
            if ranking.threshold > unseen + self._error(ranking.context):
                return ranking.report("searches", self._num_candidates, certified=True)
            limit *= WIDEN
        ranking.forget()
        return None

    def _error(self, context: Tensor) -> float:
        """How much an inner product in Milvus and a score here may differ by rounding.

        Each of two sums of d products is off by at most (d + 2) u |y| |e|, u = 2⁻²⁴, and the
        weighted mean of m of them by 2 (m + 8) u of the largest.
        """
        length = float(torch.linalg.vector_norm(context, dim=1).max()) * self._description.norm
        num_vectors, dimension = context.shape
        return 2.0**-24 * length * (2 * (dimension + 2) + 2 * (num_vectors + 8))

    def _scan(self, rankings: list[Ranking]) -> int:
        """Score every candidate for all these contexts, in one pass; returns their number."""
        if not rankings:
            return 0
        total = 0
        fields = [IDENTIFIER, VECTOR]
        width = 4 * self._description.dimension + 64
        for page in self._collection.pages(self._expression, fields, width):
            matrix = np.array([row[VECTOR] for row in page], np.float32)
            identifiers = [row[IDENTIFIER] for row in page]
            for ranking in rankings:
                ranking.offer(identifiers, matrix)
            total += len(page)
        return total

    def _vectors(self, identifiers: set[str]) -> dict[str, NDArray[np.float32]]:
        """The vectors of candidates, by id; those deleted meanwhile are left out."""
        rows = self._collection.rows(sorted(identifiers), [IDENTIFIER, VECTOR])
        return {row[IDENTIFIER]: vector_of(row) for row in rows}


def distinct(context: Tensor) -> Tensor:
    """The vectors of a context (m, d) without zeros and repetitions: (n, d), 0 ≤ n ≤ m."""
    there = context[(context != 0).any(dim=1)]
    return torch.unique(there, dim=0) if len(there) else there
