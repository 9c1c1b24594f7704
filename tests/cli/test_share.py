"""`polyrank train --share` and the evaluation of what it leaves, on tiny models."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from polyrank.cli.data import DataOptions
from polyrank.cli.main import commands, run
from polyrank.cli.mine import load_pool
from polyrank.data.loading import load_records
from polyrank.data.sampling import Share
from polyrank.records import RetrievalSet
from polyrank.training.negatives.pool import Pool
from tiny_encoders import WORDS

FAST = ["--batch-size", "4", "--max-steps", "2", "--device", "cpu"]


@pytest.fixture
def corpus(tmp_path: Path) -> str:
    """Forty questions, each answered by one of forty documents, all in one split."""
    folder = tmp_path / "corpus"
    folder.mkdir()
    texts = [f"{WORDS[n]} {WORDS[n // 2]}" for n in range(40)]
    for name, letter in (("corpus", "d"), ("queries", "q")):
        lines = [{"_id": f"{letter}{n}", "text": f"{text} {n}"} for n, text in enumerate(texts)]
        path = folder / f"{name}.jsonl"
        path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    judged = "".join(f"q{n}\td{n}\t1\n" for n in range(40))
    (folder / "qrels").mkdir()
    (folder / "qrels" / "dev.tsv").write_text(f"query\tcorpus\tscore\n{judged}", encoding="utf-8")
    return str(folder)


def answer(capsys: pytest.CaptureFixture[str], *arguments: Any) -> dict[str, Any]:
    code = run([*map(str, arguments), "--json"], commands())
    out, err = capsys.readouterr()
    assert code == 0, err
    return dict(json.loads(out))


def refused(capsys: pytest.CaptureFixture[str], *arguments: Any) -> str:
    assert run(list(map(str, arguments)), commands()) == 2
    return capsys.readouterr().err


def test_a_share_is_trained_on_and_the_rest_is_evaluated(
    bert: str, corpus: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, rows = tmp_path / "model", tmp_path / "rows.jsonl"
    train = ["train", "--arch", "bi", "--base", bert, "--train", corpus, *FAST]
    answer(capsys, *train, "--output", model, "--share", "20%", "--share-seed", "3")
    record = json.loads((model / "training.json").read_text(encoding="utf-8"))
    assert record["num_examples"] == 8
    assert record["provenance"]["share"] == record["identity"]["share"] == "20% (seed 3)"
    card = (model / "README.md").read_text(encoding="utf-8")
    assert f"| training | `{corpus}`, 20% (seed 3) | 8 examples |" in card
    evaluate = ["evaluate", model, "--data", corpus, "--device", "cpu", "--output", rows]
    rest = ["--except-share", "0.2", "--share-seed", "3"]
    found = answer(capsys, *evaluate, *rest)
    assert (found["num_queries"], found["num_documents"]) == (32, 40)
    asked = {json.loads(row)["query"] for row in rows.read_text(encoding="utf-8").splitlines()}
    everything = load_records(corpus)
    assert isinstance(everything, RetrievalSet)
    drawn = Share(value=0.2, seed=3).of(everything.queries)
    assert asked == set(everything.queries) - set(drawn)
    compare = ["compare", model, "bm25", "--data", corpus, "--device", "cpu", "--no-latency"]
    compared = answer(capsys, *compare, *rest, "--output", tmp_path / "comparison")
    assert compared["num_queries"] == 32
    assert compared["models"][0]["figures"]["recall@1"]["mean"] == found["recall@1"]


def test_a_share_to_distil_keeps_the_whole_corpus(corpus: str) -> None:
    pool = load_pool(Path(corpus), DataOptions(), share=Share(value=0.2), say=lambda words: None)
    assert isinstance(pool, Pool)
    assert (len(pool.examples), len(pool.candidates)) == (8, 40)
    everything = load_records(corpus)
    assert isinstance(everything, RetrievalSet)
    drawn = Share(value=0.2).of(everything.queries)
    assert [(one.id or "").partition("/")[0] for one in pool.examples] == drawn


def test_dialogues_search_the_whole_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "data.jsonl"
    lines = [{"context": ["hello", f"find word{n}"], "response": f"the word{n}"} for n in range(9)]
    data.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    found = answer(capsys, "evaluate", "bm25", "--data", data, "--num-candidates", "all")
    assert (found["num_queries"], found["recall@1"]) == (9, 1)


def test_another_share_does_not_resume_the_run(
    bert: str, corpus: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = tmp_path / "model"
    train = ["train", "--arch", "bi", "--base", bert, "--train", corpus, "--output", model, *FAST]
    answer(capsys, *train, "--share", "50%")
    record = json.loads((model / "training.json").read_text(encoding="utf-8"))
    work = tmp_path / ".model.training"
    work.mkdir()
    job = json.dumps({"identity": record["identity"], "described": {}})
    (work / "job.json").write_text(job, encoding="utf-8")
    message = refused(capsys, *train, "--share", "80%")
    assert "another share of the training data (50% (seed 0))" in message


def test_shares_of_examples_that_search_the_whole_file(
    bert: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "data.jsonl"
    lines = [{"context": f"find word{n}", "response": f"the word{n}"} for n in range(40)]
    data.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    found = answer(
        capsys, "evaluate", "bm25", "--data", data, "--num-candidates", "all",
        "--except-share", "75%", "--limit", "6",
    )  # fmt: skip
    assert (found["num_queries"], found["num_documents"]) == (6, 40)
    assert found["recall@1"] == 1
    drawn = answer(capsys, "evaluate", "bm25", "--data", data, "--except-share", "75%")
    assert (drawn["num_examples"], drawn["num_candidates"]) == (10, 20)
    compared = answer(
        capsys, "compare", "bm25", "--data", data, "--num-candidates", "all", "--no-latency",
        "--except-share", "75%", "--output", tmp_path / "out",
    )  # fmt: skip
    assert compared["num_queries"] == 10
    assert compared["models"][0]["figures"]["recall@50"]["mean"] == 1


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("0%", "above 0% and at most 100%, got 0%"),
        ("120%", "above 0% and at most 100%, got 120%"),
        ("5", "Write 5% or 100%"),
        ("1%", "1% (seed 0) of 40 records is less than one"),
    ],
)
def test_a_share_that_makes_no_sense_is_refused(
    given: str,
    words: str,
    bert: str,
    corpus: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    train = ["train", "--arch", "bi", "--base", bert, "--train", corpus, *FAST]
    assert words in refused(capsys, *train, "--output", tmp_path / "model", "--share", given)
    assert words in refused(capsys, "evaluate", "bm25", "--data", corpus, "--except-share", given)


def test_the_seed_of_no_share_warns(corpus: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["evaluate", "bm25", "--data", corpus, "--share-seed", "2"], commands()) == 0
    assert "--share-seed has no effect without --except-share" in capsys.readouterr().err
