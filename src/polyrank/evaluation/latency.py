"""How long one query takes, by the number of candidates.

A bi- or poly-encoder encodes the context and scores it against cached candidate vectors: all of
them where they are few, by the exact search of an index where they are many. A cross-encoder reads
every pair; where that would take too long, the time is extrapolated linearly from the largest size
that was measured, and says so.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from polyrank.errors import UsageError
from polyrank.evaluation.pairs import measure_pairs
from polyrank.evaluation.ranking import Ranker, TwoTowerRanker
from polyrank.records import Candidate, Context, LabelledPair
from polyrank.retrieval.bm25.index import BM25Index
from polyrank.scoring.poly import Attention
from polyrank.scoring.screen import ScreenRows, norms_of, quantised, sketches_are_faster
from polyrank.scoring.topk import (
    BLOCK_ROWS,
    Best,
    CandidateBlock,
    Ranked,
    RowNumbers,
    best_rows,
    top_k,
)

ENCODED_TEXTS = 256
"""This many candidates are encoded and then repeated: the time of a score does not depend on its
value.
"""

SCORED_WHOLE = 10_000
"""Up to this many candidates are all scored; more are searched for the best `SEARCHED`."""

SEARCHED = 10
SPREAD = 0.5
"""Searched candidates are not repeated as they are: each gets noise of this share of its norm,
since what a search may skip depends on how the vectors lie."""


@dataclass(frozen=True, kw_only=True)
class Latency:
    """Milliseconds of one query against `num_candidates`: the median over `num_queries`."""

    num_candidates: int
    milliseconds: float
    num_queries: int
    extrapolated: bool = False

    def __str__(self) -> str:
        shown = float(f"{self.milliseconds:.3g}") if self.extrapolated else self.milliseconds
        digits = 3 if shown < 0.1 else 1 if shown < 100 else 0
        return f"{'~' if self.extrapolated else ''}{shown:,.{digits}f}"


@runtime_checkable
class SearchableRanker(TwoTowerRanker, Protocol):
    """A two-tower model whose vectors an exact search can take."""

    attention: Attention
    device: torch.device


def measure_latency(
    model: Ranker,
    contexts: Sequence[Context],
    candidate_texts: Sequence[str],
    *,
    sizes: Sequence[int] = (100, 1000, 10000),
    num_queries: int = 10,
    time_limit: float = 20.0,
) -> dict[int, Latency]:
    """Time one query at each number of candidates, warm-up excluded; texts are repeated to fill.

    All sizes together take about `time_limit` seconds: fewer queries are timed, at least one, when
    it runs out, and a cross-encoder's larger sizes are extrapolated. Filling a cache is not timed.
    Raises UsageError for no contexts or no candidates.
    """
    if not contexts or not candidate_texts:
        raise UsageError(
            f"Latency needs texts to measure with, got {len(contexts)} contexts and "
            f"{len(candidate_texts)} candidates.",
            "Give at least one of each.",
        )
    queries = list(islice(cycle(contexts), num_queries))
    left = time_limit
    found: dict[int, Latency] = {}
    for position, size in enumerate(sorted(sizes)):
        is_fast = isinstance(model, (TwoTowerRanker, BM25Index))
        if found and not is_fast:
            largest = found[sorted(sizes)[position - 1]]
            expected = largest.milliseconds * size / largest.num_candidates
            if largest.extrapolated or expected / 1000 > left:
                found[size] = Latency(
                    num_candidates=size, milliseconds=expected, num_queries=0, extrapolated=True
                )
                continue
        ask = asker(model, candidate_texts, size)
        share = left / (len(sizes) - position)
        started = time.perf_counter()
        seconds = time_queries(ask, queries, share, warm_up=not found or is_fast)
        left -= time.perf_counter() - started
        found[size] = Latency(
            num_candidates=size,
            milliseconds=1000 * statistics.median(seconds),
            num_queries=len(seconds),
        )
    return {size: found[size] for size in sizes}


def measure_pair_latency(
    model: Any, pairs: Sequence[LabelledPair], *, num_rounds: int = 10, time_limit: float = 20.0
) -> Latency:
    """The time of one pair: that of scoring or classifying the first 256 at once, divided by them.

    The median over `num_rounds`, of which at least one is timed and no more than fit into about
    `time_limit` seconds; warm-up excluded. Raises as `measure_pairs`.
    """
    timed = pairs[:ENCODED_TEXTS]
    seconds = time_queries(
        lambda _: measure_pairs(model, timed), [""] * num_rounds, time_limit, warm_up=True
    )
    return Latency(
        num_candidates=1,
        milliseconds=1000 * statistics.median(seconds) / len(timed),
        num_queries=len(seconds) * len(timed),
    )


def asker(model: Ranker, candidate_texts: Sequence[str], size: int) -> Callable[[Context], object]:
    """The function that answers one query against `size` candidates, its cache filled."""
    if isinstance(model, TwoTowerRanker):
        return vector_asker(model, candidate_texts, size)
    texts = list(islice(cycle(candidate_texts), size))
    if isinstance(model, BM25Index):
        index = BM25Index.build(
            [Candidate(str(row), text) for row, text in enumerate(texts)], model.config
        )
        return lambda context: index.search([context], min(SEARCHED, size))
    pair_ranker = model
    return lambda context: pair_ranker.score_pairs([(context, text) for text in texts]).cpu()


def vector_asker(
    model: TwoTowerRanker, candidate_texts: Sequence[str], size: int
) -> Callable[[Context], object]:
    """The asker of a model with candidate vectors."""
    vectors = model.encode_candidates_for_scoring(candidate_texts[: min(ENCODED_TEXTS, size)])
    repeated = vectors.repeat(-(-size // len(vectors)), 1)[:size].contiguous()  # (N, d)
    searchable = model if isinstance(model, SearchableRanker) else None
    on_gpu = searchable is not None and searchable.device.type == "cuda"
    device = searchable.device if searchable is not None and on_gpu else torch.device("cpu")
    if size <= SCORED_WHOLE or searchable is None:
        cached = repeated.to(device)
        return lambda context: model.score_all(
            model.encode_for_scoring([context]).to(device), cached
        ).cpu()
    attention = searchable.attention
    if on_gpu:
        cached = spread(repeated).to(device)
        return lambda context: top_k(
            model.encode_for_scoring([context]), cached, SEARCHED, attention
        )
    search = VectorSearch(spread(repeated), attention)
    return lambda context: search.best(model.encode_for_scoring([context]), SEARCHED)


def spread(vectors: Tensor) -> Tensor:
    """Vectors (N, d), each moved at random and brought back to its norm."""
    generator = torch.Generator().manual_seed(0)
    norms = torch.linalg.vector_norm(vectors, dim=1, keepdim=True)  # (N, 1)
    noise = torch.randn(vectors.shape, generator=generator).mul_(vectors.shape[1] ** -0.5)
    moved = noise.mul_(SPREAD * norms).add_(vectors)
    return moved.mul_(norms / torch.linalg.vector_norm(moved, dim=1, keepdim=True).clamp_min(1e-12))


def time_queries(
    ask: Callable[[Context], object], queries: Sequence[Context], limit: float, *, warm_up: bool
) -> list[float]:
    """Seconds of each query, the first run of all not counted; at least one is timed."""
    started = time.perf_counter()
    if warm_up:
        ask(queries[0])
    seconds: list[float] = []
    for context in queries:
        before = time.perf_counter()
        ask(context)
        now = time.perf_counter()
        seconds.append(now - before)
        if now - started + seconds[-1] > limit:
            break
    return seconds


class VectorSearch:
    """Candidates (N, d), float32, screened in 8 bits where that is cheaper on this machine."""

    def __init__(self, vectors: Tensor, attention: Attention) -> None:
        self.vectors = vectors
        self.attention = attention
        self.sketches: list[CandidateBlock] | None = None
        self.whole = [
            CandidateBlock(start, ScreenRows(part, None, norms_of(part), None))
            for start, part in self.parts()
        ]

    def parts(self) -> list[tuple[int, Tensor]]:
        """The blocks, each with its first row."""
        starts = range(0, len(self.vectors), BLOCK_ROWS)
        return [(start, self.vectors[start : start + BLOCK_ROWS]) for start in starts]

    def best(self, contexts: Tensor, k: int) -> list[Ranked]:
        """The best k for each context (B, m, d); ties by the larger row."""
        keepers = [Best(k, lambda row: row) for _ in contexts]
        return best_rows(contexts, self.attention, self.blocks(contexts), self.gather, keepers)

    def blocks(self, contexts: Tensor) -> list[CandidateBlock]:
        """What is screened: the cheaper of the sketches and the vectors themselves."""
        if not sketches_are_faster(contexts, torch.float32):
            return self.whole
        if self.sketches is None:
            self.sketches = [CandidateBlock(start, quantised(part)) for start, part in self.parts()]
        return self.sketches

    def gather(self, rows: RowNumbers) -> Tensor:
        """The vectors of some rows: (n,) → (n, d)."""
        return self.vectors[torch.from_numpy(rows)]
