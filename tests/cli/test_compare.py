"""`polyrank compare` and `polyrank evaluate` on tiny models and every kind of data."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from polyrank.cli.compare import parse_models
from polyrank.cli.main import commands, run
from polyrank.errors import UsageError
from polyrank.models.config import ClassifierConfig
from tiny_encoders import TEXTS, load_variant

FAST = ("--device", "cpu", "--sizes", "3,20", "--time-limit", "0.2")


@pytest.fixture(scope="module")
def models(bert: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Saved models of each kind."""
    folder = tmp_path_factory.mktemp("models")
    made = {"bi": "bi", "poly": "poly-learnt", "cross": "cross"}
    for name, variant in made.items():
        extra = {"training.json": '{"seconds": 61.4}'} if name == "bi" else {}
        load_variant(variant, bert).save_pretrained(folder / name, extra=extra)
    classes = load_variant("cross", bert, task="classify")
    classes.take_classifier(ClassifierConfig(classes=("contradiction", "entailment", "neutral")))
    classes.save_pretrained(folder / "classes")
    return {name: str(folder / name) for name in (*made, "classes")}


@pytest.fixture
def examples(tmp_path: Path) -> str:
    """Examples without candidates."""
    texts = [text for text in TEXTS if text]
    lines = [{"id": f"e{n}", "context": f"{t} ?", "response": t} for n, t in enumerate(texts)]
    return write(tmp_path / "test.jsonl", lines)


@pytest.fixture
def corpus(tmp_path: Path) -> str:
    """A folder in BEIR's layout."""
    folder = tmp_path / "corpus"
    documents = [{"_id": f"d{n}", "title": "", "text": text} for n, text in enumerate(TEXTS)]
    write(folder / "corpus.jsonl", [each for each in documents if each["text"]])
    write(folder / "queries.jsonl", [{"_id": "q1", "text": "read"}, {"_id": "q2", "text": "wifi"}])
    judged = "query-id\tcorpus-id\tscore\nq1\td0\t1\nq2\td1\t2\n"
    (folder / "qrels").mkdir()
    (folder / "qrels" / "test.tsv").write_text(judged, encoding="utf-8")
    return str(folder)


@pytest.fixture
def pairs(tmp_path: Path) -> str:
    """Labelled pairs in STSb's layout."""
    lines = [
        {"sentence1": text, "sentence2": other, "score": score}
        for text, other, score in (
            ("read a file", "open a file", 4.5),
            ("wifi", "sound", 1.0),
            ("list in python", "sort a list", 3.0),
            ("thanks", "kernel", 0.0),
        )
    ]
    return write(tmp_path / "sts.jsonl", lines)


def write(path: Path, records: list[dict[str, Any]]) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return str(path)


def answer(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    code = run([*arguments, "--json"], commands())
    out, err = capsys.readouterr()
    assert code == 0, err
    return dict(json.loads(out))


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert run(arguments, commands()) == 2
    return capsys.readouterr().err


def test_compare_examples(
    capsys: pytest.CaptureFixture[str], models: dict[str, str], examples: str, tmp_path: Path
) -> None:
    output = tmp_path / "made" / "comparison"
    arguments = ["compare", models["bi"], f"p={models['poly']}", models["cross"], "bm25"]
    arguments += ["--data", examples, "--num-candidates", "4", "--output", str(output), *FAST]
    assert run(arguments, commands()) == 0
    out = capsys.readouterr().out
    assert "bi: evaluating on 9 queries" in out
    assert "R@1/4" in out
    record = json.loads((output / "comparison.json").read_text(encoding="utf-8"))
    assert [model["name"] for model in record["models"]] == ["bi", "p", "cross", "bm25"]
    assert len(record["differences"]) == 6
    assert record["models"][0]["training_seconds"] == 61.4
    assert record["models"][1]["training_seconds"] is None
    rows = (output / "per-query.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(row)["query"] for row in rows] == [f"e{n}" for n in range(9)]
    assert (output / "comparison.png").is_file()
    assert "](comparison.png)" in (output / "comparison.md").read_text(encoding="utf-8")
    again = answer(capsys, *arguments)
    assert {**again, "output": None} == {**record, "output": None}
    mean = sum(json.loads(row)["models"]["p"]["mrr"] for row in rows) / 9
    [data] = [model["figures"]["mrr"]["mean"] for model in record["models"] if model["name"] == "p"]
    assert mean == pytest.approx(data)
    alone = answer(
        capsys, "evaluate", models["poly"], "--data", examples, "--num-candidates", "4",
        "--device", "cpu",
    )  # fmt: skip
    assert alone["mrr"] == pytest.approx(data)


def test_compare_on_a_corpus(
    capsys: pytest.CaptureFixture[str], models: dict[str, str], corpus: str, tmp_path: Path
) -> None:
    arguments = ["compare", models["cross"], models["poly"], "bm25", "--data", corpus]
    arguments += ["--output", str(tmp_path / "out"), "--no-latency", "--num-candidates", "3"]
    found = answer(capsys, *arguments, "--device", "cpu")
    assert found["metric"] == "ndcg@10"
    recalls = [f"recall@{k}" for k in (1, 5, 10, 20, 50, 100)]
    assert list(found["models"][0]["figures"]) == ["ndcg@10", *recalls, "mrr@10", "map"]
    assert found["models"][0]["latency"] == []
    assert not (tmp_path / "out" / "comparison.png").exists()
    evaluate = ["evaluate", models["poly"], "--data", corpus, "--device", "cpu"]
    reranked = answer(capsys, *evaluate, "--reranker", models["cross"], "--num-candidates", "3")
    assert reranked["map"] == pytest.approx(found["models"][0]["figures"]["map"]["mean"])
    words = answer(capsys, "evaluate", "bm25", "--data", corpus, "--limit", "1")
    assert (words["ndcg@10"], words["num_queries"], words["num_documents"]) == (1.0, 1, 9)


def test_any_figure_of_a_corpus(
    capsys: pytest.CaptureFixture[str], models: dict[str, str], corpus: str, tmp_path: Path
) -> None:
    chosen = ["--ks", "2,7", "--metrics", "recall@3,ndcg@4,mrr", "--data", corpus]
    evaluated = answer(capsys, "evaluate", models["poly"], *chosen, "--device", "cpu")
    names = ["ndcg@10", "recall@2", "recall@7", "mrr@10", "map", "recall@3", "ndcg@4", "mrr"]
    assert [name for name in evaluated if "@" in name or name in ("mrr", "map")] == names
    arguments = ["compare", models["poly"], "bm25", *chosen, "--no-latency", "--device", "cpu"]
    compared = answer(capsys, *arguments, "--output", str(tmp_path / "out"))
    assert compared["metric"] == "recall@3"
    figures = compared["models"][0]["figures"]
    assert {name: figures[name]["mean"] for name in names} == pytest.approx(
        {name: evaluated[name] for name in names}
    )
    page = (tmp_path / "out" / "comparison.md").read_text(encoding="utf-8")
    assert "| model | R@3 | 95% interval | nDCG@10 | R@2 | R@7 |" in page
    assert "difference in R@3" in page


def test_any_figure_of_examples(
    capsys: pytest.CaptureFixture[str], examples: str, tmp_path: Path
) -> None:
    chosen = ["--data", examples, "--num-candidates", "4", "--ks", "3", "--metrics", "ndcg@2"]
    evaluated = answer(capsys, "evaluate", "bm25", *chosen)
    assert {"recall@3", "mrr", "ndcg@2"} < set(evaluated)
    assert "recall@1" not in evaluated
    arguments = ["compare", "bm25", *chosen, "--no-latency", "--output", str(tmp_path / "out")]
    compared = answer(capsys, *arguments)
    assert compared["metric"] == "ndcg@2"
    assert compared["models"][0]["figures"]["ndcg@2"]["mean"] == evaluated["ndcg@2"]
    start = ["compare", "bm25", "--data", examples, "--output", str(tmp_path / "out")]
    message = refused(capsys, *start, "--num-candidates", "4", "--metrics", "recall@5")
    assert "metric = recall@5, but an example has only 4 candidates" in message


def test_figures_that_make_no_sense_are_refused(
    capsys: pytest.CaptureFixture[str], models: dict[str, str], corpus: str, pairs: str
) -> None:
    for flag, value in (("--ks", "1,5"), ("--metrics", "ndcg@5")):
        message = refused(capsys, "evaluate", models["bi"], "--data", pairs, flag, value)
        assert f"{flag} is for rankings, but {pairs} holds labelled pairs" in message
    message = refused(capsys, "evaluate", "bm25", "--data", corpus, "--metrics", "ndgc@5")
    assert "no metric 'ndgc@5'" in message
    message = refused(capsys, "evaluate", "bm25", "--data", corpus, "--ks", "0,5")
    assert "--ks must be whole numbers from 1" in message


def test_the_seed_and_the_runs(
    capsys: pytest.CaptureFixture[str], models: dict[str, str], examples: str, tmp_path: Path
) -> None:
    second = tmp_path / "second"
    load_variant("bi", models["bi"], temperature=1.0).save_pretrained(second)
    arguments = ["compare", f"ours={models['bi']},{second}", "--data", examples, "--no-latency"]
    arguments += ["--num-candidates", "4", "--device", "cpu", "--metrics", "mrr"]
    found = answer(capsys, *arguments, "--output", str(tmp_path / "one"))
    [model] = found["models"]
    assert len(model["figures"]["mrr"]["by_run"]) == 2
    assert found["differences"] == []
    other = answer(capsys, *arguments, "--output", str(tmp_path / "two"), "--seed", "5")
    assert other["digest"] != found["digest"]


def test_models_have_names(tmp_path: Path) -> None:
    odd = tmp_path / "a=b,c"
    odd.mkdir()
    given = (f"{tmp_path}/x", "two=y,z", "bm25", str(odd), f"named={odd}")
    assert parse_models(given) == {
        "x": (f"{tmp_path}/x",),
        "two": ("y", "z"),
        "bm25": ("bm25",),
        "a=b,c": (str(odd),),
        "named": (str(odd),),
    }
    for wrong in (("=x",), ("a=",), ("a=x,,y",), ("a=x,x",), ("p/m", "q/m")):
        with pytest.raises(UsageError):
            parse_models(wrong)


def test_what_cannot_be_compared_is_refused(
    capsys: pytest.CaptureFixture[str],
    models: dict[str, str],
    examples: str,
    corpus: str,
    pairs: str,
    tmp_path: Path,
) -> None:
    start = ["compare", "--output", str(tmp_path / "out"), "--device", "cpu", "--no-latency"]
    start += ["--num-candidates", "4"]
    on = [*start, "--data", examples]
    assert "given at least once" in refused(capsys, *on) or "MODEL is required" in refused(
        capsys, *on
    )
    assert "Two models are called 'bi'" in refused(capsys, *on, models["bi"], models["bi"])
    assert "classifies pairs" in refused(capsys, *on, models["bi"], models["classes"])
    (tmp_path / "nothing").mkdir()
    assert "nothing" in refused(capsys, *on, models["bi"], str(tmp_path / "nothing"))
    assert "There is no folder 'missing'" in refused(capsys, *on, models["bi"], "missing")
    assert "no metric 'mmr'" in refused(capsys, *on, "bm25", "--metrics", "mmr")
    for wrong in (["--metrics", "recall@1"], ["--ks", "1,5"], ["--metrics", "accuracy"]):
        refused(capsys, *start, "--data", pairs, "bm25", *wrong)
    message = refused(capsys, *start, "--data", corpus, models["cross"])
    assert "cannot search a corpus" in message
    used = refused(capsys, *on, "bm25", "--output", str(tmp_path))
    assert "is not a comparison" in used
    assert "--plot-at must be one of" in refused(capsys, *on, "bm25", "--plot-at", "7")
    assert "--sizes must be different" in refused(capsys, *on, "bm25", "--sizes", "7,7")


def test_a_missing_package_is_met_at_once(
    capsys: pytest.CaptureFixture[str],
    examples: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    arguments = ["compare", "bm25", "--data", examples, "--output", str(tmp_path / "out")]
    assert run(arguments, commands()) == 1
    assert "polyrank[plot]" in capsys.readouterr().err
    assert run([*arguments, "--no-plot", "--num-candidates", "4", *FAST], commands()) == 0


def test_ctrl_c_says_what_is_kept(
    capsys: pytest.CaptureFixture[str],
    examples: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from polyrank.evaluation.evaluator import Evaluator

    def stopped(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Evaluator, "evaluate", stopped)
    arguments = ["compare", "bm25", "--data", examples, "--output", str(tmp_path / "out")]
    assert run([*arguments, "--num-candidates", "4"], commands()) == 130
    assert "run the same command again to resume" in capsys.readouterr().err


def test_evaluate_labelled_pairs(
    capsys: pytest.CaptureFixture[str], models: dict[str, str], pairs: str, tmp_path: Path
) -> None:
    for model in (models["bi"], models["poly"], models["cross"], "bm25"):
        found = answer(capsys, "evaluate", model, "--data", pairs, "--device", "cpu")
        assert found["num_pairs"] == 4
        assert -1 <= found["spearman"] <= 1
        assert -1 <= found["pearson"] <= 1
    assert "classes" in refused(capsys, "evaluate", models["classes"], "--data", pairs)
    lines = [
        {"sentence1": "a", "sentence2": "b", "gold_label": label}
        for label in ("entailment", "neutral", "contradiction")
    ]
    nli = write(tmp_path / "nli.jsonl", lines)
    found = answer(capsys, "evaluate", models["classes"], "--data", nli, "--limit", "2")
    assert found["accuracy"] in (0.0, 0.5, 1.0)
    assert "classifies pairs" in refused(
        capsys, "evaluate", models["classes"], "--data", examples_of(tmp_path)
    )


def examples_of(folder: Path) -> str:
    record = {"context": "c", "response": "a", "candidates": ["b", "a"]}
    return write(folder / "own.jsonl", [record])


def test_evaluate_says_what_has_no_effect(
    capsys: pytest.CaptureFixture[str], models: dict[str, str], corpus: str, tmp_path: Path
) -> None:
    own = examples_of(tmp_path)
    assert run(["evaluate", "bm25", "--data", own, "--reranker", models["cross"]], commands()) == 0
    assert "--reranker has no effect" in capsys.readouterr().err
    assert run(["evaluate", "bm25", "--data", corpus, "--num-candidates", "5"], commands()) == 0
    assert "--num-candidates has no effect on a corpus without" in capsys.readouterr().err
    arguments = ["evaluate", models["cross"], "--data", corpus]
    assert "cannot search a corpus" in refused(capsys, *arguments)
