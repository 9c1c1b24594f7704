from __future__ import annotations

import dataclasses
import random
import sys
from math import log2
from types import SimpleNamespace

import pytest
import torch
from fake_models import FakeCross

from polyrank.errors import DataError, MissingExtraError, ModelError, UsageError
from polyrank.evaluation.retrieval import evaluate_retrieval, judge, rerank, retrieve
from polyrank.records import Candidate, RetrievalSet
from polyrank.retrieval.bm25.index import BM25Index
from tiny_encoders import TEXTS, load_variant


class Reranker(FakeCross):
    config = SimpleNamespace(architecture="cross", task="rank")


def make_set(judgements: dict[str, dict[str, int]] | None = None) -> RetrievalSet:
    corpus = [Candidate(f"d{row}", text) for row, text in enumerate(TEXTS)]
    return RetrievalSet(
        corpus=corpus,
        queries={"q1": "read a file", "q2": "kernel driver", "q3": "thanks"},
        judgements=judgements or {"q1": {"d0": 2, "d3": 1}, "q2": {"d1": 1}, "q3": {"d8": 1}},
        split="test",
    )


def test_the_measures_by_hand() -> None:
    data = make_set({"q1": {"d0": 2, "d3": 1, "d4": 0}, "q2": {"d1": 1}})
    found = judge({"q1": ["d4", "d3", "d0"], "q2": []}, data)
    assert found.ids == ("q1", "q2")
    gained = 1 / log2(3) + 2 / log2(4)
    best = 2 / log2(2) + 1 / log2(3)
    values = {name: array.tolist() for name, array in found.values.items()}
    assert values["ndcg@10"] == pytest.approx([gained / best, 0])
    assert [values[f"recall@{k}"] for k in (1, 5, 10, 20, 50, 100)] == [[0, 0]] + 5 * [[1, 0]]
    assert values["mrr@10"] == [0.5, 0]
    assert values["map"] == pytest.approx([(1 / 2 + 2 / 3) / 2, 0])
    labels = ["nDCG@10", "R@1", "R@5", "R@10", "R@20", "R@50", "R@100", "MRR@10", "MAP"]
    assert list(found.labels().values()) == labels
    assert found.candidates_text == "10"


def test_any_cut_by_hand() -> None:
    data = make_set({"q1": {"d0": 2, "d3": 1}, "q2": {"d1": 1}})
    rankings = {"q1": ["d4", "d3", "d5", "d0"], "q2": ["d2", "d4", "d1"]}
    found = judge(rankings, data, ("recall@2", "recall@3", "ndcg@2", "mrr@2", "mrr", "ndcg@1"))
    values = {name: array.tolist() for name, array in found.values.items()}
    assert values["recall@2"] == [0.5, 0]
    assert values["recall@3"] == [0.5, 1]
    assert values["ndcg@2"] == pytest.approx([1 / log2(3) / (2 + 1 / log2(3)), 0])
    assert values["mrr@2"] == [0.5, 0]
    assert values["mrr"] == pytest.approx([1 / 2, 1 / 3])
    assert values["ndcg@1"] == [0, 0]
    assert list(found.labels().values()) == ["R@2", "R@3", "nDCG@2", "MRR@2", "MRR", "nDCG@1"]


def test_a_ranking_is_as_deep_as_its_metrics_look() -> None:
    corpus = [Candidate(f"d{row:04}", "read a file") for row in range(1200)]
    data = dataclasses.replace(make_set({"q1": {"d0000": 1}}), corpus=corpus)
    index = BM25Index.build(corpus)  # all tie: the larger id comes first, so d0000 is the last
    found = evaluate_retrieval(index, data, metrics=("recall@1199", "recall@1200", "mrr"))
    assert [values[0] for values in found.values.values()] == [0, 1, pytest.approx(1 / 1200)]


@pytest.mark.parametrize("variant", ["bi", "poly-learnt", "poly-last"])
def test_the_search_is_exact(bert: str, variant: str) -> None:
    model, data = load_variant(variant, bert), make_set()
    found = retrieve(model, data, depth=4)
    texts = [candidate.text for candidate in data.corpus]
    vectors = model.encode_candidates(texts)
    for query, ids in found.items():
        scores = model.score(model.encode_contexts([data.queries[query]]), vectors)[0]
        order = scores.argsort(descending=True)[:4].tolist()
        assert ids == [data.corpus[row].id for row in order]


def test_neither_the_order_of_the_corpus_nor_ties_are_left_to_chance(bert: str) -> None:
    model, data = load_variant("bi", bert), make_set()
    same = [Candidate(f"same{row}", "sound and screen") for row in range(6)]
    corpus = [*data.corpus, *same]
    found = retrieve(model, dataclasses.replace(data, corpus=corpus))
    random.Random(2).shuffle(corpus)
    assert retrieve(model, dataclasses.replace(data, corpus=corpus)) == found
    for ids in found.values():
        ties = [each for each in ids if each.startswith("same")]
        assert ties == sorted(ties, reverse=True)


def test_the_query_itself_is_left_out(bert: str) -> None:
    data = make_set()
    itself = [*data.corpus, Candidate("q1", "read a file"), Candidate("q2", "kernel driver")]
    judgements = {**data.judgements, "q2": {"q2": 1}}
    data = dataclasses.replace(data, corpus=itself, judgements=judgements)
    found = retrieve(load_variant("bi", bert), data)
    assert "q1" not in found["q1"]
    assert "q2" in found["q2"]
    assert "q1" in found["q3"]
    assert len(retrieve(load_variant("bi", bert), data, depth=5)["q1"]) == 5


def test_words_search_and_find_nothing_without_words() -> None:
    data = make_set({"q1": {"d0": 1}, "q3": {"d8": 1}})
    data = dataclasses.replace(data, queries={"q1": "read a file", "q3": "unheard"})
    found = evaluate_retrieval(BM25Index.build(data.corpus), data)
    assert found.values["ndcg@10"].tolist() == [1, 0]


def test_a_reranker_orders_the_best_and_leaves_the_rest(bert: str) -> None:
    model, cross, data = load_variant("bi", bert), Reranker(), make_set()
    first = retrieve(model, data)
    second = rerank(cross, data, first, 4)
    texts = {candidate.id: candidate.text for candidate in data.corpus}
    for query, ids in second.items():
        assert ids[4:] == first[query][4:]
        scores = cross.score_pairs([(data.queries[query], texts[each]) for each in first[query]])
        by_score = dict(zip(first[query], scores.tolist(), strict=True))
        assert ids[:4] == sorted(first[query][:4], key=lambda each: -by_score[each])
    whole = evaluate_retrieval(model, data, reranker=cross, num_candidates=4)
    assert whole.to_json() == judge(second, data).to_json()
    assert whole.to_json() == type(whole).from_json(whole.to_json()).to_json()


def test_what_cannot_search_is_refused(bert: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, data = load_variant("bi", bert), make_set()
    with pytest.raises(UsageError, match="cannot search a corpus"):
        evaluate_retrieval(FakeCross(), data)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="must be a cross-encoder"):
        evaluate_retrieval(model, data, reranker=model)
    with pytest.raises(DataError, match="0 queries with judgements"):
        evaluate_retrieval(model, dataclasses.replace(data, judgements={}))
    monkeypatch.setitem(sys.modules, "ir_measures", None)
    with pytest.raises(MissingExtraError, match=r"polyrank\[metrics\]"):
        evaluate_retrieval(model, data)


def test_vectors_that_are_no_numbers_are_refused(bert: str) -> None:
    model = load_variant("bi", bert)
    with torch.no_grad():
        model.candidate_tower.encoder.embeddings.word_embeddings.weight.fill_(torch.nan)
    with pytest.raises(ModelError, match="vectors of the corpus are not numbers"):
        retrieve(model, make_set())
