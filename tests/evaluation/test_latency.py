from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from fake_models import FakeCross, FakeTwoTower
from torch import Tensor

from polyrank.errors import UsageError
from polyrank.evaluation import latency
from polyrank.evaluation.latency import VectorSearch, measure_latency
from polyrank.records import Candidate
from polyrank.retrieval.bm25.index import BM25Index
from polyrank.scoring import screen
from polyrank.scoring.poly import poly_scores


class SlowCross(FakeCross):
    """0.2 ms per pair; remembers how many pairs each call had."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[int] = []

    def score_pairs(
        self, pairs: Sequence[tuple[object, str]], *, show_progress_bar: bool = False
    ) -> Tensor:
        self.calls.append(len(pairs))
        time.sleep(0.0002 * len(pairs))
        return torch.zeros(len(pairs))


def test_two_towers_are_measured_at_every_size() -> None:
    model = FakeTwoTower()
    found = measure_latency(model, ["a", "b"], ["x", "y", "z"], sizes=(10, 100), num_queries=4)
    assert list(found) == [10, 100]
    assert all(not each.extrapolated for each in found.values())
    assert all(each.num_queries == 4 for each in found.values())


def test_a_cross_encoder_is_extrapolated_where_it_takes_too_long() -> None:
    model = SlowCross()
    found = measure_latency(model, ["a"], ["x"], sizes=(10, 100, 10000), time_limit=0.3)
    assert set(model.calls) == {10, 100}
    assert [found[size].extrapolated for size in (10, 100, 10000)] == [False, False, True]
    assert found[10000].milliseconds == pytest.approx(100 * found[100].milliseconds)
    assert str(found[10000]).startswith("~")


def test_one_query_is_timed_however_long_it_takes() -> None:
    model = SlowCross()
    found = measure_latency(model, ["a"], ["x"], sizes=(100,), time_limit=0)
    assert found[100].num_queries == 1
    assert model.calls == [100, 100]  # the first warms up


def test_many_candidates_are_searched_exactly(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = torch.Generator().manual_seed(1)
    vectors = torch.randn(700, 16, generator=generator)
    contexts = torch.randn(2, 5, 16, generator=generator)
    expected = poly_scores(contexts, vectors).topk(10)
    for can_multiply in (True, False):
        monkeypatch.setattr(screen, "can_multiply_int8", lambda: can_multiply)  # noqa: B023
        for seconds in (0.0, 1.0):  # of a screen in 8 bits, against half a second
            times = {torch.int8: seconds, torch.float32: 0.5}
            monkeypatch.setattr(screen, "screening_seconds", lambda dtype, *_: times[dtype])  # noqa: B023
            found = VectorSearch(vectors, "basic").best(contexts, 10)
            assert [ranked.rows for ranked in found] == expected.indices.tolist()


def test_a_search_is_timed_beyond_what_is_scored_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    model: Any = FakeTwoTower()
    model.attention, model.device = "basic", torch.device("cpu")
    searched: list[int] = []
    best = VectorSearch.best

    def watched(self: VectorSearch, contexts: Tensor, k: int) -> object:
        searched.append(len(self.vectors))
        return best(self, contexts, k)

    monkeypatch.setattr(VectorSearch, "best", watched)
    monkeypatch.setattr(latency, "SCORED_WHOLE", 50)
    measure_latency(model, ["a", "b"], ["x", "y", "z"], sizes=(50, 90), num_queries=3)
    assert searched == [90] * 4


def test_vectors_of_a_search_differ_and_keep_their_norms() -> None:
    vectors = torch.randn(8, 32, generator=torch.Generator().manual_seed(0)).repeat(5, 1)
    spread = latency.spread(vectors)
    torch.testing.assert_close(spread.norm(dim=1), vectors.norm(dim=1))
    assert len(spread.unique(dim=0)) == 40
    assert torch.cosine_similarity(spread, vectors).min() > 0.6


def test_words_are_timed() -> None:
    index = BM25Index.build([Candidate("1", "x")])
    found = measure_latency(index, ["x y"], ["x", "y z"], sizes=(2, 30), num_queries=2)
    assert [time.num_queries for time in found.values()] == [2, 2]


def test_texts_are_needed() -> None:
    with pytest.raises(UsageError, match="1 contexts and 0 candidates"):
        measure_latency(FakeCross(), ["a"], [])
