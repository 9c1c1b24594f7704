"""A table of questions and answers in; three trained models and their comparison out."""

import json
import re
import shlex

import pytest

from polyrank.cli.main import commands, run
from tiny_encoders import WORDS


@pytest.fixture
def polyrank(capsys):
    """What a command prints with --json, and what it says."""

    def call(*arguments):
        assert run([*map(str, arguments), "--json"], commands()) == 0
        printed = capsys.readouterr()
        return json.loads(printed.out), printed.err

    return call


def test_all_three_are_trained_compared_and_not_trained_twice(bert, tmp_path, polyrank):
    table = tmp_path / "faq.csv"
    rows = [f"how do i {word},the {word} is new" for word in WORDS[12:40]]
    table.write_text("\n".join(["question,answer", *rows]) + "\n")
    models = tmp_path / "models"
    command = ["train", "--arch", "all", "--base", bert, "--train", table, "--output", models]
    command += ["--max-steps", 2, "--batch-size", 4, "--num-codes", 4]
    command += ["--device", "cpu"]
    first, said = polyrank(*command)
    assert [one["architecture"] for one in first["models"]] == ["bi", "poly", "cross"]
    assert "no effect" not in said
    again, said = polyrank(*command)
    assert again == first
    assert said.count("is trained already") == 3
    trained = [models / name for name in ("bi", "poly", "cross")]
    compared, _ = polyrank(
        "compare", *trained, "--data", table, "--output", tmp_path / "out", "--sizes", "3"
    )
    assert len(compared["models"]) == 3
    assert (tmp_path / "out" / "comparison.json").is_file()
    assert list((tmp_path / "out").glob("*.png"))


def ranking(folder):
    """A table of questions and answers, with names that must be mapped."""
    path = folder / "my faq.csv"
    rows = [f"how do i {word},the {word} is new" for word in WORDS[12:40]]
    path.write_text("\n".join(["asked,said", *rows]) + "\n")
    return path, ["--columns", "context=asked,response=said"]


def few(folder):
    """Fewer different answers than an evaluation draws candidates."""
    path = folder / "few.jsonl"
    rows = [{"query": f"how do i {word}", "pos": f"the {word}"} for word in WORDS[12:20]]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path, []


def scored(folder):
    """Pairs with scores, as KorSTS has them."""
    path = folder / "sts.tsv"
    rows = [f"how do i {word}\t{word}\t{place % 6}.5" for place, word in enumerate(WORDS[12:32])]
    path.write_text("\n".join(["sen1\tsen2\tscore", *rows]).replace("5.5", "0.5") + "\n")
    return path, []


def classes(folder):
    """Pairs with classes by name."""
    path = folder / "nli.jsonl"
    names = ("entailment", "neutral", "contradiction")
    rows = [
        {"premise": f"how do i {word}", "hypothesis": word, "label": names[place % 3]}
        for place, word in enumerate(WORDS[12:32])
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path, []


def corpus(folder):
    """A corpus with a split to train on and one to evaluate on."""
    path = folder / "beir"
    (path / "qrels").mkdir(parents=True)
    words = WORDS[12:36]
    write = {
        "corpus.jsonl": [{"_id": word, "text": f"the {word} is new"} for word in words],
        "queries.jsonl": [{"_id": f"q{word}", "text": f"how do i {word}"} for word in words],
    }
    for name, rows in write.items():
        (path / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    for split, part in {"train": words[:16], "test": words[16:]}.items():
        lines = ["query-id\tcorpus-id\tscore", *(f"q{word}\t{word}\t1" for word in part)]
        (path / "qrels" / f"{split}.tsv").write_text("\n".join(lines) + "\n")
    return path, []


@pytest.mark.parametrize(
    ("arch", "data", "has_dev"),
    [
        ("all", ranking, True),
        ("all", few, False),
        ("all", scored, False),
        ("all", classes, False),
        ("all", corpus, False),
        ("cross", few, False),
        ("cross", corpus, False),
        ("bi", scored, True),
    ],
)
def test_the_next_command_works(arch, data, has_dev, bert, tmp_path, polyrank):
    """It is typed as it was printed, whatever the data are."""
    path, flags = data(tmp_path)
    command = ["train", "--arch", arch, "--base", bert, "--train", path, *flags]
    command += ["--dev", path] if has_dev else []
    command += ["--output", tmp_path / "my models", "--max-steps", 1, "--batch-size", 4]
    command += ["--num-codes", 4] if arch == "all" else []
    command += ["--device", "cpu"]
    _, said = polyrank(*command)
    typed = [line.partition(" with: ")[2] for line in said.splitlines() if " with: " in line]
    assert typed
    for line in typed:
        name, *arguments = shlex.split(line)
        assert name == "polyrank"
        timing = ["--no-latency"] if arguments[0] == "compare" else []
        found, _ = polyrank(*arguments, *timing, "--device", "cpu")
        assert found
    if arch == "all":
        trained = {"bi", "cross"} if data is classes else {"bi", "poly", "cross"}
        assert trained == set(re.findall(r"my models/(\w+)", " ".join(typed))) - {"comparison"}
        assert ("No poly-encoder" in said) == (data is classes)
    assert ("other data" in said) == (not has_dev and data is not corpus)


@pytest.mark.parametrize("data", [ranking, few, scored, classes, corpus])
def test_a_preview_shows_what_is_read_and_trains_nothing(data, tmp_path, polyrank):
    path, flags = data(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    shown, said = polyrank("train", "--preview", "--train", path, *flags)
    assert sorted(tmp_path.rglob("*")) == before
    assert len(shown["preview"]) == 3
    first = "how do i" in str(shown["preview"][0])
    assert first
    without = {"poly-encoder"} if data is classes else set()
    assert set(shown["objectives"]) == {"bi-encoder", "poly-encoder", "cross-encoder"} - without
    assert "how do i" in said
    if data is few:
        assert f"{path}: read as table, context=query, response=pos." in said
        assert "8 examples; contexts of 4 words (at most 4), responses of 2 words" in said
    if data is classes:
        assert "classes contradiction: 6, entailment: 7, neutral: 7." in said
    if data is scored:
        assert "20 labelled pairs" in said
        assert "scores from 0.1 to 0.9." in said
