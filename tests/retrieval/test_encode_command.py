import json
import shutil

import pytest
from test_bulk import write

from hash_model import HashModel, contents
from polyrank.cli.main import commands, run
from polyrank.models import checkpoint
from polyrank.retrieval.bulk import workers
from polyrank.retrieval.bulk.encode import BulkEncoder, EncodedPart
from polyrank.retrieval.index import Index


@pytest.fixture(autouse=True)
def loading(monkeypatch):
    monkeypatch.setattr(checkpoint, "load_model", HashModel.load)


@pytest.fixture
def given(tmp_path):
    HashModel().save_copy(tmp_path / "model")
    source = write(tmp_path / "candidates.jsonl")
    arguments = ["--candidates", source, "--output", tmp_path / "parts"]
    return ["encode", tmp_path / "model", *arguments]


@pytest.fixture
def polyrank(capsys):
    def call(*arguments):
        code = run([*map(str, arguments), "--json"], commands())
        return code, json.loads(capsys.readouterr().out)

    return call


def test_parts_are_encoded_apart_and_made_an_index(given, tmp_path, polyrank, capsys):
    code, found = polyrank(*given, "--num-parts", 3, "--part-index", 1, "--storage", "int8")
    assert found.pop("seconds") > 0
    assert (code, found) == (
        0,
        {
            "output": str(tmp_path / "parts"),
            "model": str(tmp_path / "model"),
            "storage": "int8",
            "num_parts": 3,
            "parts": [{"part_index": 1, "state": "encoded", "num_candidates": 25}],
            "missing": [0, 2],
        },
    )
    made = ["index", "build", tmp_path / "model", "--encoded", tmp_path / "parts", "--output"]
    code, found = polyrank(*made, tmp_path / "index")
    assert (code, found["error"]["type"]) == (2, "UsageError")
    assert "2 are missing: 0, 2. Encode them: polyrank encode MODEL" in found["error"]["message"]

    code, found = polyrank(*given, "--num-parts", 3, "--storage", "int8")
    assert (code, found["missing"]) == (0, [])
    assert [part["state"] for part in found["parts"]] == ["encoded", "there", "encoded"]
    assert run([*map(str, given), "--num-parts", "3", "--storage", "int8"], commands()) == 0
    out = capsys.readouterr().out
    assert out.startswith("part 0 of 3: 25 candidates, was there\n")
    assert "All 3 parts are there. Make an index of them with: polyrank index build" in out

    code, found = polyrank(*made, tmp_path / "index")
    assert (code, found["num_candidates"], found["storage"]) == (0, 75, "int8")
    code, _ = polyrank(
        "index", "build", *given[1:4], "--output", tmp_path / "one", "--storage", "int8"
    )
    assert code == 0
    for each in (index := Index.open(tmp_path / "index", HashModel())):
        assert index.get(each.id) == each
    one = Index.open(tmp_path / "one", HashModel())
    assert list(one) == list(index)
    assert one.search(["a", "b"], 30) == index.search(["a", "b"], 30)


def test_what_is_missing_is_said(given, capsys):
    arguments = [*map(str, given), "--num-parts", "14", "--part-index", "3"]
    assert run(arguments, commands()) == 0
    assert "Not there yet: 13 of 14 parts (0, 1, 2, 4, 5, 6, 7, 8, 9, 10, …)\n" in (
        capsys.readouterr().out
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "--num-parts is required and missing"),
        (["--part-index", "0"], "--num-parts is required and missing"),
        (["--num-parts", "0"], "--num-parts must be at least 1, got 0"),
        (["--num-parts", "3", "--part-index", "3"], "--part-index must be from 0 to 2, got 3"),
        (["--num-parts", "3", "--part-index", "-1"], "--part-index must be from 0 to 2, got -1"),
        (["--num-parts", "3", "--processes", "0"], "--processes must be at least 1"),
        (
            ["--num-parts", "3", "--processes", "2", "--part-index", "0"],
            "--processes and --part-index do not go together",
        ),
        (["--num-parts", "3", "--storage", "int9"], "--storage is 'int9'"),
    ],
)
def test_bad_options(given, tmp_path, polyrank, arguments, message):
    code, found = polyrank(*given, *arguments)
    assert (code, found["error"]["type"]) == (2, "UsageError")
    assert message in found["error"]["message"]
    assert not (tmp_path / "parts").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--encoded", "p"], "--output is required and missing"),
        (["--encoded", "p", "--output", "i", "--candidates", "c"], "are two sources of an index"),
        (["--encoded", "p", "--output", "i", "--storage", "int8"], "--storage was chosen when"),
        (["--encoded", "p", "--output", "i"], "There are no encoded parts in"),
    ],
)
def test_options_of_index_that_do_not_fit(given, tmp_path, polyrank, arguments, message):
    code, found = polyrank("index", "build", tmp_path / "model", *arguments)
    assert (code, found["error"]["type"]) == (2, "UsageError")
    assert message in found["error"]["message"]


def test_another_model_is_refused(given, tmp_path, polyrank):
    assert polyrank(*given, "--num-parts", 2)[0] == 0
    before = contents(tmp_path / "parts")
    HashModel(salt="other").save_copy(tmp_path / "model")
    code, found = polyrank(*given, "--num-parts", 2)
    assert (code, found["error"]["type"]) == (2, "UsageError")
    assert "part-00000 was encoded by the model" in found["error"]["message"]
    made = ["--encoded", tmp_path / "parts", "--output", tmp_path / "index"]
    code, found = polyrank("index", "build", tmp_path / "model", *made)
    assert (code, found["error"]["type"]) == (2, "IndexFolderError")
    assert contents(tmp_path / "parts") == before


def test_an_interrupted_run_says_that_the_parts_are_kept(given, monkeypatch, capsys):
    def interrupt(self, index):
        raise KeyboardInterrupt

    monkeypatch.setattr(BulkEncoder, "encode", interrupt)
    assert run([*map(str, given), "--num-parts", "2"], commands()) == 130
    err = capsys.readouterr().err
    assert "The finished parts in" in err
    assert "run the same command again to resume" in err


def test_processes_load_the_model_themselves(given, tmp_path, polyrank, monkeypatch):
    asked = []

    def fake(load, source, output, num_parts, num_processes, **settings):
        asked.append((load().fingerprint(), source.name, num_parts, num_processes, settings))
        yield EncodedPart(1, 5, "busy", output)

    monkeypatch.setattr(workers, "encode_in_processes", fake)
    code, found = polyrank(*given, "--num-parts", 2, "--processes", 4, "--device", "cpu")
    assert asked == [
        (
            HashModel().fingerprint(),
            "candidates.jsonl",
            2,
            4,
            {"storage": "float32", "use_gpus": False},
        )
    ]
    assert (code, found["missing"]) == (0, [0, 1])
    assert found["parts"] == [{"part_index": 1, "state": "busy", "num_candidates": 5}]


def test_a_part_that_was_removed_is_encoded_again(given, tmp_path, polyrank):
    assert polyrank(*given, "--num-parts", 2)[0] == 0
    before = contents(tmp_path / "parts")
    shutil.rmtree(tmp_path / "parts/part-00001")
    _, found = polyrank(*given, "--num-parts", 2)
    assert [part["state"] for part in found["parts"]] == ["there", "encoded"]
    assert contents(tmp_path / "parts") == before
