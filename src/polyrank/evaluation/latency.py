"""How long one query takes, by the number of candidates.

A bi- or poly-encoder encodes the context and scores it against cached candidate vectors; a
cross-encoder reads every pair. Where reading all pairs would take too long, the time is
extrapolated linearly from the largest size that was measured, and says so.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import cycle, islice

from polyrank.errors import UsageError
from polyrank.evaluation.rankers import Ranker, TwoTowerRanker
from polyrank.records import Context

ENCODED_TEXTS = 256
"""So many candidates are encoded and then repeated: the time of a score depends on no value."""


@dataclass(frozen=True, kw_only=True)
class Latency:
    """Milliseconds of one query against `num_candidates`: the median over `num_queries`."""

    num_candidates: int
    milliseconds: float
    num_queries: int
    extrapolated: bool = False

    def __str__(self) -> str:
        shown = float(f"{self.milliseconds:.3g}") if self.extrapolated else self.milliseconds
        return f"{'~' if self.extrapolated else ''}{shown:,.{1 if shown < 100 else 0}f}"


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
    it runs out, and a cross-encoder's larger sizes are extrapolated. Raises UsageError for no
    contexts or no candidates.
    """
    if not contexts or not candidate_texts:
        raise UsageError(
            f"Latency needs texts to measure with, got {len(contexts)} contexts and "
            f"{len(candidate_texts)} candidates.",
            "Give at least one of each.",
        )
    queries = list(islice(cycle(contexts), num_queries))
    deadline = time.perf_counter() + time_limit
    found: dict[int, Latency] = {}
    for position, size in enumerate(sorted(sizes)):
        left = deadline - time.perf_counter()
        is_fast = isinstance(model, TwoTowerRanker)
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
        seconds = time_queries(ask, queries, share, warm_up=not found or is_fast)
        found[size] = Latency(
            num_candidates=size,
            milliseconds=1000 * statistics.median(seconds),
            num_queries=len(seconds),
        )
    return {size: found[size] for size in sizes}


def asker(model: Ranker, candidate_texts: Sequence[str], size: int) -> Callable[[Context], object]:
    """The function that answers one query against `size` candidates, its cache filled."""
    if isinstance(model, TwoTowerRanker):
        two_tower = model
        vectors = two_tower.encode_candidates(candidate_texts[: min(ENCODED_TEXTS, size)])
        vectors = vectors.repeat(-(-size // len(vectors)), 1)[:size].contiguous()  # (N, d)
        return lambda context: two_tower.score(two_tower.encode_contexts([context]), vectors).cpu()
    pair_ranker = model
    texts = list(islice(cycle(candidate_texts), size))
    return lambda context: pair_ranker.score_pairs([(context, text) for text in texts]).cpu()


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
