"""Static embeddings on the command line: made, trained, compared, indexed and refused."""

import json

import pytest
import torch

from polyrank.cli.main import commands, run
from tiny_encoders import WORDS

LONGER = [word for word in WORDS if len(word) > 2]


def polyrank(capsys, *arguments):
    """The exit code, standard output and standard error of one command line."""
    code = run([*map(str, arguments)], commands())
    captured = capsys.readouterr()
    assert "Traceback" not in captured.err + captured.out
    return code, captured.out, captured.err


@pytest.fixture
def vectors(tmp_path):
    """A file of word vectors."""
    numbers = torch.randn(len(WORDS), 6, generator=torch.Generator().manual_seed(0))
    lines = [" ".join([w, *map(str, v)]) for w, v in zip(WORDS, numbers.tolist(), strict=True)]
    path = tmp_path / "glove.txt"
    path.write_text("\n".join(lines))
    return path


@pytest.fixture
def data(tmp_path):
    records = [{"context": f"what is {word}", "response": word} for word in LONGER]
    path = tmp_path / "data.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def test_a_file_is_a_base_and_a_model(vectors, data, tmp_path, capsys):
    base = ["--arch", "bi", "--base", vectors, "--train", data, "--output", tmp_path / "bi"]
    trained = [*base, "--batch-size", "16", "--max-steps", "20", "--device", "cpu", "--json"]
    assert polyrank(capsys, "train", *trained)[0] == 0
    figures = []
    for model in (vectors, tmp_path / "bi"):
        code, out, _ = polyrank(capsys, "evaluate", model, "--data", data, "--json")
        assert code == 0
        figures.append(json.loads(out))
    assert figures[1]["mrr"] >= figures[0]["mrr"] > 0.2
    compared = ["compare", vectors, tmp_path / "bi", "bm25", "--data", data, "--sizes", "10"]
    assert polyrank(capsys, *compared, "--output", tmp_path / "table")[0] == 0
    texts = tmp_path / "texts.txt"
    texts.write_text("\n".join(LONGER))
    made = [
        "index",
        "build",
        tmp_path / "bi",
        "--candidates",
        texts,
        "--output",
        tmp_path / "index",
    ]
    assert polyrank(capsys, *made)[0] == 0
    code, out, _ = polyrank(capsys, "search", tmp_path / "index", "what is kernel", "--top-k", "1")
    assert code == 0
    assert "kernel" in out


def test_static_embeddings_are_made_of_an_encoder_and_of_a_file(vectors, bert, tmp_path, capsys):
    for source, more, size in (
        (vectors, ["--limit", "9", "--dimension", "4"], (10, 4)),
        (bert, ["--dimension", "8", "--sif", "none"], None),
    ):
        made = ["static", source, "--output", tmp_path / "out", *more, "--device", "cpu", "--json"]
        code, out, _ = polyrank(capsys, *made)
        assert code == 0
        result = json.loads(out)
        if size is not None:
            assert (result["tokens"], result["dimension"]) == size
    assert result["dimension"] == 8
    code, _, err = polyrank(capsys, "static", tmp_path / "out", "--output", tmp_path / "again")
    assert code == 2
    assert "static embeddings already" in err


@pytest.mark.parametrize("arch", ["poly", "cross", "all"])
def test_other_architectures_are_refused_before_anything_is_trained(
    arch, vectors, data, tmp_path, capsys
):
    base = ["--arch", arch, "--base", vectors, "--train", data, "--output", tmp_path / "out"]
    code, _, err = polyrank(capsys, "train", *base, "--device", "cpu")
    assert code == 2
    assert "one vector per text" in err
    assert not (tmp_path / "out").exists()
