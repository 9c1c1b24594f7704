import json

import pytest

from hash_model import HashModel, contents
from polyrank.cli.main import commands, run
from polyrank.models import checkpoint
from polyrank.retrieval import model_record
from polyrank.retrieval.index import Index


@pytest.fixture(autouse=True)
def loading(monkeypatch):
    monkeypatch.setattr(model_record, "load_model", HashModel.load)
    monkeypatch.setattr(checkpoint, "load_model", HashModel.load)


@pytest.fixture
def polyrank(capsys):
    def call(*arguments):
        code = run([*map(str, arguments), "--json"], commands())
        return code, json.loads(capsys.readouterr().out)

    return call


@pytest.fixture
def index(tmp_path, polyrank):
    HashModel().save_copy(tmp_path / "model")
    file = tmp_path / "candidates.jsonl"
    lines = [{"id": f"id{i}", "text": f"text {i}", "metadata": {"year": i}} for i in range(9)]
    file.write_text("\n".join(map(json.dumps, lines)))
    arguments = ["--candidates", file, "--output", tmp_path / "index", "--storage", "int8"]
    code, found = polyrank("index", "build", tmp_path / "model", *arguments)
    assert (code, found["num_candidates"], found["storage"]) == (0, 9, "int8")
    return tmp_path / "index"


def test_an_index_is_changed_and_verified(index, tmp_path, polyrank, capsys):
    more, ids = tmp_path / "more.jsonl", tmp_path / "ids.txt"
    more.write_text('{"id": "new", "text": "x"}\n{"id": "id3", "text": "changed"}\n')
    ids.write_text("id1\nid2\n")
    before = contents(index)
    code, found = polyrank("index", "add", index, more)
    assert code == 2
    assert "more.jsonl, line 2: The id 'id3' is in the index already" in found["error"]["message"]
    assert contents(index) == before

    code, found = polyrank("index", "add", index, more, "--replace")
    found.pop("seconds")
    assert (code, found) == (
        0,
        {"index": str(index), "num_added": 2, "num_replaced": 1, "num_candidates": 10},
    )
    code, found = polyrank("index", "delete", index, ids)
    assert (code, found) == (0, {"index": str(index), "num_deleted": 2, "num_candidates": 8})
    code, found = polyrank("index", "delete", index, ids)
    assert (code, found["error"]["type"]) == (2, "DataError")
    assert "ids.txt, line 1: There is no candidate" in found["error"]["message"]
    code, found = polyrank("index", "compact", index)
    assert (code, found["num_candidates"]) == (0, 8)
    assert found["num_bytes_freed"] > 0
    code, found = polyrank("index", "verify", index)
    assert (code, found["num_candidates"], found["generation"]) == (0, 8, 4)
    assert found["num_files"] == len(contents(index)) - len(["manifest.json", "lock"])

    assert run(["index", "verify", str(index)], commands()) == 0
    assert "is intact: 8 files, 0.0 MB, are byte for byte" in capsys.readouterr().out


def test_a_flipped_bit_is_an_error(index, polyrank):
    file = index / "shards/00000/vectors.npy"
    data = file.read_bytes()
    file.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    code, found = polyrank("index", "verify", index)
    assert (code, found["error"]["type"]) == (2, "IndexFolderError")
    assert "vectors.npy of the index is damaged: its checksum" in found["error"]["message"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["build", "MODEL"], "--output is required and missing"),
        (["build", "MODEL", "--output", "o"], "--candidates is required and missing"),
        (["add", "INDEX"], "polyrank index add: FILE is required and missing"),
        (["delete", "INDEX"], "polyrank index delete: FILE is required and missing"),
        (["compact", "INDEX", "--storage", "int8"], "there is no option '--storage'"),
        (["verify", "INDEX", "more.jsonl"], "unexpected extra argument"),
        (["delete", "INDEX", "b", "--replace"], "there is no option '--replace'"),
        (["INDEX", "--verify"], "polyrank index: there is no subcommand"),
        (["MODEL", "--candidates", "c"], "type: polyrank index build MODEL --candidates FILE"),
        (["bild", "MODEL"], "no subcommand 'bild'. Did you mean 'build'?"),
    ],
)
def test_bad_usage_changes_nothing(index, tmp_path, polyrank, arguments, message):
    before = contents(index)
    paths = {"INDEX": index, "MODEL": tmp_path / "model"}
    code, found = polyrank("index", *(paths.get(one, one) for one in arguments))
    assert (code, found["error"]["type"]) == (2, "UsageError")
    assert message.replace("MODEL", str(paths["MODEL"])) in found["error"]["message"]
    assert contents(index) == before


@pytest.mark.parametrize(
    "arguments", [["add", "M", "x"], ["delete", "M", "x"], ["compact", "M"], ["verify", "M"]]
)
def test_a_model_is_no_index(index, tmp_path, polyrank, arguments):
    arguments = [tmp_path / "model" if one == "M" else one for one in arguments]
    code, found = polyrank("index", *arguments)
    assert (code, found["error"]["type"]) == (2, "IndexFolderError")
    assert "has no manifest.json" in found["error"]["message"]


def test_another_m_says_so_before_all_else(index):
    with pytest.raises(Exception, match=r"made by a bi-encoder with m = 1 .* model has m = 16"):
        Index.open(index, HashModel(16))
