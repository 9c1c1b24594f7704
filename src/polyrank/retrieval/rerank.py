"""Retrieve, then rerank: an index finds candidates, a cross-encoder orders them.

Knows nothing of vectors, tokens or how an index is searched.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from torch import Tensor

from polyrank.config import require
from polyrank.errors import UsageError, not_numbers
from polyrank.records import Context, Hit
from polyrank.retrieval.engine import Found, SearchResults
from polyrank.retrieval.filters import Filter

if TYPE_CHECKING:
    from polyrank.retrieval.index import Index

Pair = tuple[str | tuple[str, ...], str]
"""A context and a candidate's text, as a key."""


class PairModel(Protocol):
    """A model that reads context and candidate together: a cross-encoder."""

    @property
    def config(self) -> Any:
        """The settings; `config.architecture` is `cross`, `config.task` is `rank` or `regress`."""

    def score_pairs(
        self, pairs: Sequence[tuple[Context, str]], *, show_progress_bar: bool = False
    ) -> Tensor:
        """The score of each pair: (n,)."""


class RerankedResults(SearchResults):
    """The hits of each context with the reranker's scores, best first.

    `retrieved` is what the index found, with its scores, and `reports` says how: `certified` is
    about the retrieved candidates, since no search knows what a cross-encoder would prefer.
    """

    def __init__(self, found: Iterable[Found], retrieved: SearchResults) -> None:
        super().__init__(found)
        self.retrieved = retrieved


class RetrieveRerank:
    """An index, and a cross-encoder that reads the best it finds. Searched like an index."""

    def __init__(self, index: Index, reranker: PairModel, *, num_candidates: int = 100) -> None:
        """The index retrieves `num_candidates` for the reranker.

        Raises UsageError for a reranker that is not a cross-encoder, or that gives classes.
        """
        require_reranker(reranker)
        require(num_candidates >= 1, "num_candidates", "at least 1", num_candidates)
        self.index = index
        self.reranker = reranker
        self.num_candidates = num_candidates

    def search(
        self,
        contexts: Sequence[Context],
        top_k: int = 10,
        *,
        exact: bool = False,
        filter: str | Filter | None = None,
        show_progress_bar: bool = False,
    ) -> RerankedResults:
        """The best `top_k` of the retrieved candidates for each context, as the reranker scores.

        `num_candidates` are retrieved, or `top_k` if that is more; `exact` and `filter` are the
        index's. There are fewer hits where fewer candidates pass the filter. Equal texts are
        scored once; ties by the larger id. Raises UsageError for a `top_k` that is not between 1
        and the number of candidates in the index, ModelError if scores are not numbers.
        """
        total = len(self.index)
        known = f"from 1 to the number of candidates in the index, {total}"
        require(1 <= top_k <= total, "top_k", known, top_k)
        count = min(max(self.num_candidates, top_k), total)
        retrieved = self.index.search(contexts, top_k=count, exact=exact, filter=filter)
        rows = [
            [pair_of(context, hit) for hit in hits]
            for context, hits in zip(contexts, retrieved, strict=True)
        ]
        scores = self.score((pair for pairs in rows for pair in pairs), show_progress_bar)
        found = [
            Found(rerank(hits, [scores[pair] for pair in pairs], top_k), report)
            for hits, pairs, report in zip(retrieved, rows, retrieved.reports, strict=True)
        ]
        return RerankedResults(found, retrieved)

    def score(self, pairs: Iterable[Pair], show_progress_bar: bool) -> dict[Pair, float]:
        """The reranker's score of each pair; equal pairs are scored once."""
        different = list(dict.fromkeys(pairs))
        scores = self.reranker.score_pairs(different, show_progress_bar=show_progress_bar).tolist()
        if any(map(math.isnan, scores)):
            raise not_numbers("The reranker's scores of a context")
        return dict(zip(different, scores, strict=True))

    def __repr__(self) -> str:
        return f"RetrieveRerank({self.index!r}, num_candidates={self.num_candidates})"


def require_reranker(model: Any) -> None:
    """Raise UsageError for a model that does not give one score for a pair.

    Those are the cross-encoders with the task `rank` or `regress`: the values of one that was
    trained by regression order candidates as scores do.
    """
    config = getattr(model, "config", None)
    architecture = getattr(config, "architecture", None)
    if architecture != "cross":
        names = {"bi": "a bi-encoder", "poly": "a poly-encoder"}
        named = names.get(str(architecture), type(model).__name__)
        raise UsageError(
            f"A reranker must be a cross-encoder, got {named}.",
            "Load or train a cross-encoder; bi- and poly-encoders make the index.",
        )
    task = getattr(config, "task", None)
    if task not in ("rank", "regress"):
        raise UsageError(
            "A reranker must be a cross-encoder with the task 'rank' or 'regress', got one with "
            f"{task!r}.",
            "Train one with task='rank' (--task rank).",
        )


def pair_of(context: Context, hit: Hit) -> Pair:
    """The context and the text of a hit, as a key."""
    return context if isinstance(context, str) else tuple(context), hit.text


def rerank(hits: Sequence[Hit], scores: Sequence[float], top_k: int) -> list[Hit]:
    """The best `top_k` hits by the new scores, best first; ties by the larger id."""
    rescored = [hit._replace(score=score) for hit, score in zip(hits, scores, strict=True)]
    return sorted(rescored, key=lambda hit: (hit.score, hit.id), reverse=True)[:top_k]
