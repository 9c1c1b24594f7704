"""The commands against fakes of the layers below."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from polyrank.cli.main import commands, run
from polyrank.records import Hit
from polyrank.retrieval.engine import Found, SearchReport, SearchResults


class LengthCross:
    """Scores a pair by the length of the candidate."""

    batch_tokens = 1
    config = SimpleNamespace(architecture="cross", task="rank")

    def score_pairs(self, pairs: Sequence[Any], *, show_progress_bar: bool = False) -> torch.Tensor:
        return torch.tensor([float(len(text)) for _, text in pairs])


class FakeIndex:
    opened: dict[str, Any]
    asked: dict[str, Any]

    def __init__(self) -> None:
        self.model = LengthCross()
        self.engine = SimpleNamespace(manifest=None)

    def __len__(self) -> int:
        return 1234

    @classmethod
    def build(cls, model: Any, candidates: Path, path: Path, **options: Any) -> FakeIndex:
        if not options["copy_model"]:
            raise KeyboardInterrupt
        return cls()

    @classmethod
    def open(cls, path: Path, model: Any = None, **options: Any) -> FakeIndex:
        cls.opened = {"path": path, "model": model, **options}
        return cls()

    def refresh(self) -> bool:
        return False

    def search(
        self,
        contexts: list[Any],
        top_k: int = 10,
        *,
        exact: bool = False,
        filter: str | None = None,
    ) -> SearchResults:
        assert top_k <= 1234
        FakeIndex.asked = {"top_k": top_k, "exact": exact, "filter": filter}
        hits = [Hit("b", 0.5, "short"), Hit("7", -1.0, "line\n" * 200)][:top_k]
        report = SearchReport(
            strategy="bounded", num_candidates=1000, num_scored=9, certified=exact
        )
        return SearchResults(Found(hits, report) for _ in contexts)


@pytest.fixture(autouse=True)
def fakes(monkeypatch: pytest.MonkeyPatch) -> LengthCross:
    model = LengthCross()

    def load_model(
        path: Path, *, batch_tokens: int | None, trainable: bool, **_: Any
    ) -> LengthCross:
        assert not trainable
        if batch_tokens is not None:
            model.batch_tokens = batch_tokens
        return model

    checkpoint = SimpleNamespace(load_model=load_model)
    monkeypatch.setitem(sys.modules, "polyrank.models.checkpoint", checkpoint)
    monkeypatch.setitem(sys.modules, "polyrank.retrieval.index", SimpleNamespace(Index=FakeIndex))
    return model


@pytest.fixture
def data(tmp_path: Path) -> str:
    path = tmp_path / "dev.jsonl"
    lines = [{"id": f"e{i}", "context": f"c{i}", "response": "x" * (i + 1)} for i in range(30)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return str(path)


def answer(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert run([*arguments, "--json"], commands()) == 0
    return dict(json.loads(capsys.readouterr().out))


def test_evaluate(
    capsys: pytest.CaptureFixture[str], data: str, tmp_path: Path, fakes: LengthCross
) -> None:
    per_query = tmp_path / "made" / "per-query.jsonl"
    arguments = ["evaluate", "m", "--data", data, "--num-candidates", "5", "--limit", "10"]
    found = answer(capsys, *arguments, "--output", str(per_query), "--batch-tokens", "99")
    assert (found["num_candidates"], found["num_examples"]) == (5, 10)
    assert set(found) >= {"model", "data", "recall@1", "recall@2", "recall@5", "mrr", "per_query"}
    assert "recall@10" not in found
    assert fakes.batch_tokens == 99
    rows = [json.loads(line) for line in per_query.read_text(encoding="utf-8").splitlines()]
    assert [row["id"] for row in rows] == [f"e{i}" for i in range(10)]
    mean = sum(row["reciprocal_rank"] for row in rows) / 10
    assert mean == pytest.approx(found["mrr"])


def test_evaluate_tells_people_how_many_candidates(
    capsys: pytest.CaptureFixture[str], data: str
) -> None:
    assert run(["evaluate", "m", "--data", data, "--ks", "1,40"], commands()) == 0
    out, err = capsys.readouterr()
    assert "30 examples, C = 20 candidates each" in out
    assert "R@1/20" in out
    assert err == "Warning: recall@40 left out: an example has only 20 candidates.\n"


def test_evaluate_warns_of_an_option_without_effect(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    data = tmp_path / "own.jsonl"
    data.write_text('{"context": "c", "response": "a", "candidates": ["b", "a"]}\n', "utf-8")
    arguments = ["evaluate", "m", "--data", str(data), "--num-candidates", "5", "--ks", "1"]
    assert run(arguments, commands()) == 0
    assert "--num-candidates has no effect" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--data", "missing.jsonl"], "missing.jsonl: There is no such file."),
        (["--limit", "0"], "--limit must be at least 1, got 0"),
        (["--ks", "0"], "--ks must be whole numbers from 1"),
        (["--batch-tokens", "0"], "--batch-tokens must be at least 1"),
        (["--dtype", "float16"], "--dtype is 'float16'"),
        (["--num-candidates", "31"], "of the 30 different responses only 29 are wrong"),
    ],
)
def test_evaluate_refuses(
    capsys: pytest.CaptureFixture[str], data: str, arguments: list[str], message: str
) -> None:
    assert run(["evaluate", "m", "--data", data, *arguments], commands()) == 2
    assert message in capsys.readouterr().err


def test_index(capsys: pytest.CaptureFixture[str]) -> None:
    found = answer(capsys, "index", "build", "m", "--candidates", "c.txt", "--output", "i")
    assert (found["index"], found["num_candidates"]) == ("i", 1234)
    arguments = ["index", "build", "m", "--candidates", "c.txt", "--output", "i", "--no-copy-model"]
    assert run(arguments, commands()) == 130
    assert "run the same command again" in capsys.readouterr().err


def test_search(capsys: pytest.CaptureFixture[str]) -> None:
    found = answer(capsys, "search", "i", "one", "two, three", "-k", "1", "--device", "cpu")
    assert [result["context"] for result in found["results"]] == ["one", "two, three"]
    assert found["results"][0] == {
        "context": "one",
        "hits": [{"id": "b", "score": 0.5, "text": "short"}],
        "strategy": "bounded",
        "num_candidates": 1000,
        "num_scored": 9,
        "certified": False,
        "num_reranked": 0,
    }
    assert FakeIndex.asked == {"top_k": 1, "exact": False, "filter": None}
    opened = {"path": Path("i"), "model": None, "device": "cpu", "dtype": "auto"}
    opened |= {"batch_tokens": None, "engine": "auto"}
    assert FakeIndex.opened == opened


def test_search_for_a_dialogue_shows_short_texts(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["search", "i", "--turn", "hello, you", "--turn", "yes?"], commands()) == 0
    out = capsys.readouterr().out
    assert out.startswith("> hello, you\n> yes?\n   1.    0.5000  [b] short\n")
    assert "   2.   -1.0000  [7] line line" in out
    assert out.endswith("\n      scored 9 of 1,000 candidates, approximate\n\n")
    assert max(map(len, out.splitlines())) < 330


def test_search_reranks(capsys: pytest.CaptureFixture[str], fakes: LengthCross) -> None:
    arguments = ["search", "i", "one", "two", "--reranker", "cross", "--batch-tokens", "99"]
    found = answer(capsys, *arguments, "--exact", "--filter", 'lang == "en"')
    assert FakeIndex.asked == {"top_k": 100, "exact": True, "filter": 'lang == "en"'}
    assert fakes.batch_tokens == 99
    for result in found["results"]:
        assert [(hit["id"], hit["score"]) for hit in result["hits"]] == [("7", 1000.0), ("b", 5.0)]
        assert (result["certified"], result["num_reranked"]) == (True, 2)
    assert run([*arguments, "--num-candidates", "30", "-k", "1"], commands()) == 0
    assert FakeIndex.asked["top_k"] == 30
    out = capsys.readouterr().out
    assert out.startswith("> one\n   1. 1000.0000  [7] line")
    assert "[b]" not in out
    assert "scored 9 of 1,000 candidates, approximate; reranked 2\n" in out


def test_lines_are_reranked_too(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"one\ntwo\n")))
    arguments = [
        "search",
        "i",
        "--reranker",
        "cross",
        "--num-candidates",
        "30",
        "-k",
        "1",
        "--json",
    ]
    assert run(arguments, commands()) == 0
    assert FakeIndex.asked["top_k"] == 30
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(one["context"], one["num_reranked"]) for one in found] == [("one", 2), ("two", 2)]
    assert [[hit["id"] for hit in one["hits"]] for one in found] == [["7"], ["7"]]


def test_search_warns_of_an_option_without_effect(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["search", "i", "x", "--num-candidates", "5"], commands()) == 0
    assert (
        capsys.readouterr().err == "Warning: --num-candidates has no effect without --reranker.\n"
    )
    assert run(["search", "i", "x", "--reranker", "c", "--num-candidates", "0"], commands()) == 2
    assert "--num-candidates must be at least 1, got 0" in capsys.readouterr().err


def test_search_reads_standard_input(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def standard_input(data: bytes) -> None:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data), "ascii"))

    standard_input("größe\n\nb\n".encode())
    found = answer(capsys, "search", "i", "a", "-")
    assert [result["context"] for result in found["results"]] == ["a", "größe", "b"]
    standard_input(b"\n")
    assert run(["search", "i"], commands()) == 2
    assert "There is no text to search for." in capsys.readouterr().err
    standard_input(b"ok\n\xff\n")
    assert run(["search", "i"], commands()) == 2
    assert "standard input, line 2: The text is not UTF-8" in capsys.readouterr().err
