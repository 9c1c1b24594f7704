import hashlib
from types import SimpleNamespace

import pytest
import torch

from hash_model import HashModel, brute_force
from polyrank.errors import ModelError, UsageError
from polyrank.records import Candidate, Hit
from polyrank.retrieval.engine import Found, SearchReport, SearchResults
from polyrank.retrieval.index import Index
from polyrank.retrieval.rerank import RetrieveRerank
from tiny_encoders import TEXTS, load_variant

CONTEXTS = ["what is it", "another", ["two", "turns"]]


class BruteIndex:
    """Searches as an index does; a filter is a number, and passes that many candidates."""

    def __init__(self, candidates, model=None):
        self.candidates = candidates
        self.model = model or HashModel()
        self.asked = None

    def __len__(self):
        return len(self.candidates)

    def search(self, contexts, top_k=10, *, exact=False, filter=None):
        self.asked = {"top_k": top_k, "exact": exact, "filter": filter}
        passing = self.candidates if filter is None else self.candidates[: int(filter)]
        report = SearchReport(
            strategy="scan", num_candidates=len(passing), num_scored=len(passing), certified=True
        )
        if not contexts or not passing:
            return SearchResults(Found([], report) for _ in contexts)
        rows = brute_force(self.model, passing, contexts, top_k)
        return SearchResults(Found([Hit(i, s, t) for i, t, s in row], report) for row in rows)


class HashCross:
    """Scores a pair by its hash; remembers what it was given."""

    def __init__(self, architecture="cross", task="rank"):
        self.config = SimpleNamespace(architecture=architecture, task=task)
        self.calls = []

    def score_pairs(self, pairs, *, show_progress_bar=False):
        self.calls.append(list(pairs))
        return torch.tensor([self.score_of(*pair) for pair in pairs])

    def score_of(self, context, text):
        turns = [context] if isinstance(context, str) else list(context)
        return hashlib.sha256(f"{turns}/{text}".encode()).digest()[0] / 256


def numbered(count):
    return [(f"id{i}", f"text number {i}") for i in range(count)]


def by_hand(score_of, context, candidates, top_k):
    """All candidates scored, sorted by (score, id)."""
    scored = [Hit(identifier, score_of(context, text), text) for identifier, text in candidates]
    return sorted(scored, key=lambda hit: (hit.score, hit.id), reverse=True)[:top_k]


@pytest.mark.parametrize("top_k", [1, 7, 60])
def test_with_all_candidates_it_is_the_reranker_alone(top_k):
    candidates, reranker = numbered(60), HashCross()
    found = RetrieveRerank(BruteIndex(candidates), reranker).search(CONTEXTS, top_k)
    assert found == [by_hand(reranker.score_of, c, candidates, top_k) for c in CONTEXTS]


def test_only_what_was_retrieved_is_read():
    index, reranker = BruteIndex(numbered(60)), HashCross()
    found = RetrieveRerank(index, reranker, num_candidates=12).search(CONTEXTS, 5)
    for context, hits, retrieved in zip(CONTEXTS, found, found.retrieved, strict=True):
        pairs = [(hit.id, hit.text) for hit in retrieved]
        assert hits == by_hand(reranker.score_of, context, pairs, 5)
    assert found.retrieved == index.search(CONTEXTS, 12)
    assert found.reports == found.retrieved.reports
    [pairs] = reranker.calls
    assert len(pairs) == 3 * 12


def test_a_real_cross_encoder(bert):
    reranker = load_variant("cross", bert)
    model = load_variant("poly-learnt", bert)
    candidates = [(f"c{i}", text) for i, text in enumerate(TEXTS)]
    contexts = ["how do i read a file", ["hello", "the wifi driver"]]
    found = RetrieveRerank(BruteIndex(candidates, model), reranker, num_candidates=6).search(
        contexts, top_k=4
    )
    for context, hits, retrieved in zip(contexts, found, found.retrieved, strict=True):
        scores = reranker.score([context], [hit.text for hit in retrieved])[0].tolist()
        ranked = sorted(zip(scores, (hit.id for hit in retrieved), strict=True), reverse=True)[:4]
        assert [hit.id for hit in hits] == [identifier for _, identifier in ranked]
        assert [hit.score for hit in hits] == pytest.approx([s for s, _ in ranked], abs=1e-5)
        assert len({hit.score for hit in hits}) == 4


def test_order_of_candidates_and_split_of_contexts_change_nothing():
    candidates = numbered(64)
    together = RetrieveRerank(BruteIndex(candidates), HashCross(), num_candidates=20)
    backward = RetrieveRerank(BruteIndex(candidates[::-1]), HashCross(), num_candidates=20)
    found = together.search(CONTEXTS, 20)
    assert backward.search(CONTEXTS, 20) == found
    assert [together.search([context], 20)[0] for context in CONTEXTS] == found


def test_equal_texts_are_scored_once_and_tie_by_the_larger_id():
    candidates = [(str(i), "the same" if i % 2 else f"text {i}") for i in range(20)]
    reranker = HashCross()
    contexts = ["a", "b", "a", ["a", "b"]]
    found = RetrieveRerank(BruteIndex(candidates), reranker).search(contexts, 20)
    assert found == [by_hand(reranker.score_of, c, candidates, 20) for c in contexts]
    same = [hit.id for hit in found[0] if hit.text == "the same"]
    assert same == sorted(same, reverse=True)
    [pairs] = reranker.calls
    assert len(pairs) == len(set(pairs)) == 3 * 11


@pytest.mark.parametrize(
    ("num_candidates", "top_k", "count"), [(12, 5, 12), (5, 12, 12), (100, 5, 100), (1, 40, 40)]
)
def test_how_many_are_retrieved(num_candidates, top_k, count):
    index = BruteIndex(numbered(40))
    pipeline = RetrieveRerank(index, HashCross(), num_candidates=num_candidates)
    [hits] = pipeline.search(["a"], top_k, exact=True)
    assert index.asked == {"top_k": count, "exact": True, "filter": None}
    assert len(hits) == top_k


@pytest.mark.parametrize("passing", [0, 1, 7])
def test_fewer_pass_a_filter(passing):
    candidates, reranker = numbered(40), HashCross()
    found = RetrieveRerank(BruteIndex(candidates), reranker).search(
        CONTEXTS, 10, filter=str(passing)
    )
    assert found == [by_hand(reranker.score_of, c, candidates[:passing], 10) for c in CONTEXTS]
    assert [report.num_candidates for report in found.reports] == [passing] * 3


def test_on_an_index_folder(tmp_path):
    candidates = [
        Candidate(f"c{i}", f"text {i % 30}", {"year": 2000 + i, "new": i % 3 == 0})
        for i in range(90)
    ]
    index = Index.build(HashModel(4), candidates, tmp_path / "index")
    reranker = HashCross()
    filter = "year < 2060 and new == true"
    passing = [(c.id, c.text) for c in candidates if c.metadata["new"]][:20]
    everything = RetrieveRerank(index, reranker).search(CONTEXTS, 30, filter=filter)
    assert everything == [by_hand(reranker.score_of, c, passing, 30) for c in CONTEXTS]
    few = RetrieveRerank(index, reranker, num_candidates=6)
    found = few.search(CONTEXTS, 4, exact=True, filter=filter)
    assert found.retrieved == index.search(CONTEXTS, 6, exact=True, filter=filter)
    for context, hits, retrieved in zip(CONTEXTS, found, found.retrieved, strict=True):
        pairs = [(hit.id, hit.text) for hit in retrieved]
        assert hits == by_hand(reranker.score_of, context, pairs, 4)
    assert all(report.certified and report.num_candidates == 20 for report in found.reports)
    for wrong in ("yaer < 2060", "year <"):
        with pytest.raises(UsageError):
            few.search(CONTEXTS, 4, filter=wrong)
    hits = few.search(CONTEXTS[0], 4)
    assert hits == few.search(CONTEXTS, 4)[0]
    assert hits.retrieved == index.search(CONTEXTS[0], 6)
    assert hits.report == hits.retrieved.report
    assert len(few.search("text", 1000)) == 90
    with pytest.raises(
        UsageError, match=r"contexts\[0\] must be a text or a list of turns, got int"
    ):
        few.search([1], 4)


def test_no_contexts():
    found = RetrieveRerank(BruteIndex(numbered(4)), HashCross()).search([], 2)
    assert found == found.reports == found.retrieved == []


def test_one_that_was_trained_by_regression_may_rerank():
    texts, values = numbered(6), HashCross(task="regress")
    found = RetrieveRerank(BruteIndex(texts), values).search(["context"], 3)
    assert found == RetrieveRerank(BruteIndex(texts), HashCross()).search(["context"], 3)


@pytest.mark.parametrize(
    ("reranker", "message"),
    [
        (HashModel(), "must be a cross-encoder, got a bi-encoder"),
        (HashModel(4), "must be a cross-encoder, got a poly-encoder"),
        (object(), "must be a cross-encoder, got object"),
        (HashCross(task="classify"), "with the task 'rank' or 'regress', got one with 'classify'"),
    ],
)
def test_what_cannot_rerank_is_refused(reranker, message):
    with pytest.raises(UsageError, match=message):
        RetrieveRerank(BruteIndex(numbered(4)), reranker)


def test_numbers_out_of_range_are_refused():
    index = BruteIndex(numbered(4))
    with pytest.raises(UsageError, match="num_candidates must be a whole number of at least 1"):
        RetrieveRerank(index, HashCross(), num_candidates=0)
    with pytest.raises(UsageError, match="top_k must be a whole number of at least 1, got 0"):
        RetrieveRerank(index, HashCross()).search(["a"], 0)
    assert index.asked is None


def test_scores_that_are_not_numbers_are_refused(monkeypatch):
    reranker = HashCross()
    monkeypatch.setattr(reranker, "score_of", lambda *_: float("nan"))
    with pytest.raises(ModelError, match="not numbers"):
        RetrieveRerank(BruteIndex(numbered(4)), reranker).search(["a"], 2)
