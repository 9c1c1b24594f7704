"""The commands as a user types them, on a tiny encoder: what they make, and what they refuse."""

import errno
import json
import lzma

import pytest

from polyrank.cli.main import commands, run
from polyrank.models.checkpoint import load_model
from polyrank.retrieval.index import Index
from polyrank.retrieval.store import shard
from tiny_encoders import load_variant

WORDS = ["file", "disk", "kernel", "driver", "wifi", "sound", "screen", "index", "list", "sort"]
TINY = ["--batch-size", "8", "--max-steps", "2", "--num-negatives", "2", "--device", "cpu"]


def polyrank(capsys, *arguments):
    """The exit code, standard output and standard error of one command line."""
    code = run([str(argument) for argument in arguments], commands())
    captured = capsys.readouterr()
    assert "Traceback" not in captured.err + captured.out
    return code, captured.out, captured.err


def lines(count=40):
    return [
        {"context": ["hello", f"what is {WORDS[n % 10]} {n}"], "response": f"{WORDS[n % 10]} {n}"}
        for n in range(count)
    ]


def write(path, records):
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path


@pytest.fixture
def data(tmp_path):
    return write(tmp_path / "data.jsonl", lines())


@pytest.fixture(scope="module")
def trained(bert, tmp_path_factory):
    """A trained poly-encoder and an index of it."""
    folder = tmp_path_factory.mktemp("trained")
    data = write(folder / "data.jsonl", lines())
    texts = folder / "texts.txt"
    texts.write_text("\n".join(f"{word} {n}" for n, word in enumerate(WORDS)), encoding="utf-8")
    model, index = folder / "poly", folder / "index"
    base = ["--base", bert, "--train", data, "--output", model, "--num-codes", "4", *TINY]
    made = ["index", "build", model, "--candidates", texts, "--output", index, "--device", "cpu"]
    for arguments in (["train", "--arch", "poly", *base], made):
        assert run([str(argument) for argument in arguments], commands()) == 0
    return model, index


@pytest.mark.parametrize("arch", ["bi", "poly", "cross"])
def test_train_then_evaluate(arch, bert, data, tmp_path, capsys):
    model = tmp_path / "model"
    arguments = ["--base", bert, "--train", data, "--dev", data, "--output", model, *TINY]
    code, out, err = polyrank(capsys, "train", "--arch", arch, *arguments, "--json")
    assert code == 0
    result = json.loads(out)
    assert result["steps"] == 2
    assert 0 <= result["dev"]["recall@1"] <= 1
    assert f"{arch}-encoder on 40 examples" in err
    code, out, _ = polyrank(capsys, "evaluate", model, "--data", data, "--json")
    assert code == 0
    assert json.loads(out)["num_candidates"] == 20


def test_labelled_pairs_train_and_evaluate(bert, tmp_path, capsys):
    records = [
        {"first": f"the {word}", "second": f"a {WORDS[n % 3]}", "label": n / 10}
        for n, word in enumerate(WORDS)
    ]
    data, model = write(tmp_path / "pairs.jsonl", records), tmp_path / "model"
    arguments = ["--base", bert, "--train", data, "--dev", data, "--output", model, *TINY]
    arguments += ["--max-context-length", "32", "--max-candidate-length", "32"]
    code, out, err = polyrank(
        capsys, "train", "--recipe", "sbert-sts", *arguments, "--triplet-margin", "2", "--json"
    )
    assert code == 0, err
    assert -1 <= json.loads(out)["dev"]["spearman"] <= 1
    assert "--triplet-margin has no effect on the objective regression" in err
    card = (model / "README.md").read_text(encoding="utf-8")
    assert "starting from the recipe `sbert-sts`" in card
    assert load_model(model, device="cpu").config.shared_towers


def test_yaml_is_overridden_by_flags(bert, data, tmp_path, capsys):
    settings = tmp_path / "run.yaml"
    settings.write_text(f"arch: poly\nbase: {bert}\ntrain: {data}\nnum-codes: 3\nmax_steps: 9\n")
    output = tmp_path / "model"
    code, _, _ = polyrank(capsys, "train", "--config", settings, "--output", output, *TINY)
    assert code == 0
    assert json.loads((output / "polyrank.json").read_text())["settings"]["num_codes"] == 3
    assert json.loads((output / "training.json").read_text())["steps"] == 2


def test_an_option_without_effect_warns(bert, data, tmp_path, capsys):
    arguments = ["--base", bert, "--train", data, "--output", tmp_path / "model", *TINY]
    _, _, err = polyrank(capsys, "train", "--arch", "bi", "--num-codes", "3", *arguments)
    assert "--num-codes has no effect on a bi-encoder" in err


def test_only_what_was_given_is_said_to_have_no_effect(bert, data, tmp_path, capsys):
    arguments = ["train", "--recipe", "poly-encoder-bert", "--schedule", "linear"]
    arguments += ["--max-context-length", "32", "--max-candidate-length", "32", "--base", bert]
    arguments += ["--num-codes", "2", "--train", data, "--output", tmp_path / "model", *TINY]
    code, _, err = polyrank(capsys, *arguments)
    assert (code, err) == (0, "")
    given = ["--epochs", "5", "--plateau-factor", "0.3", "--restart"]
    code, _, err = polyrank(capsys, *arguments, *given)
    assert code == 0
    assert "Warning: --epochs has no effect with --max-steps 2." in err
    assert "Warning: --plateau-factor has no effect with --schedule linear." in err
    arguments = ["train", "--arch", "bi", "--base", bert, "--train", data, *TINY, "--epochs", "7"]
    _, _, err = polyrank(capsys, *arguments, "--output", tmp_path / "other")
    assert "--epochs has no effect with --max-steps 2." in err


def test_search_gives_ten_or_all(trained, tmp_path, capsys):
    code, out, _ = polyrank(capsys, "search", trained[1], "what is wifi", "--json")
    assert code == 0
    assert len(json.loads(out)["results"][0]["hits"]) == 10
    few = tmp_path / "few.txt"
    few.write_text("one\ntwo\n")
    arguments = ["--candidates", few, "--output", tmp_path / "few", "--device", "cpu"]
    assert polyrank(capsys, "index", "build", trained[0], *arguments)[0] == 0
    code, out, _ = polyrank(capsys, "search", tmp_path / "few", "--turn", "a", "--turn", "b")
    assert code == 0
    assert "2." in out


@pytest.fixture(scope="module")
def cross(bert, tmp_path_factory):
    """A saved cross-encoder."""
    folder = tmp_path_factory.mktemp("cross") / "model"
    load_variant("cross", bert).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def years(trained, tmp_path_factory):
    """An index of forty candidates with a year each."""
    folder = tmp_path_factory.mktemp("years")
    records = [
        {"id": f"c{n}", "text": f"the {WORDS[n % 10]} number {n}", "metadata": {"year": 2000 + n}}
        for n in range(40)
    ]
    data, index = write(folder / "candidates.jsonl", records), folder / "index"
    arguments = [
        "index",
        "build",
        trained[0],
        "--candidates",
        data,
        "--output",
        index,
        "--device",
        "cpu",
    ]
    assert run([str(argument) for argument in arguments], commands()) == 0
    return index


def test_search_then_rerank(years, cross, capsys):
    model = load_model(cross, device="cpu")
    index = Index.open(years, device="cpu")
    arguments = ["search", years, "how do i read a file", "--reranker", cross, "--device", "cpu"]
    for filter, count in (("year >= 2030", 10), ("year in [2003, 2005]", 2), ("year > 3000", 0)):
        code, out, _ = polyrank(
            capsys, *arguments, "--num-candidates", "6", "-k", "4", "--filter", filter, "--json"
        )
        assert code == 0
        [result] = json.loads(out)["results"]
        [retrieved] = index.search(["how do i read a file"], 6, filter=filter)
        assert result["num_reranked"] == len(retrieved) == min(count, 6)
        assert result["num_candidates"] == count
        texts = [hit.text for hit in retrieved]
        expected = model.rank("how do i read a file", texts, top_k=min(count, 4)) if texts else []
        assert [hit["text"] for hit in result["hits"]] == [hit.text for hit in expected]
        assert [hit["score"] for hit in result["hits"]] == pytest.approx(
            [hit.score for hit in expected], abs=1e-4
        )
    code, out, _ = polyrank(capsys, *arguments, "--exact")
    assert code == 0
    assert "of 40 candidates, certified; reranked 40" in out


def test_search_refuses_what_cannot_rerank_or_filter(bert, trained, years, cross, tmp_path, capsys):
    classes = tmp_path / "classes"
    load_variant("cross", bert, task="classify").save_pretrained(classes)
    wrong = [
        (["--reranker", tmp_path / "none"], f"There is no model at {tmp_path / 'none'}"),
        (["--reranker", years], f"{years} is not a saved model"),
        (["--reranker", trained[0]], "must be a cross-encoder, got a poly-encoder"),
        (["--reranker", classes], "with the task 'rank' or 'regress', got one with 'classify'"),
        (
            ["--reranker", cross, "--num-candidates", "0"],
            "--num-candidates must be at least 1, got 0",
        ),
        (["--reranker", cross, "-k", "0"], "must be a whole number of at least 1, got 0"),
        (["--filter", "year >="], "The filter 'year >=' cannot be read"),
        (["--filter", "yaer > 2003"], "'year'"),
        (["--filter", 'year == "new"', "--reranker", cross], "year"),
    ]
    for arguments, message in wrong:
        code, _, err = polyrank(capsys, "search", years, "x", "--device", "cpu", *arguments)
        assert code == 2
        assert message in err


def bad_files(folder):
    """Files of examples that cannot be read, with what the message must say of each."""
    good = json.dumps({"context": "a", "response": "b"})
    texts = {
        "empty.jsonl": ("", "The file is empty"),
        "broken.jsonl": (f"{good}\n{{not json\n", "line 2: The line is not JSON"),
        "list.jsonl": (f"{good}\n[1]\n", "line 2: The line holds a list"),
        "missing.jsonl": ('{"context": "a", "word": "b"}\n', "line 1: The field 'response' is"),
        "number.jsonl": ('{"context": 5, "response": "b"}\n', "line 1: The field 'context' must"),
        "absent.jsonl": (
            f'{good}\n\n{{"context": "a", "response": "b", "candidates": ["c", "d"]}}\n',
            "line 3: The response 'b' is not among its 2 candidates",
        ),
        "gold.jsonl": (
            '{"context": "a", "response": "b", "candidates": ["b", "d"], "gold": 1}\n',
            "line 1: The candidate at 'gold' = 1 is not the response",
        ),
    }
    for name, (text, message) in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
        yield folder / name, message
    (folder / "latin.jsonl").write_bytes(f"{good}\n".encode() + b'{"context": "\xe9"}\n')
    yield folder / "latin.jsonl", "line 2: The text is not UTF-8"
    (folder / "cut.jsonl.xz").write_bytes(lzma.compress(good.encode() * 500)[:-20])
    yield folder / "cut.jsonl.xz", "compressed data cannot be read"
    yield folder / "none.jsonl", "There is no such file"
    yield folder, "The folder is not in BEIR's layout"


@pytest.mark.parametrize("number", range(11))
def test_bad_data_names_file_and_line(number, bert, trained, tmp_path, capsys):
    path, message = list(bad_files(tmp_path))[number]
    output = tmp_path / "model"
    ways = [
        ["train", "--arch", "bi", "--base", bert, "--train", path, "--output", output],
        ["evaluate", trained[0], "--data", path],
    ]
    for arguments in ways:
        code, _, err = polyrank(capsys, *arguments)
        assert code == 2
        assert message in err
        assert str(path) in err
        assert err.count("\n") == 1
    assert not output.exists()


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"--arch": "pony"}, "poly"),
        ({"--base": "/no/such/model"}, "There is no model at /no/such/model"),
        ({"--batch-size": "many"}, "--batch-size must be a whole number"),
        ({"--temperature": "0"}, "temperature must be positive"),
        ({"--num-kodes": "3"}, "Did you mean '--num-codes'?"),
        ({"--device": "toaster"}, "The device 'toaster' cannot be used"),
        ({"--max-context-length": "5000"}, "takes at most 64 tokens"),
    ],
)
def test_bad_options_are_named(changed, message, bert, data, tmp_path, capsys):
    flags = {"--arch": "poly", "--base": bert, "--train": data, "--output": tmp_path / "m"}
    arguments = [part for pair in (flags | changed).items() for part in pair]
    code, out, err = polyrank(capsys, "train", *arguments, "--json")
    assert code == 2
    assert message in err
    assert message in json.loads(out)["error"]["message"]
    assert not (tmp_path / "m").exists()


def test_a_folder_that_is_no_model(bert, trained, data, tmp_path, capsys):
    for folder in (tmp_path, bert):
        code, _, err = polyrank(capsys, "evaluate", folder, "--data", data)
        assert code == 2
        assert "is not a saved model" in err
    code, _, err = polyrank(capsys, "search", trained[0], "x")
    assert code == 2
    assert str(trained[0]) in err


def test_no_candidates_and_more_hits_than_candidates(trained, tmp_path, capsys):
    empty = tmp_path / "empty.txt"
    empty.write_text("\n\n")
    arguments = ["index", "build", trained[0], "--candidates", empty, "--output", tmp_path / "i"]
    code, _, err = polyrank(capsys, *arguments)
    assert code == 2
    assert str(empty) in err
    assert not (tmp_path / "i").exists()
    everything = polyrank(capsys, "search", trained[1], "x", "--top-k", "10")
    assert everything[0] == 0
    assert "  10. " in everything[1]
    assert polyrank(capsys, "search", trained[1], "x", "--top-k", "11") == everything


def test_an_index_of_another_model(bert, trained, data, tmp_path, capsys):
    other = tmp_path / "other"
    arguments = ["--base", bert, "--train", data, "--output", other, "--num-codes", "4", *TINY]
    assert polyrank(capsys, "train", "--arch", "poly", "--seed", "5", *arguments)[0] == 0
    code, _, err = polyrank(capsys, "search", trained[1], "x", "--model", other)
    assert code == 2
    assert "model" in err


def test_a_full_disk_keeps_the_old_index(trained, tmp_path, capsys, monkeypatch):
    texts = tmp_path / "texts.txt"
    texts.write_text("one\ntwo\nthree\n")
    arguments = [
        "index",
        "build",
        trained[0],
        "--candidates",
        texts,
        "--output",
        tmp_path / "index",
    ]
    assert polyrank(capsys, *arguments)[0] == 0
    texts.write_text("four\nfive\n")

    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(shard.ShardWriter, "__init__", full)
    code, _, err = polyrank(capsys, *arguments)
    assert code == 1
    assert "No space left on device" in err
    code, out, _ = polyrank(capsys, "search", tmp_path / "index", "x", "--json")
    assert code == 0
    assert {hit["text"] for hit in json.loads(out)["results"][0]["hits"]} == {"one", "two", "three"}


def test_demo_on_own_data(bert, tmp_path, capsys):
    data = write(tmp_path / "own.jsonl", lines(120))
    folder = tmp_path / "demo"
    arguments = ["demo", "--data", data, "--base", bert, "--max-steps", "2", "--output", folder]
    arguments += ["--device", "cpu"]
    code, out, _ = polyrank(capsys, *arguments)
    assert code == 0
    assert "R@1/20" in out
    for name in ("bi", "poly-16", "poly-64", "cross"):
        test = folder / "data" / "test.jsonl"
        assert polyrank(capsys, "evaluate", folder / "models" / name, "--data", test)[0] == 0
    assert polyrank(capsys, "search", folder / "index", "what is wifi")[0] == 0
    code, out, err = polyrank(capsys, *arguments, "--json")
    assert code == 0
    assert [row["name"] for row in json.loads(out)["models"]] == [
        "bi",
        "poly-16",
        "poly-64",
        "cross",
    ]
    assert err.count("trained before") == 4
    assert err.count("evaluated before") == 4
    compared = json.loads((folder / "comparison" / "comparison.json").read_text(encoding="utf-8"))
    assert compared["models"] == json.loads(out)["models"]
    assert len(compared["differences"]) == 6
    few = write(tmp_path / "few.jsonl", lines(10))
    assert polyrank(capsys, "demo", "--data", few, "--base", bert)[0] == 2
