"""A model on a retrieval set: it searches the whole corpus, and the ranking is judged query by
query.

The measures are those of `ir-measures` (extra `metrics`): nDCG, recall and MRR at any cut, and MAP.
Ties are broken by the larger id, as in every search. Knows nothing of files.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np

from polyrank.errors import DataError, MissingExtraError, UsageError, not_numbers
from polyrank.evaluation.metric_names import corpus_metrics, parse_metric
from polyrank.evaluation.metrics import QueryMetrics
from polyrank.evaluation.ranking import PairRanker, TwoTowerRanker
from polyrank.progress import bar
from polyrank.records import Candidate, Context, Hit
from polyrank.retrieval.rerank import require_reranker
from polyrank.scoring.topk import top_k

if TYPE_CHECKING:
    from polyrank.records import RetrievalSet

Rankings = dict[str, list[str]]
"""The ids of the documents that each query finds, the best first."""

DEPTH = 1000
"""Documents of a ranking, unless a metric looks further: what is below counts as not found."""
USUAL = corpus_metrics()
MEASURES = {"recall": "R", "ndcg": "nDCG", "mrr": "RR", "map": "AP"}
"""What `ir-measures` calls the kinds of metrics."""

QUERIES_AT_ONCE = 64


@runtime_checkable
class Searcher(Protocol):
    """Anything that searches candidates of its own: an index, BM25, an index with a reranker."""

    def search(self, contexts: Sequence[Context], top_k: int = 10) -> Sequence[Sequence[Hit]]:
        """The best `top_k` candidates for each context, the best first."""
        ...


def evaluate_retrieval(
    model: TwoTowerRanker | Searcher,
    data: RetrievalSet,
    *,
    reranker: PairRanker | None = None,
    num_candidates: int = 100,
    metrics: Sequence[str] = USUAL,
    depth: int | None = None,
    show_progress_bar: bool = False,
) -> QueryMetrics:
    """Search the corpus for every judged query and measure each ranking of `depth` documents.

    `metrics` are names such as `recall@20`, `ndcg@10`, `mrr` or `map`; `depth` is by default 1,000,
    or the largest K among them. With a `reranker`, the best `num_candidates` are put into its order
    and the others stay below them. Raises MissingExtraError without the extra `metrics`, UsageError
    for an unknown metric, for a model that cannot search and for a reranker that is not a
    cross-encoder that ranks.
    """
    measures(metrics)
    depth = depth_for(metrics) if depth is None else depth
    if reranker is not None:
        require_reranker(reranker)
    rankings = retrieve(model, data, depth=depth, show_progress_bar=show_progress_bar)
    if reranker is not None:
        rankings = rerank(
            reranker, data, rankings, num_candidates, show_progress_bar=show_progress_bar
        )
    return judge(rankings, data, metrics)


def retrieve(
    model: Any, data: RetrievalSet, *, depth: int = DEPTH, show_progress_bar: bool = False
) -> Rankings:
    """The best `depth` documents for each judged query.

    A document with the id of the query is the query itself, as in BEIR, and is left out, unless it
    is judged relevant.
    """
    queries = judged(data)
    texts = list(queries.values())
    count = min(depth + 1, len(data.corpus))
    if isinstance(model, TwoTowerRanker):
        found = search_vectors(model, data.corpus, texts, count, show_progress_bar)
    elif isinstance(model, Searcher):
        found = [[hit.id for hit in hits] for hits in model.search(texts, count)]
    else:
        raise UsageError(
            "A cross-encoder cannot search a corpus: it reads every pair.",
            "Give a bi- or poly-encoder, or bm25, and the cross-encoder with --reranker.",
        )
    rankings = {}
    for query, ids in zip(queries, found, strict=True):
        itself = query if data.judgements[query].get(query, 0) <= 0 else None
        rankings[query] = [each for each in ids if each != itself][:depth]
    return rankings


def search_vectors(
    model: Any,
    corpus: Sequence[Candidate],
    contexts: Sequence[Context],
    k: int,
    show_progress_bar: bool,
) -> list[list[str]]:
    """The ids of the best k documents for each context, by exact search in memory."""
    ordered = sorted(corpus, key=lambda each: each.id)  # of equal scores the larger row comes first
    vectors = model.encode_candidates_for_scoring(
        [each.text for each in ordered], show_progress_bar=show_progress_bar
    )
    encoded = model.encode_for_scoring(contexts, show_progress_bar=show_progress_bar)
    if not bool(vectors.isfinite().all()):
        raise not_numbers("The vectors of the corpus")
    if model.device.type == "cuda":
        vectors = vectors.to(model.device)
    found = []
    with bar(
        "Searching" if show_progress_bar else None, total=len(contexts), unit="queries"
    ) as advance:
        for group in encoded.split(QUERIES_AT_ONCE):
            for ranked in top_k(group, vectors, k, model.attention):
                found.append([ordered[row].id for row in ranked.rows])
            advance(len(group))
    return found


def rerank(
    model: PairRanker,
    data: RetrievalSet,
    rankings: Rankings,
    top: int,
    *,
    show_progress_bar: bool = False,
) -> Rankings:
    """The best `top` of each ranking by the model's score, ties by the larger id; then the rest."""
    texts = {each.id: each.text for each in data.corpus}
    pairs = [
        (data.queries[query], texts[each]) for query, ids in rankings.items() for each in ids[:top]
    ]
    scores = model.score_pairs(pairs, show_progress_bar=show_progress_bar).tolist() if pairs else []
    if any(map(math.isnan, scores)):
        raise not_numbers("The reranker's scores")
    remaining = iter(scores)
    reranked = {}
    for query, ids in rankings.items():
        head = ids[:top]
        scored = sorted(zip(islice(remaining, len(head)), head, strict=True), reverse=True)
        reranked[query] = [each for _, each in scored] + ids[top:]
    return reranked


def judge(
    rankings: Mapping[str, Sequence[str]], data: RetrievalSet, metrics: Sequence[str] = USUAL
) -> QueryMetrics:
    """The metrics of each judged query; one that finds nothing has zeros."""
    import ir_measures

    named = measures(metrics)
    queries = list(judged(data))
    # Places in the place of scores: every measure then sees the same order, ties included.
    run = {
        query: {each: float(-place) for place, each in enumerate(rankings.get(query, ()))}
        for query in queries
    }
    judgements = {query: dict(data.judgements[query]) for query in queries}
    values = {name: np.zeros(len(queries)) for name in named}
    places = {query: place for place, query in enumerate(queries)}
    names = {measure: name for name, measure in named.items()}
    for found in ir_measures.iter_calc(list(named.values()), judgements, run):
        values[names[found.measure]][places[found.query_id]] = found.value
    size = len(data.corpus)
    return QueryMetrics(
        ids=tuple(queries), values=values, num_candidates=(size, size), searched=True
    )


def judged(data: RetrievalSet) -> dict[str, Context]:
    """The queries that have judgements, in the order of the judgements."""
    queries: dict[str, Context] = {
        query: data.queries[query] for query in data.judgements if query in data.queries
    }
    if not queries or not data.corpus:
        raise DataError(
            f"The retrieval set has {len(data.corpus)} documents and {len(queries)} queries with "
            "judgements, where at least one of each is needed.",
            "Choose another split.",
        )
    return queries


def measures(metrics: Sequence[str] = USUAL) -> dict[str, Any]:
    """The measures of `ir-measures` by our names. Raises MissingExtraError, UsageError."""
    try:
        import ir_measures
    except ImportError:
        raise MissingExtraError("ir-measures", "metrics", "Judging a retrieval set") from None
    parsed = {name: parse_metric(name) for name in metrics}
    return {
        name: ir_measures.parse_measure(
            MEASURES[metric.kind] + ("" if metric.cut is None else f"@{metric.cut}")
        )
        for name, metric in parsed.items()
    }


def depth_for(metrics: Sequence[str]) -> int:
    """The documents that a ranking needs for the metrics."""
    return max([DEPTH, *(parse_metric(name).cut or 0 for name in metrics)])
