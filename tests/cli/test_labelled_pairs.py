"""The commands on labelled pairs, as a user types them: classes (NLI) and scores (STS)."""

import json

import pytest
import torch

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


@pytest.mark.parametrize(
    ("arch", "kind", "objective", "figures"),
    [
        ("cross", "sts", "regression", {"spearman", "pearson"}),
        ("cross", "nli", "classification", {"accuracy", "macro_f1"}),
        ("bi", "sts", "cosent", {"spearman", "pearson"}),
        ("bi", "nli", "classification", {"accuracy", "macro_f1"}),
        ("poly", "sts", "cosent", {"spearman", "pearson"}),
    ],
)
def test_auto_suits_the_labels(
    arch, kind, objective, figures, bert, nli, sts, tmp_path, capsys, monkeypatch
):
    """One command, without --task, --num-labels or --objective."""
    data, model = {"sts": sts, "nli": nli}[kind], tmp_path / "model"
    arguments = ["--base", bert, "--train", data, "--dev", data, "--output", model, *TINY]
    trained = answer(capsys, "train", "--arch", arch, *arguments)
    assert set(trained["dev"]) == {"loss", *figures}
    record = json.loads((model / "training.json").read_text())
    assert record["objective"] == record["identity"]["objective"]["objective"] == objective
    assert f"\nobjective: {objective}\n" in (model / "README.md").read_text()
    loaded = load_model(model, device="cpu")
    assert loaded.classes == (NAMES if kind == "nli" else None)
    if arch == "cross":
        task = {"regression": "regress", "classification": "classify"}[objective]
        assert loaded.config.task == task
        assert f"\ntask: {task}\n" in (model / "README.md").read_text()
    found = answer(capsys, "evaluate", model, "--data", data, "--device", "cpu")
    assert figures <= set(found)


def test_the_head_has_as_many_classes_as_the_data(bert, tmp_path, capsys):
    records = [
        {"first": f"the {word}", "second": WORDS[place], "label": place % 5}
        for place, word in enumerate(WORDS[15:40])
    ]
    data, model = write(tmp_path / "five.jsonl", records), tmp_path / "model"
    start = ["train", "--arch", "cross", "--base", bert, "--train", data, "--output", model, *TINY]
    answer(capsys, *start)
    assert load_model(model, device="cpu").classes == ("0", "1", "2", "3", "4")
    answer(capsys, *start, "--num-labels", "7")  # what is given stands
    assert load_model(model, device="cpu").config.num_labels == 7
    code, _, err = polyrank(capsys, *start, "--task", "regress", "--objective", "classification")
    assert code == 2
    assert "needs a cross-encoder with task = classify, not regress" in err


def test_what_was_asked_for_comes_before_the_labels(bert, sts, tmp_path, capsys):
    model = tmp_path / "model"
    start = ["train", "--arch", "cross", "--base", bert, "--train", sts, "--output", model, *TINY]
    for given in (["--task", "rank"], ["--objective", "binary"], ["--head", "interaction"]):
        answer(capsys, *start, *given)
        assert load_model(model, device="cpu").config.task == "rank"
        assert json.loads((model / "training.json").read_text())["objective"] == "binary"
    goes_on = tmp_path / "on"
    start = [
        "train",
        "--arch",
        "cross",
        "--base",
        model,
        "--train",
        sts,
        "--output",
        goes_on,
        *TINY,
    ]
    answer(capsys, *start)  # a saved head keeps its task
    assert load_model(goes_on, device="cpu").config.task == "rank"


def test_a_cross_encoder_gets_a_new_head_for_another_task(bert, nli, sts, tmp_path, capsys):
    """From inference to scored pairs, and back, in one command each."""
    first, second, third = (tmp_path / name for name in ("nli", "sts", "back"))
    answer(
        capsys,
        *["train", "--arch", "cross", "--base", bert, "--train", nli],
        "--output",
        first,
        *TINY,
    )
    for base, data, output, task in (
        (first, sts, second, "regress"),
        (second, nli, third, "classify"),
    ):
        command = ["train", "--arch", "cross", "--base", base, "--train", data, "--output", output]
        code, out, err = polyrank(capsys, *command, *TINY, "--learning-rate", "1e-12")
        assert code == 0, err
        assert f"gets a new head for task = {task}" in out
        loaded, before = load_model(output, device="cpu"), load_model(base, device="cpu")
        assert loaded.config.task == task
        weights = before.tower.state_dict()
        assert all(
            torch.allclose(value, weights[name], atol=1e-6)
            for name, value in loaded.tower.state_dict().items()
        )
    assert load_model(third, device="cpu").classes == NAMES


def test_one_trained_by_regression_reranks(bert, models, sts, tmp_path, capsys):
    cross, index, texts = tmp_path / "cross", tmp_path / "index", tmp_path / "texts.txt"
    texts.write_text("\n".join(WORDS), encoding="utf-8")
    start = ["train", "--arch", "cross", "--base", bert, "--train", sts, "--output", cross, *TINY]
    answer(capsys, *start)
    answer(
        capsys,
        "index",
        "build",
        models("bi"),
        "--candidates",
        texts,
        "--output",
        index,
        "--device",
        "cpu",
    )
    asked = ["search", index, "a file", "--reranker", cross, "-k", "5", "--device", "cpu"]
    hits = answer(capsys, *asked)["results"][0]["hits"]
    scores = load_model(cross, device="cpu").score("a file", [hit["text"] for hit in hits])
    assert [hit["score"] for hit in hits] == pytest.approx(scores.tolist(), abs=1e-4)
    assert len(load_model(cross, device="cpu").rank("a file", WORDS, top_k=5)) == 5


def test_compare_on_scores(models, sts, tmp_path, capsys):
    bi, other, cross = models("bi"), models("bi", temperature=0.5), models("cross", task="regress")
    out = tmp_path / "out"
    arguments = ["compare", bi, f"two={other},{models('bi', temperature=0.5, reduction='max')}"]
    code, _, err = polyrank(capsys, *arguments, "--data", sts, "--output", out, "--device", "cpu")
    assert code == 2  # the runs of one model have one setting
    assert "differ in more than the seed" in err
    arguments = ["compare", bi, cross, "bm25", "--data", sts, "--output", out, "--device", "cpu"]
    arguments += ["--time-limit", "0.1"]
    found = answer(capsys, *arguments)
    assert (found["metric"], found["num_pairs"]) == ("spearman", 25)
    for each, source in zip(found["models"], (bi, cross, "bm25"), strict=True):
        alone = answer(capsys, "evaluate", source, "--data", sts, "--device", "cpu")
        for figure in ("spearman", "pearson"):
            figures = each["figures"][figure]
            assert figures["mean"] == pytest.approx(alone[figure], abs=1e-6)
            assert figures["low"] <= figures["mean"] <= figures["high"]
        [latency] = each["latency"]
        assert latency["num_candidates"] == 1
        assert latency["milliseconds"] > 0
    assert len(found["differences"]) == 3
    assert all(0 < each["p"] <= each["p_holm"] <= 1 for each in found["differences"])
    page = (out / "comparison.md").read_text()
    assert "Quality, 25 pairs" in page
    assert "ms per pair" in page
    assert (out / "comparison.svg").exists()
    rows = [json.loads(line) for line in (out / "per-query.jsonl").read_text().splitlines()]
    assert len(rows) == 25
    assert set(rows[0]) == {"pair", "label", "models"}
    again = answer(capsys, *arguments, "--metrics", "pearson")  # from what is kept
    assert again["metric"] == "pearson"
    assert again["models"][0]["figures"] == found["models"][0]["figures"]


def test_compare_on_classes(bert, models, nli, sts, tmp_path, capsys):
    made = {}
    for arch, seed in (("bi", 0), ("bi", 1), ("cross", 0)):
        made[arch, seed] = tmp_path / f"{arch}-{seed}"
        start = ["train", "--arch", arch, "--base", bert, "--train", nli, *TINY, "--seed", seed]
        answer(capsys, *start, "--output", made[arch, seed])
    named = [f"bi={made['bi', 0]},{made['bi', 1]}", f"cross={made['cross', 0]}"]
    start = ["compare", "--output", tmp_path / "out", "--no-latency", "--device", "cpu"]
    on = [*start, "--data", nli]
    found = answer(capsys, *on, *named)
    assert found["metric"] == "accuracy"
    bi, cross = found["models"]
    for row, seed in enumerate((0, 1)):
        alone = answer(capsys, "evaluate", made["bi", seed], "--data", nli, "--device", "cpu")
        for figure in ("accuracy", "macro_f1"):
            assert bi["figures"][figure]["by_run"][row] == pytest.approx(alone[figure])
    assert bi["figures"]["accuracy"]["mean"] == pytest.approx(
        sum(bi["figures"]["accuracy"]["by_run"]) / 2
    )
    assert cross["figures"]["macro_f1"]["low"] <= cross["figures"]["macro_f1"]["high"]
    tested = answer(capsys, *on, *named, "--metrics", "macro_f1")
    [difference] = tested["differences"]
    assert difference["low"] <= difference["difference"] <= difference["high"]
    for wrong, message in (
        ([models("bi")], "bi: The labels of the pairs are classes"),
        (["bm25"], "bm25: The labels of the pairs are classes"),
        ([*named, "--metrics", "spearman"], "no metric 'spearman' here"),
        ([*named, "--metrics", "mrr"], "--metrics mrr is for rankings"),
        ([*named, "--ks", "1,5"], "--ks is for rankings"),
    ):
        code, _, err = polyrank(capsys, *on, *wrong)
        assert code == 2
        assert message in err
    code, _, err = polyrank(capsys, *start, "--data", sts, *named)
    assert code == 2
    assert "scores as labels" in err
