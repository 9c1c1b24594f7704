from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from test_retrieval import make_set

from polyrank.errors import UsageError
from polyrank.evaluation.comparison import Contender
from polyrank.evaluation.evaluator import Entry, Evaluator, EvaluatorSettings
from polyrank.evaluation.retrieval import evaluate_retrieval
from polyrank.evaluation.tasks import RankingTask, RetrievalTask
from polyrank.jobs import Results
from polyrank.records import Example
from tiny_encoders import load_variant

CANDIDATES = ("print", "how do i read a file", "the wifi driver", "sound and screen")
EXAMPLES = [
    Example(context=f"{text} please", response=text, candidates=CANDIDATES) for text in CANDIDATES
]
NO_TIMES = EvaluatorSettings(sizes=())


class Loader:
    """Loads variants by name and remembers which, and which were evaluated."""

    def __init__(self, bert: str) -> None:
        self.bert = bert
        self.loaded: list[str] = []
        self.said: list[str] = []

    def __call__(self, source: str) -> Any:
        self.loaded.append(source)
        variant, _, seed = source.partition(":")
        settings = {"task": "classify"} if seed == "classes" else {}
        model = load_variant(variant, self.bert, **settings)
        if seed.isdigit():
            with torch.no_grad():
                for parameter in model.context_tower.parameters():
                    parameter.mul_(1 + int(seed))
        return model

    def evaluated(self) -> list[str]:
        """The sources that were evaluated, and not taken from what is kept."""
        return [words.split(":")[0] for words in self.said if "evaluating" in words]

    def evaluate(
        self, task: Any, folder: Path, *sources: str, settings: Any = NO_TIMES, **more: Any
    ) -> list[Contender]:
        evaluator = Evaluator(task, self, Results(folder), settings, self.said.append)
        entries = [Entry(name=source, sources=(source,)) for source in sources]
        return evaluator.evaluate(entries, **more)


@pytest.fixture
def loader(bert: str) -> Loader:
    return Loader(bert)


def metrics_of(contenders: list[Contender]) -> list[Any]:
    return [run.to_json() for each in contenders for run in each.runs]


def test_what_is_measured_is_kept(loader: Loader, tmp_path: Path) -> None:
    task = RankingTask(examples=EXAMPLES)
    first = loader.evaluate(task, tmp_path, "bi", "cross", "bm25")
    assert loader.evaluated() == ["bi", "cross", "bm25"]
    assert [each.architecture for each in first] == ["bi", "cross", "bm25"]
    loader.said.clear()
    second = loader.evaluate(task, tmp_path, "bm25", "poly-learnt", "bi", "cross")
    assert loader.evaluated() == ["poly-learnt"]
    assert metrics_of([second[2], second[3], second[0]]) == metrics_of(first)
    loader.said.clear()
    loader.evaluate(RankingTask(examples=EXAMPLES[:3]), tmp_path, "bi")
    loader.evaluate(RankingTask(examples=EXAMPLES, ks=(1,)), tmp_path, "bi")
    loader.evaluate(RankingTask(examples=EXAMPLES, others=("ndcg@2",)), tmp_path, "bi")
    assert loader.evaluated() == ["bi", "bi", "bi"]


def test_an_interrupted_comparison_goes_on(
    loader: Loader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = RankingTask(examples=EXAMPLES)
    evaluate = RankingTask.evaluate

    def interrupted(self: RankingTask, model: Any, **more: Any) -> Any:
        if model.architecture == "poly":
            raise KeyboardInterrupt
        return evaluate(self, model, **more)

    monkeypatch.setattr(RankingTask, "evaluate", interrupted)
    with pytest.raises(KeyboardInterrupt):
        loader.evaluate(task, tmp_path, "bi", "poly-learnt")
    monkeypatch.setattr(RankingTask, "evaluate", evaluate)
    loader.said.clear()
    loader.evaluate(task, tmp_path, "bi", "poly-learnt")
    assert loader.evaluated() == ["poly-learnt"]


def test_a_damaged_result_is_found_again(loader: Loader, tmp_path: Path) -> None:
    task = RankingTask(examples=EXAMPLES)
    first = loader.evaluate(task, tmp_path, "bi")
    [kept] = tmp_path.iterdir()
    for damage in ("", "[]", '{"ids": ["a"], "values": {"mrr": []}, "num_candidates": [1, 1]}'):
        kept.write_text(damage, encoding="utf-8")
        assert metrics_of(loader.evaluate(task, tmp_path, "bi")) == metrics_of(first)
    assert loader.evaluated() == ["bi"] * 4


def test_costs(loader: Loader, tmp_path: Path) -> None:
    settings = EvaluatorSettings(sizes=(3, 20), num_queries=1, time_limit=5.0)
    task = RankingTask(examples=EXAMPLES)
    bi, cross, words = loader.evaluate(task, tmp_path, "bi", "cross", "bm25", settings=settings)
    assert bi.costs.vector_bytes == 4 * 32
    assert cross.costs.vector_bytes is words.costs.vector_bytes is words.costs.parameters is None
    model = load_variant("bi", loader.bert)
    assert bi.costs.parameters == sum(each.numel() for each in model.parameters())
    assert list(cross.costs.latency) == [3, 20]
    again = loader.evaluate(task, tmp_path, "bi", settings=settings)
    assert again[0].costs == bi.costs  # kept, since it would not be measured the same twice


def test_training_time_is_that_of_the_model_folder(bert: str, tmp_path: Path) -> None:
    folders = []
    for seed, seconds in (("a", 10.0), ("b", 20.0), ("c", None)):
        folders.append(tmp_path / seed)
        model, extra = load_variant("bi", bert, temperature=0.5), {}
        if seconds is not None:
            extra = {"training.json": json.dumps({"seconds": seconds})}
        model.save_pretrained(folders[-1], extra=extra)
    loader = Loader(bert)
    evaluator = Evaluator(
        RankingTask(examples=EXAMPLES),
        lambda source: loader("bi:1"),
        Results(tmp_path / "kept"),
        NO_TIMES,
    )
    [found] = evaluator.evaluate([Entry(name="bi", sources=tuple(map(str, folders)))])
    assert found.costs.training_seconds == 15.0
    assert len(found.runs) == 3


def test_runs_differ_in_their_weights_alone(loader: Loader, tmp_path: Path) -> None:
    task = RankingTask(examples=EXAMPLES)
    evaluator = Evaluator(task, loader, Results(tmp_path), NO_TIMES)
    [found] = evaluator.evaluate([Entry(name="bi", sources=("bi:1", "bi:2"))])
    assert found.runs[0].to_json() != found.runs[1].to_json()
    with pytest.raises(UsageError, match="differ in more than the seed: context_vectors is"):
        evaluator.evaluate([Entry(name="p", sources=("poly-first", "poly-last"))])
    with pytest.raises(UsageError, match="'bi' and 'cross'"):
        evaluator.evaluate([Entry(name="m", sources=("bi", "cross"))])


def test_classes_are_refused_before_anything_is_measured(loader: Loader, tmp_path: Path) -> None:
    for task in (RankingTask(examples=EXAMPLES), RetrievalTask(data=make_set())):
        with pytest.raises(UsageError, match="cross:classes classifies pairs"):
            loader.evaluate(task, tmp_path, "bi", "cross:classes")
    assert loader.evaluated() == []


def test_a_cross_encoder_reranks_what_the_first_finds(loader: Loader, tmp_path: Path) -> None:
    data = make_set()
    settings = EvaluatorSettings(sizes=(), num_candidates=3)
    task = RetrievalTask(data=data)
    found = loader.evaluate(task, tmp_path, "cross", "poly-learnt", "bi", settings=settings)
    first, cross = load_variant("poly-learnt", loader.bert), load_variant("cross", loader.bert)
    expected = evaluate_retrieval(first, data, reranker=cross, num_candidates=3)
    assert metrics_of(found)[0] == expected.to_json()
    assert metrics_of(found)[1] == evaluate_retrieval(first, data).to_json()
    other = loader.evaluate(
        task, tmp_path, "cross", "poly-learnt", settings=settings, retriever="bm25"
    )
    assert loader.evaluated() == ["cross", "poly-learnt", "bi", "cross"]
    assert metrics_of(other)[1] == metrics_of(found)[1]
    with pytest.raises(UsageError, match="cannot search a corpus: it reranks"):
        loader.evaluate(task, tmp_path, "cross")
    with pytest.raises(UsageError, match="cross is a cross-encoder"):
        loader.evaluate(task, tmp_path, "cross", "bi", retriever="cross")
