"""Retrieve, then rerank: an index finds candidates, a cross-encoder orders them.

Knows nothing of vectors, tokens or how an index is searched.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, overload

from torch import Tensor

from polyrank.config import require_whole
from polyrank.errors import UsageError, not_numbers
from polyrank.models.config import NAMES
from polyrank.models.inputs import Contexts, as_contexts
from polyrank.records import Context, Hit
from polyrank.retrieval.engine import Found, Hits, SearchResults
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


class RerankedHits(Hits):
    """The hits of one context with the reranker's scores, best first.

    `retrieved` is what the index found, with its scores, and `report` says how. `certified` refers
    to the retrieved candidates, since no search knows what a cross-encoder would prefer.
    """

    def __init__(self, found: Found, retrieved: Hits) -> None:
        super().__init__(found)
        self.retrieved = retrieved


class RerankedResults(SearchResults):
    """The hits of each context; `retrieved` is what the index found for each."""

    def __init__(self, found: Iterable[Found], retrieved: SearchResults) -> None:
        super().__init__(found)
        self.retrieved = retrieved


class RetrieveRerank:
    """An index, and a cross-encoder that reorders the best it finds. Searched like an index."""

    def __init__(self, index: Index, reranker: PairModel, *, num_candidates: int = 100) -> None:
        """The index retrieves `num_candidates` for the reranker.

        Raises UsageError for a reranker that is not a cross-encoder, or that predicts classes.
        """
        require_reranker(reranker)
        require_whole("num_candidates", num_candidates)
        self.index = index
        self.reranker = reranker
        self.num_candidates = num_candidates

    @overload
    def search(  # type: ignore[overload-overlap]
        self,
        contexts: str,
        top_k: int = ...,
        *,
        exact: bool = ...,
        filter: str | Filter | None = ...,
        show_progress_bar: bool = ...,
    ) -> RerankedHits: ...

    @overload
    def search(
        self,
        contexts: Sequence[Context],
        top_k: int = ...,
        *,
        exact: bool = ...,
        filter: str | Filter | None = ...,
        show_progress_bar: bool = ...,
    ) -> RerankedResults: ...

    def search(
        self,
        contexts: Contexts,
        top_k: int = 10,
        *,
        exact: bool = False,
        filter: str | Filter | None = None,
        show_progress_bar: bool = False,
    ) -> RerankedHits | RerankedResults:
        """The best of the retrieved candidates for each context, by the reranker's scores.

        Equal texts are scored once; the larger id wins a tie.

        Args:
            contexts: One text, or a list of contexts: texts, and dialogues as lists of turns.
            top_k: Hits for each context, at least 1. If there are fewer candidates, or fewer pass
                the filter, all of them are hits. `num_candidates` are retrieved, or `top_k` if
                that is more.
            exact: Retrieve exactly, as in `Index.search`.
            filter: A condition on the metadata, as in `Index.search`.
            show_progress_bar: Show progress if the search takes more than two seconds.

        Returns:
            A list of hits for each context; for one text, its list of hits. `retrieved` is what the
            index found.

        Raises:
            UsageError: `contexts` are not texts, `top_k` is below 1, or the filter does not fit the
                index.
            ModelError: Scores are not numbers.
        """
        require_whole("top_k", top_k)
        listed, is_one = as_contexts(contexts)
        count = max(self.num_candidates, top_k)
        retrieved = self.index.search(listed, top_k=count, exact=exact, filter=filter)
        rows = pairs_of(listed, retrieved)
        scores = self.score((pair for pairs in rows for pair in pairs), show_progress_bar)
        found = reranked([Found(hits, hits.report) for hits in retrieved], rows, scores, top_k)
        if is_one:
            return RerankedHits(found[0], retrieved[0])
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

    Cross-encoders with the task `rank` or `regress` do: the values of a regression order
    candidates as scores do.
    """
    config = getattr(model, "config", None)
    architecture = str(getattr(config, "architecture", None))
    if architecture != "cross":
        known = architecture in NAMES
        named = f"a {NAMES[architecture]}" if known else type(model).__name__
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


def pairs_of(contexts: Iterable[Context], hits: Iterable[Sequence[Hit]]) -> list[list[Pair]]:
    """What the reranker reads: each context with the text of each of its hits, as keys."""
    return [
        [pair_of(context, hit) for hit in found]
        for context, found in zip(contexts, hits, strict=True)
    ]


def reranked(
    found: Iterable[Found], rows: Iterable[list[Pair]], scores: Mapping[Pair, float], top_k: int
) -> list[Found]:
    """The best `top_k` of what was found for each context, by the new scores of its pairs."""
    return [
        rerank(each, [scores[pair] for pair in pairs], top_k)
        for each, pairs in zip(found, rows, strict=True)
    ]


def rerank(found: Found, scores: Sequence[float], top_k: int) -> Found:
    """The best `top_k` hits by the new scores, best first; the larger id wins a tie."""
    hits = [hit._replace(score=score) for hit, score in zip(found.hits, scores, strict=True)]
    order = sorted(range(len(hits)), key=lambda i: (hits[i].score, hits[i].id), reverse=True)
    best = order[:top_k]
    metadata = [found.metadata[i] for i in best] if found.metadata else ()
    return Found([hits[i] for i in best], found.report, metadata, len(hits))
