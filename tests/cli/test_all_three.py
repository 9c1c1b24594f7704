"""A table of questions and answers in; three trained models and their comparison out."""

import json

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
    command += ["--max-steps", 2, "--batch-size", 4, "--num-codes", 4, "--head", "interaction"]
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
