"""`polyrank mine` as a user types it."""

import json

import pytest

from polyrank.cli.main import commands, run
from polyrank.data.loading import load_examples
from tiny_encoders import load_variant

WORDS = ["file", "disk", "kernel", "driver", "wifi", "sound"]


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
            "id": n,
            "context": ["hello", f"what is {WORDS[n % 6]} {n}"],
            "response": f"{WORDS[n % 6]} is {n}",
        }
        for n in range(40)
    ]
    return write(tmp_path / "data.jsonl", records)


@pytest.fixture(scope="module")
def saved(bert, tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved")
    for variant in ("bi", "cross"):
        load_variant(variant, bert).save_pretrained(folder / variant)
    return folder


@pytest.mark.parametrize("method", ["random", "dialogue", "bm25", "model"])
def test_every_method(method, data, saved, tmp_path, capsys):
    output = tmp_path / "negatives.jsonl"
    arguments = ["mine", "--data", data, "--method", method, "--output", output, "--seed", "3"]
    arguments += ["--num-negatives", "1"]
    if method == "model":
        arguments += ["--retriever", saved / "bi", "--device", "cpu"]
    code, out, err = polyrank(capsys, *arguments)
    assert code == 0
    assert err == ""
    assert "40  examples written" in out
    assert "40  negatives kept" in out
    assert out.count("\n> hello | what is") == 3
    written = load_examples(output)
    assert [example.id for example in written] == [str(n) for n in range(40)]
    assert all(len(example.negatives) == 1 and example.scores is None for example in written)
    code, out, _ = polyrank(capsys, *arguments, "--limit", "7", "--json")
    assert code == 0
    result = json.loads(out)
    assert (result["examples"], result["kept"], len(result["shown"])) == (7, 7, 3)


def test_a_cross_encoder_filters_and_scores(data, saved, tmp_path, capsys):
    output = tmp_path / "negatives.jsonl"
    arguments = ["mine", "--data", data, "--method", "random", "--output", output]
    arguments += ["--reranker", saved / "cross", "--device", "cpu", "--missing", "drop"]
    code, out, _ = polyrank(capsys, *arguments, "--reranker-margin", "0.01", "--json")
    assert code == 0
    result = json.loads(out)
    assert result["false_negatives"] > 0
    for example in load_examples(output):
        assert len(example.scores) == 5
        assert max(example.scores[1:]) <= example.scores[0] - 0.01 + 1e-6


def test_candidates_and_an_index_of_ones_own(data, saved, tmp_path, capsys):
    texts = tmp_path / "texts.txt"
    texts.write_text("\n".join(f"another {word} {n}" for n in range(3) for word in WORDS))
    index = tmp_path / "index"
    made = [
        "index",
        "build",
        saved / "bi",
        "--candidates",
        texts,
        "--output",
        index,
        "--device",
        "cpu",
    ]
    assert polyrank(capsys, *made)[0] == 0
    output = tmp_path / "negatives.jsonl"
    common = ["--data", data, "--output", output, "--device", "cpu", "--to-rank", "9"]
    ways = [
        ["--method", "bm25", "--candidates", texts],
        ["--method", "model", "--retriever", saved / "bi", "--index", index],
    ]
    for way in ways:
        assert polyrank(capsys, "mine", *way, *common)[0] == 0
        for example in load_examples(output):
            assert example.negatives
            assert all(text.startswith("another") for text in example.negatives)


def test_a_beir_folder(tmp_path, capsys):
    folder = tmp_path / "beir"
    (folder / "qrels").mkdir(parents=True)
    corpus = [{"_id": f"d{n}", "title": f"{WORDS[n % 6]}", "text": f"text {n}"} for n in range(30)]
    write(folder / "corpus.jsonl", corpus)
    write(folder / "queries.jsonl", [{"_id": "q", "text": "disk"}, {"_id": "r", "text": "wifi"}])
    qrels = "query-id\tcorpus-id\tscore\nq\td1\t1\nq\td7\t1\nr\td4\t1\n"
    (folder / "qrels" / "train.tsv").write_text(qrels)
    output = tmp_path / "negatives.jsonl"
    code, _, err = polyrank(
        capsys, "mine", "--data", folder, "--method", "bm25", "--output", output
    )
    assert code == 0
    assert "2 examples have fewer than 4 negatives" in err
    for example in load_examples(output):
        assert all(text.split()[0] == example.context for text in example.negatives)
        assert not {"disk text 1", "disk text 7"} & set(example.negatives)


def test_what_has_no_effect_is_said(data, saved, tmp_path, capsys):
    arguments = ["mine", "--data", data, "--method", "random", "--output", tmp_path / "n.jsonl"]
    _, _, err = polyrank(capsys, *arguments, "--from-rank", "5", "--k1", "2", "--retriever", saved)
    for flag in ("--from-rank", "--k1", "--retriever"):
        assert f"{flag} has no effect with --method random" in err


def test_negatives_that_are_replaced_are_counted(data, tmp_path, capsys):
    mined, again = tmp_path / "mined.jsonl", tmp_path / "again.jsonl"
    arguments = ["--method", "random", "--num-negatives", "2"]
    _, out, _ = polyrank(capsys, "mine", "--data", data, *arguments, "--output", mined)
    assert "replaced" not in out
    _, out, _ = polyrank(capsys, "mine", "--data", mined, *arguments, "--output", again)
    assert "80  negatives that the examples had before, replaced" in out


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"--method": "bm52"}, "bm25"),
        ({"--method": "model"}, "Give its folder with --retriever"),
        ({"--from-rank": "5", "--to-rank": "4"}, "to_rank must be at least from_rank, 5"),
        ({"--from-rank": "50", "--method": "bm25"}, "there are only 40 candidates"),
        ({"--max-score": "-1", "--method": "bm25"}, "No negatives were found for any example"),
        ({"--reranker-margin": "1"}, "Give its folder with --reranker"),
        ({"--num-negatives": "0"}, "num_negatives must be at least 1"),
        ({"--data": "/no/such/file.jsonl"}, "There is no such file"),
        ({"--missing": "maybe"}, "--missing is 'maybe'"),
        ({"--stemmer": "english", "--letters": "3"}, "two ways to compare words"),
    ],
)
def test_bad_usage(changed, message, data, tmp_path, capsys):
    output = tmp_path / "negatives.jsonl"
    flags = {"--data": data, "--method": "random", "--output": output} | changed
    arguments = [part for pair in flags.items() for part in pair]
    code, out, err = polyrank(capsys, "mine", *arguments, "--json")
    assert code == 2
    assert message in err
    assert message in json.loads(out)["error"]["message"]
    assert not output.exists()


def test_models_of_the_wrong_kind(data, saved, tmp_path, capsys):
    common = ["mine", "--data", data, "--output", tmp_path / "n.jsonl", "--device", "cpu"]
    code, _, err = polyrank(capsys, *common, "--method", "model", "--retriever", saved / "cross")
    assert (code, "no candidate vectors" in err) == (2, True)
    code, _, err = polyrank(capsys, *common, "--method", "random", "--reranker", saved / "bi")
    assert (code, "must be a cross-encoder, got a bi-encoder" in err) == (2, True)
    pairs = write(
        tmp_path / "pairs.jsonl", [{"first": "a", "second": "b", "label": n / 9} for n in range(9)]
    )
    common[2] = pairs
    code, _, err = polyrank(capsys, *common, "--method", "random", "--format", "pairs")
    assert (code, "The data hold labelled pairs" in err) == (2, True)
