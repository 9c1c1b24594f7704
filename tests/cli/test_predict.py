"""`polyrank predict` on tiny models: every kind of model, of data and of prediction."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import torch

from polyrank.cli.main import commands, run
from polyrank.data.scoring_inputs import identity_of, read_scoring_inputs
from polyrank.errors import DataError, UsageError
from polyrank.evaluation.prediction import predict, write_predictions
from polyrank.models.config import ClassifierConfig
from polyrank.records import ScoringInput
from tiny_encoders import TEXTS, WORDS, load_variant

NAMES = ("contradiction", "entailment", "neutral")
CONTEXTS = ["read a file", ("hello", "the wifi driver"), "thanks"]
INPUTS = [
    *(ScoringInput(context=one, candidates=tuple(TEXTS), id=f"c{n}")  # type: ignore[arg-type]
      for n, one in enumerate(CONTEXTS)),
    *(ScoringInput(context=one, candidates=("sort a list",), is_pair=True)  # type: ignore[arg-type]
      for one in CONTEXTS),
    ScoringInput(context="boot", candidates=("yes", "no"), candidate_ids=("d1", "d2")),
]  # fmt: skip
RANKING = ["bi", "poly-learnt", "poly-last", "cross", "cross-interaction"]


def model_of(variant: str, folder: Any) -> Any:
    """A model of a variant, some of which have classes or values."""
    if variant == "cross-values":
        return load_variant("cross", folder, task="regress")
    if variant == "cross-classes":
        model = load_variant("cross", folder, task="classify", num_labels=3)
        model.take_classifier(ClassifierConfig(classes=NAMES))
        return model
    if variant == "bi-classes":
        model = load_variant("bi", folder)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(3)
            model.take_classifier(ClassifierConfig(classes=NAMES, concatenation="u,v,|u-v|"))
            with torch.no_grad():
                for parameter in model.classifier.parameters():
                    parameter.normal_(std=0.3)
        return model
    return load_variant(variant, folder)


def rows_of(model: Any, **settings: Any) -> list[dict[str, Any]]:
    return [row for block in predict(model, iter(INPUTS), **settings) for row in block]


@pytest.mark.parametrize("variant", RANKING)
@pytest.mark.parametrize("block_size", [1, 12, 4096])
def test_the_scores_are_those_of_rank(variant: str, block_size: int, bert: str) -> None:
    model = model_of(variant, bert)
    rows = rows_of(model, block_size=block_size)
    assert [row["row"] for row in rows] == [1, 2, 3, 4, 5, 6, 7]
    assert [row.get("id") for row in rows] == ["c0", "c1", "c2", None, None, None, None]
    assert rows[6]["candidates"] == ["d1", "d2"]
    for one, row in zip(INPUTS, rows, strict=True):
        hits = {int(hit.id): hit.score for hit in model.rank(one.context, list(one.candidates))}
        found = [row["score"]] if one.is_pair else row["scores"]
        assert found == pytest.approx([hits[n] for n in range(len(hits))], abs=1e-5)


def test_values_are_those_of_score_pairs(bert: str) -> None:
    model = model_of("cross-values", bert)
    rows = rows_of(model)
    expected = model.score_pairs([(one.context, one.candidates[0]) for one in INPUTS[3:6]])
    assert [row["score"] for row in rows[3:6]] == pytest.approx(expected.tolist(), abs=1e-5)


@pytest.mark.parametrize("variant", ["cross-classes", "bi-classes"])
@pytest.mark.parametrize("block_size", [7, 4096])
def test_classes_are_those_of_classify(variant: str, block_size: int, bert: str) -> None:
    model = model_of(variant, bert)
    rows = rows_of(model, block_size=block_size)
    for one, row in zip(INPUTS, rows, strict=True):
        pairs = [(one.context, text) for text in one.candidates]
        classes = [row["class"]] if one.is_pair else row["classes"]
        found = [row["probabilities"]] if one.is_pair else row["probabilities"]
        assert classes == model.classify(pairs)
        expected = model.class_probabilities(pairs).tolist()
        assert [tuple(each) for each in found] == [NAMES] * len(pairs)
        for each, values in zip(found, expected, strict=True):
            assert list(each.values()) == pytest.approx(values, abs=1e-5)
            assert sum(each.values()) == pytest.approx(1, abs=1e-5)
    shares = {round(each[NAMES[0]], 3) for row in rows[:3] for each in row["probabilities"]}
    assert len(shares) > 5


def test_what_a_model_cannot_predict_is_refused(bert: str) -> None:
    with pytest.raises(UsageError, match="no classifier"):
        list(predict(model_of("poly-learnt", bert), INPUTS, kind="classes"))
    with pytest.raises(UsageError, match="predicts classes, not scores"):
        list(predict(model_of("cross-classes", bert), INPUTS, kind="scores"))
    assert "score" in rows_of(model_of("bi-classes", bert), kind="scores")[3]


def test_inputs_are_read_as_they_are_needed(bert: str) -> None:
    read = 0

    def endless() -> Iterator[ScoringInput]:
        nonlocal read
        while True:
            read += 1
            yield ScoringInput(context="a", candidates=("yes", "no"))

    found = predict(model_of("bi", bert), endless(), block_size=20)
    for number in range(1, 4):
        assert len(next(found)) == 10
        assert read == 10 * number + 1


def write(path: Path, records: list[Any]) -> Path:
    text = "".join(json.dumps(one, ensure_ascii=False) + "\n" for one in records)
    path.write_text(text, encoding="utf-8")
    return path


def read(path: Path | str, **settings: Any) -> list[tuple[Any, ...]]:
    found = read_scoring_inputs(path, **settings)
    return [(one.id, one.context, one.candidates, one.is_pair) for one in found]


def test_data_with_and_without_labels(tmp_path: Path) -> None:
    several = write(tmp_path / "several.jsonl", [{"context": ["a", "b"], "candidates": ["x", "y"]}])
    assert read(several) == [(None, ("a", "b"), ("x", "y"), False)]
    own = {"id": 7, "context": "a", "response": "x", "candidates": ["y", "x"], "gold": 1}
    mixed = write(tmp_path / "mixed.jsonl", [own, {"context": "b", "response": "z"}])
    assert read(mixed) == [("7", "a", ("y", "x"), False), (None, "b", ("z",), True)]
    (tmp_path / "plain.csv").write_text("id,query,candidate\n1,a,x\n2,b,\n", encoding="utf-8")
    assert read(tmp_path / "plain.csv") == [("1", "a", ("x",), True), ("2", "b", ("",), True)]
    (tmp_path / "other.tsv").write_text("asked\tsaid\na\tx\n", encoding="utf-8")
    columns = {"context": "asked", "response": "said"}
    assert read(tmp_path / "other.tsv", columns=columns) == [(None, "a", ("x",), True)]
    for names in (("first", "second"), ("sentence1", "sentence2"), ("premise", "hypothesis")):
        for rest in ({}, {"label": 0.5}, {"label": "entailment"}, {"label": "-"}, {"score": 3}):
            pairs = write(tmp_path / "pairs.jsonl", [dict(zip(names, "ax", strict=True)) | rest])
            assert read(pairs) == [(None, "a", ("x",), True)]
    sts = "main-captions\tMSRvid\t2012test\t0001\t5.000\ta\tx\n"
    (tmp_path / "sts.csv").write_text(sts, encoding="utf-8")
    assert read(tmp_path / "sts.csv") == [(None, "a", ("x",), True)]
    dialogue = "text:a\tlabels:x\tlabel_candidates:y|x\tepisode_done:True\n"
    (tmp_path / "parlai.txt").write_text(dialogue, encoding="utf-8")
    assert read(tmp_path / "parlai.txt") == [(None, ("a",), ("y", "x"), False)]


def test_a_pipe_is_read_once(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    text = '{"context": "a", "candidate": "x"}\n{"context": "b", "candidates": ["y", "z"]}\n'
    writer = Thread(target=pipe.write_text, args=(text,), daemon=True)
    writer.start()
    found = read(pipe)
    writer.join(timeout=10)
    assert found == [(None, "a", ("x",), True), (None, "b", ("y", "z"), False)]
    assert identity_of(pipe) is None


def test_judged_documents_of_a_corpus(tmp_path: Path) -> None:
    write(
        tmp_path / "corpus.jsonl", [{"_id": f"d{n}", "text": text} for n, text in enumerate("xyz")]
    )
    write(tmp_path / "queries.jsonl", [{"_id": "q", "text": "a"}])
    (tmp_path / "qrels").mkdir()
    (tmp_path / "qrels" / "test.tsv").write_text("q\tc\ts\nq\td2\t1\nq\td0\t0\n", encoding="utf-8")
    [found] = read_scoring_inputs(tmp_path)
    assert (found.id, found.context) == ("q", "a")
    assert (found.candidates, found.candidate_ids) == (("z", "x"), ("d2", "d0"))


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{", "not JSON"),
        ('{"context": "a"}', "No column holds the candidate"),
        ('{"candidates": ["x"]}', "No column holds the context"),
        ('{"context": "a", "candidates": []}', "list of candidates is empty"),
        ('{"context": "a", "candidates": [1]}', "must be a list of texts"),
        ('{"context": 3, "response": "x"}', "must be a text or a list of turns"),
        ('{"context": "a", "response": null}', "must be a text, got NoneType"),
    ],
)
def test_a_bad_line_names_file_and_line(line: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text('{"context": "a", "response": "x"}\n' + line + "\n", encoding="utf-8")
    with pytest.raises(DataError, match=words) as refusal:
        read(path)
    assert f"{path}, line 2" in str(refusal.value)


def test_an_interrupted_prediction_resumes(bert: str, tmp_path: Path) -> None:
    model, said = model_of("bi", bert), list[str]()
    inputs = [ScoringInput(context=f"a {word}", candidates=("x", word)) for word in WORDS]
    settings: dict[str, Any] = {"data": "sha", "reading": {}, "block_size": 10}
    whole = write_predictions(model, inputs, tmp_path / "whole.jsonl", **settings)
    assert (whole.num_rows, whole.num_pairs) == (len(WORDS), 2 * len(WORDS))

    def broken() -> Iterator[ScoringInput]:
        yield from inputs[:23]
        raise KeyboardInterrupt

    output = tmp_path / "resumed.jsonl"
    output.write_text("before", encoding="utf-8")
    with pytest.raises(KeyboardInterrupt):
        write_predictions(model, broken(), output, **settings)
    assert output.read_text(encoding="utf-8") == "before"
    with pytest.raises(UsageError, match="other data"):
        write_predictions(model, inputs, output, **{**settings, "data": "another"})
    again = write_predictions(model, inputs, output, **settings, say=said.append)
    assert said == ["Resuming after 20 rows."]
    assert again == whole
    assert output.read_bytes() == (tmp_path / "whole.jsonl").read_bytes()
    assert sorted(each.name for each in tmp_path.iterdir()) == ["resumed.jsonl", "whole.jsonl"]


@pytest.fixture
def folder(bert: str, tmp_path: Path) -> Path:
    path = tmp_path / "model"
    model_of("poly-learnt", bert).save_pretrained(path)
    return path


def polyrank(capsys: pytest.CaptureFixture[str], *arguments: Any) -> tuple[int, str, str]:
    code = run(["predict", *map(str, arguments), "--device", "cpu"], commands())
    out, err = capsys.readouterr()
    assert "Traceback" not in out + err
    return code, out, err


def test_the_command(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = write(
        tmp_path / "data.jsonl",
        [{"id": f"é{n}", "context": f"a {word}", "candidates": ["x", word]}
         for n, word in enumerate(WORDS)],
    )  # fmt: skip
    code, out, err = polyrank(capsys, folder, "--data", data, "--limit", 5)
    assert code == 0, err
    printed = [json.loads(line) for line in out.splitlines()]
    assert [row["id"] for row in printed] == [f"é{n}" for n in range(5)]
    output = tmp_path / "scores.jsonl"
    code, out, err = polyrank(capsys, folder, "--data", data, "--output", output, "--json")
    assert code == 0, err
    found = json.loads(out)
    assert (found["num_rows"], found["num_pairs"]) == (len(WORDS), 2 * len(WORDS))
    assert (found["kind"], found["classes"]) == ("scores", None)
    written = [json.loads(line) for line in output.read_text(encoding="utf-8").splitlines()]
    assert len(written) == len(WORDS)
    for one, other in zip(printed, written, strict=False):
        assert one["scores"] == pytest.approx(other["scores"], abs=1e-5)


def test_what_the_command_refuses(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good = {"context": "a", "response": "x"}
    data = write(tmp_path / "data.jsonl", [good, {"context": "a"}])
    output = tmp_path / "scores.jsonl"
    code, _, err = polyrank(capsys, folder, "--data", data, "--output", output)
    assert code == 2
    assert f"{data}, line 2: No column holds the candidate" in err
    assert not output.exists()
    assert not list(tmp_path.glob(".scores*"))
    code, _, err = polyrank(capsys, folder, "--data", data, "--json")
    assert code == 2
    assert "Give the file for the predictions with --output" in err
    code, _, err = polyrank(capsys, folder, "--data", data, "--kind", "classes")
    assert code == 2
    assert "no classifier" in err
    empty = write(tmp_path / "empty.jsonl", [])
    code, _, err = polyrank(capsys, folder, "--data", empty)
    assert code == 2
    assert "The file is empty" in err
