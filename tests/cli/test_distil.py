"""`polyrank distil` as a user types it."""

import json
import os

import pytest

from polyrank.cli.main import commands, run
from polyrank.data.loading import load_examples
from polyrank.models.answers import Answering
from polyrank.models.checkpoint import load_model
from polyrank.models.cross_encoder import CrossEncoder
from tiny_encoders import load_variant

WORDS = ["file", "disk", "kernel", "driver", "wifi", "sound"]
TINY = ["--batch-size", "8", "--max-steps", "1", "--device", "cpu", "--dtype", "float32"]


@pytest.fixture(autouse=True)
def no_waiting_for_the_disk(monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda _: None)


def polyrank(capsys, *arguments):
    """The exit code, standard output and standard error of one command line."""
    code = run([str(argument) for argument in arguments], commands())
    captured = capsys.readouterr()
    assert "Traceback" not in captured.err + captured.out
    return code, captured.out, captured.err


def write(path, records):
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path


@pytest.fixture
def data(tmp_path):
    records = [
        {
            "context": ["hello", f"what is {WORDS[n % 6]} {n}"],
            "response": f"{WORDS[n % 6]} is {n}",
            "negatives": [f"{WORDS[(n + 1) % 6]} is not", f"{WORDS[(n + 2) % 6]} is not"],
        }
        for n in range(24)
    ]
    return write(tmp_path / "data.jsonl", records)


@pytest.fixture(scope="module")
def saved(bert, tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved")
    for variant in ("bi", "cross"):
        load_variant(variant, bert).save_pretrained(folder / variant)
    regress = load_variant("cross", bert, task="regress")
    regress.save_pretrained(folder / "regress")
    return folder


def arguments_of(bert, saved, data, student, **changed):
    flags = {"arch": "bi", "base": bert, "train": data, "output": student}
    flags |= {"teacher": saved / "cross"} | changed
    given = [part for name, value in flags.items() for part in (f"--{name}", value)]
    return ["distil", *given, *TINY]


@pytest.mark.parametrize(("arch", "objective"), [("bi", "margin_mse"), ("poly", "kl")])
def test_distil(arch, objective, bert, data, saved, tmp_path, capsys, monkeypatch):
    output = tmp_path / "student"
    arguments = arguments_of(bert, saved, data, output, arch=arch, objective=objective, dev=data)
    code, out, _ = polyrank(capsys, *arguments, "--json")
    assert code == 0
    assert json.loads(out)["steps"] == 1
    assert json.loads(out)["dev"]["loss"] > 0
    assert load_model(output, device="cpu").config.architecture == arch
    labels = load_examples(tmp_path / "student.labels.jsonl")
    assert len(labels) == 24
    assert all(len(example.scores) == 3 for example in labels)
    [dev] = tmp_path.glob("student.labels.dev-*.jsonl")
    assert all(len(one.scores) == 1 + len(one.negatives) for one in load_examples(dev))

    def again(*_, **__):
        raise AssertionError("the teacher scored again")

    monkeypatch.setattr(CrossEncoder, "score_pairs", again)
    code, _, _ = polyrank(capsys, *arguments)
    assert code == 0


def test_pairs_are_found(bert, data, saved, tmp_path, capsys):
    labels = tmp_path / "kept" / "labels.jsonl"
    arguments = arguments_of(
        bert,
        saved,
        data,
        tmp_path / "student",
        pairs="given,bm25,random,model",
        retriever=saved / "bi",
        labels=labels,
    )
    code, out, err = polyrank(capsys, *arguments, "--num-negatives", "2", "--pick", "top")
    assert (code, err) == (0, "")
    assert f"are in {labels}" in out
    for example in load_examples(labels):
        assert 5 <= len(example.negatives) <= 8
        assert len(example.scores) == 1 + len(example.negatives)
    arguments[arguments.index("given,bm25,random,model")] = "bm25"
    code, _, err = polyrank(capsys, *arguments)
    assert code == 2
    assert "found in another way" in err
    assert "--retriever has no effect with --pairs bm25" in err


def test_labelled_pairs_become_more(bert, saved, tmp_path, capsys):
    records = [
        {"first": f"a {WORDS[n % 6]} {n}", "second": f"my {WORDS[n % 6]} {n}", "label": n / 40}
        for n in range(24)
    ]
    data = write(tmp_path / "pairs.jsonl", records)
    arguments = arguments_of(
        bert,
        saved,
        data,
        tmp_path / "student",
        teacher=saved / "regress",
        pairs="bm25",
        format="pairs",
    )
    for objective in ("auto", "regression"):
        code, out, _ = polyrank(capsys, *arguments, "--objective", objective)
        assert code == 0
        assert "24 gold pairs, and" in out
    silver = (tmp_path / "student.labels.jsonl").read_text().splitlines()
    assert len(silver) > 24
    arguments[arguments.index("bm25")] = "given"
    code, _, err = polyrank(capsys, *arguments)
    assert code == 2
    assert "pairs = given adds nothing" in err


def test_bad_usage(bert, data, saved, tmp_path, capsys):
    output = tmp_path / "student"
    bare = write(
        tmp_path / "bare.jsonl", [{"context": f"a {n}", "response": f"b {n}"} for n in range(9)]
    )
    wrong = [
        ({"train": bare}, "No example has negatives to score"),
        ({"pairs": "given,bm52"}, "Did you mean 'bm25'?"),
        ({"pairs": "model"}, "Give its folder with --retriever"),
        ({"arch": "cross"}, "--arch is 'cross'"),
        ({"objective": "in_batch_softmax"}, "learns nothing from a teacher's scores"),
        ({"pairs": "bm25", "from-rank": "9", "to-rank": "3"}, "to_rank must be at least"),
        ({"output": data}, "already exists and is not a model"),
    ]
    for changed, message in wrong:
        code, _, err = polyrank(capsys, *arguments_of(bert, saved, data, output, **changed))
        assert code == 2
        assert message in err
    assert not output.exists()


def test_labels_of_another_teacher(bert, data, saved, tmp_path, capsys):
    arguments = arguments_of(bert, saved, data, tmp_path / "student")
    assert polyrank(capsys, *arguments)[0] == 0
    arguments[arguments.index(saved / "cross")] = saved / "regress"
    code, _, err = polyrank(capsys, *arguments)
    assert code == 2
    assert "holds labels of another teacher" in err
    assert polyrank(capsys, *arguments, "--relabel")[0] == 0


def test_several_teachers(bert, data, saved, tmp_path, capsys, monkeypatch):
    arguments = arguments_of(bert, saved, data, tmp_path / "student", objective="kl", dev=data)
    assert polyrank(capsys, *arguments)[0] == 0
    scored, calls = Answering.score_pairs, []

    def counted(self, pairs, **options):
        calls.append(self.architecture)
        return scored(self, pairs, **options)

    monkeypatch.setattr(Answering, "score_pairs", counted)
    code, out, _ = polyrank(capsys, *arguments, "--teacher", saved / "bi")
    assert code == 0
    assert set(calls) == {"bi"}, "the first teacher has scored before"
    assert f"72 scores of {saved / 'bi'} are in {tmp_path / 'student.labels-'}" in out
    assert len(list(tmp_path.glob("student.labels*.jsonl"))) == 4  # and of dev examples
    code, out, _ = polyrank(capsys, *arguments, "--teacher", saved / "bi", "--show-config")
    assert f"teacher:\n- {saved / 'cross'}\n- {saved / 'bi'}\n" in out


def test_an_interruption_keeps_the_scores(bert, data, saved, tmp_path, capsys, monkeypatch):
    from polyrank.training.teaching import labelling

    arguments = arguments_of(bert, saved, data, tmp_path / "student")
    scored = CrossEncoder.score_pairs
    calls = []

    def interrupted(self, pairs, *, show_progress_bar=False):
        calls.append(len(pairs))
        if len(calls) == 3:
            raise KeyboardInterrupt
        return scored(self, pairs, show_progress_bar=show_progress_bar)

    monkeypatch.setattr(
        labelling.label, "__kwdefaults__", {**labelling.label.__kwdefaults__, "block_size": 6}
    )
    monkeypatch.setattr(CrossEncoder, "score_pairs", interrupted)
    code, _, err = polyrank(capsys, *arguments)
    assert code == 130
    assert "run the same command again to resume" in err
    code, out, _ = polyrank(capsys, *arguments)
    assert code == 0
    assert "Resuming after 12 of 24 examples." in out
    assert calls == [18] * 5
