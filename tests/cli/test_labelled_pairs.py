"""The commands on labelled pairs, as a user types them: classes (NLI) and scores (STS)."""

import json

import pytest

from polyrank.cli.main import commands, run
from polyrank.models.checkpoint import load_model
from tiny_encoders import WORDS, load_variant

TINY = ["--batch-size", "8", "--max-steps", "2", "--device", "cpu"]
NAMES = ("contradiction", "entailment", "neutral")


def polyrank(capsys, *arguments):
    """The exit code, standard output and standard error of one command line."""
    code = run([str(argument) for argument in arguments], commands())
    captured = capsys.readouterr()
    assert "Traceback" not in captured.err + captured.out
    return code, captured.out, captured.err


def answer(capsys, *arguments):
    """What a command that succeeds prints with --json."""
    code, out, err = polyrank(capsys, *arguments, "--json")
    assert code == 0, err
    return json.loads(out)


def write(path, records):
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path


@pytest.fixture
def nli(tmp_path):
    """Pairs with a class by its name."""
    records = [
        {"sentence1": f"is it {word}", "sentence2": second, "gold_label": name}
        for word in WORDS[20:28]
        for name, second in zip(NAMES, ("no", f"the {word}", "thanks"), strict=True)
    ]
    return write(tmp_path / "nli.jsonl", records)


@pytest.fixture
def sts(tmp_path):
    """Pairs with a score from 0 to 5."""
    records = [
        {"sentence1": f"the {word}", "sentence2": f"a {WORDS[place]}", "score": place % 6}
        for place, word in enumerate(WORDS[15:40], start=10)
    ]
    return write(tmp_path / "sts.jsonl", records)


@pytest.fixture
def models(bert, tmp_path):
    """A function that gives the folder of an untrained model."""

    def folder(variant, **settings):
        path = tmp_path / "-".join([variant, *map(str, settings.values())])
        load_variant(variant, bert, **settings).save_pretrained(path)
        return path

    return folder


def test_a_bi_encoder_that_learnt_classes_is_evaluated_by_classes(bert, nli, tmp_path, capsys):
    model = tmp_path / "model"
    arguments = ["--base", bert, "--train", nli, "--dev", nli, "--output", model, *TINY]
    trained = answer(capsys, "train", "--arch", "bi", *arguments, "--metric", "macro_f1")
    assert load_model(model, device="cpu").classes == NAMES
    code, out, _ = polyrank(capsys, "evaluate", model, "--data", nli, "--device", "cpu")
    assert code == 0
    assert "spearman" not in out
    assert all(word in out for word in ("accuracy", "macro_f1", "precision", *NAMES))
    found = answer(capsys, "evaluate", model, "--data", nli, "--device", "cpu")
    for figure in ("accuracy", "macro_f1"):
        assert found[figure] == pytest.approx(trained["dev"][figure])
    assert [each["count"] for each in found["classes"].values()] == [8, 8, 8]
    f1 = [each["f1"] for each in found["classes"].values()]
    assert found["macro_f1"] == pytest.approx(sum(f1) / 3)


@pytest.mark.parametrize("variant", ["bi", "poly-learnt", "cross"])
def test_classes_need_a_model_with_a_classifier(variant, models, nli, capsys):
    model = models(variant)
    code, out, err = polyrank(capsys, "evaluate", model, "--data", nli, "--device", "cpu")
    assert code == 2
    assert "spearman" not in out
    assert "(contradiction, entailment, neutral), and the model has no classifier" in err
    assert "--objective classification" in err


def test_bm25_does_not_tell_classes(nli, sts, capsys):
    code, _, err = polyrank(capsys, "evaluate", "bm25", "--data", nli)
    assert code == 2
    assert "has no classifier" in err
    assert set(answer(capsys, "evaluate", "bm25", "--data", sts)) >= {"spearman", "pearson"}


def test_scores_need_a_model_that_gives_scores(models, sts, capsys):
    model = models("cross", task="classify", num_labels=3)
    code, _, err = polyrank(capsys, "evaluate", model, "--data", sts, "--device", "cpu")
    assert code == 2
    assert "scores as labels" in err
