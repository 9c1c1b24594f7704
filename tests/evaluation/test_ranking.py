from __future__ import annotations

import dataclasses
import json
import random

import pytest
import torch
from fake_models import ConstantCross, FakeCross, FakeTwoTower

from polyrank.errors import DataError, ModelError, UsageError
from polyrank.evaluation import ranking
from polyrank.evaluation.ranking import evaluate_examples, score_candidates
from polyrank.evaluation.tasks import with_sampled_candidates
from polyrank.records import Example


def make_examples(count: int = 12, num_candidates: int = 5) -> list[Example]:
    examples = [Example(context=f"context {i % 7}", response=f"text {i}") for i in range(count)]
    return with_sampled_candidates(examples, num_candidates)


def test_every_text_is_encoded_once() -> None:
    model, cross = FakeTwoTower(), FakeCross()
    examples = make_examples() * 2
    score_candidates(model, examples)
    score_candidates(cross, examples)
    assert set(model.encoded.values()) == {1}
    assert set(cross.read.values()) == {1}


@pytest.mark.parametrize("limit", [1, 8, 50, 1 << 20])
def test_scores_do_not_depend_on_how_they_are_gathered(
    monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    monkeypatch.setattr(ranking, "GATHERED_NUMBERS", limit)
    model = FakeTwoTower()
    examples = make_examples(num_candidates=5) + make_examples(num_candidates=3)
    for example, scores in zip(examples, score_candidates(model, examples), strict=True):
        assert example.candidates is not None
        vectors = model.encode_candidates(example.candidates)
        expected = model.score_all(model.encode_for_scoring([example.context]), vectors)[0]
        torch.testing.assert_close(scores, expected)


@pytest.mark.parametrize("model", [FakeTwoTower(), FakeCross()], ids=["two towers", "cross"])
def test_the_order_of_candidates_changes_no_metric(model: FakeTwoTower | FakeCross) -> None:
    examples = make_examples()
    shuffled = []
    for example in examples:
        order = random.Random(3).sample(range(5), 5)
        candidates = tuple((example.candidates or ())[i] for i in order)
        gold = candidates.index(example.response)
        shuffled.append(dataclasses.replace(example, candidates=candidates, gold=gold))
    assert (
        evaluate_examples(model, examples).to_json() == evaluate_examples(model, shuffled).to_json()
    )


def test_a_constant_model_scores_chance() -> None:
    result = evaluate_examples(ConstantCross(), make_examples(40, 20))
    assert result.recall == pytest.approx({1: 0.05, 2: 0.1, 5: 0.25, 10: 0.5})
    assert result.mrr == pytest.approx(sum(1 / rank for rank in range(1, 21)) / 20)


def test_the_result_says_how_many_candidates_and_keeps_every_query() -> None:
    result = evaluate_examples(
        FakeCross(), make_examples(12, 5) + make_examples(12, 3), ks=(1, 3, 4)
    )
    assert result.num_candidates == (3, 5)
    assert list(result.named()) == ["R@1/3–5", "R@3/3–5", "MRR"]
    plain = json.loads(json.dumps(result.to_json()))
    assert plain["num_candidates"] == [3, 5]
    assert plain["num_examples"] == 24
    rows = list(result.per_query.rows())
    assert len(rows) == 24
    assert sum(row["recall@1"] for row in rows) / 24 == pytest.approx(result.recall[1])
    assert result.per_query.reciprocal_ranks.mean() == result.mrr


def test_other_metrics_are_measured_beside_the_usual() -> None:
    examples = make_examples(12, 5)
    result = evaluate_examples(
        FakeCross(), examples, ks=(1,), metrics=("ndcg@3", "mrr@1", "recall@4")
    )
    assert list(result.named()) == ["R@1/5", "MRR", "nDCG@3/5", "MRR@1/5", "R@4/5"]
    assert result.figures["mrr@1"] == result.recall[1]
    assert next(result.per_query.rows())["ndcg@3"] == result.per_query.values["ndcg@3"][0]
    with pytest.raises(UsageError, match=r"recall@6, but an example has only 5 candidates"):
        evaluate_examples(FakeCross(), examples, metrics=("recall@6",))


def test_a_list_of_turns_is_a_context() -> None:
    example = Example(context=("hello", "you"), response="a", candidates=("a", "b"), gold=0)
    as_list = dataclasses.replace(example, context=["hello", "you"])  # type: ignore[arg-type]
    result = evaluate_examples(FakeCross(), [example, as_list])
    assert result.per_query.ranks[0] == result.per_query.ranks[1]


def test_what_cannot_be_evaluated_is_named() -> None:
    example = Example(context="c", response="a", id="x9")
    with pytest.raises(DataError, match=r"number 1 \(id 'x9'\) has no candidates"):
        evaluate_examples(FakeCross(), [example])
    with pytest.raises(DataError, match="not among its candidates"):
        evaluate_examples(FakeCross(), [dataclasses.replace(example, candidates=("b",))])
    with pytest.raises(DataError, match="no examples"):
        evaluate_examples(FakeCross(), [])
    with pytest.raises(UsageError, match="at least 1"):
        evaluate_examples(FakeCross(), make_examples(), ks=(0,))


def test_nan_and_classes_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    model = FakeCross()
    monkeypatch.setattr(
        model, "score_pairs", lambda pairs, **_: torch.full((len(pairs),), torch.nan)
    )
    with pytest.raises(ModelError, match="example number 1 with NaN"):
        evaluate_examples(model, make_examples())
    monkeypatch.setattr(model, "score_pairs", lambda pairs, **_: torch.zeros(len(pairs), 3))
    with pytest.raises(UsageError, match="3 classes"):
        evaluate_examples(model, make_examples())


def test_sampled_candidates_are_distinct_and_repeatable() -> None:
    examples = [Example(context=f"c {i}", response=f"text {i % 30}") for i in range(60)]
    sampled = with_sampled_candidates(examples, 20, seed=1)
    for example in sampled:
        assert example.candidates is not None
        assert example.gold is not None
        assert len(set(example.candidates)) == 20
        assert example.candidates[example.gold] == example.response
    assert sampled == with_sampled_candidates(examples, 20, seed=1)
    assert sampled != with_sampled_candidates(examples, 20, seed=2)
    assert sampled[:5] == with_sampled_candidates(examples[:5], 20, seed=1, source=examples)
    assert len({example.gold for example in sampled}) > 5


def test_no_sampled_distractor_is_right_for_the_context() -> None:
    examples = [Example(context=f"c {i % 4}", response=f"text {i}") for i in range(40)]
    examples += [Example(context="C 1", response="c 2"), Example(context="c 2", response="TEXT 1")]
    right = {
        f"c {n}": {e.response.casefold() for e in examples if e.context.casefold() == f"c {n}"}
        for n in range(4)
    }
    for example in with_sampled_candidates(examples, 26, source=examples):
        own = str(example.context).casefold()
        others = {text.casefold() for text in example.candidates or () if text != example.response}
        assert len(others) == 25
        assert not others & (right[own] | {own})
    with pytest.raises(DataError, match=r"only 3\d are wrong for the context 'c 0'"):
        with_sampled_candidates(examples, 40)


def test_sampling_keeps_candidates_and_refuses_a_small_pool() -> None:
    own = Example(context="c", response="a", candidates=("a", "b"), gold=0)
    assert with_sampled_candidates([own], 20) == [own]
    bare = dataclasses.replace(own, candidates=None, gold=None)
    with pytest.raises(DataError, match="of the 1 different responses only 0 are wrong"):
        with_sampled_candidates([bare], 2)
    with pytest.raises(UsageError, match="at least 2"):
        with_sampled_candidates([bare], 1)
