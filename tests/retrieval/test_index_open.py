import json
import os
import shutil
import subprocess
import sys

import pytest

from hash_model import HashModel, numbered
from polyrank.errors import IndexFolderError, UsageError
from polyrank.retrieval import model_record
from polyrank.retrieval.index import Index
from polyrank.retrieval.store.manifest import ShardLayout, checksum_of

SMALL = ShardLayout(block_rows=10, shard_rows=30)


@pytest.fixture
def loading(monkeypatch):
    monkeypatch.setattr(model_record, "load_model", HashModel.load)


@pytest.fixture
def index(tmp_path):
    return Index.build(HashModel(4), numbered(75), tmp_path / "index", layout=SMALL)


def change_manifest(index, **values):
    path = index.path / "manifest.json"
    plain = json.loads(path.read_text()) | values
    path.write_text(json.dumps(plain | {"checksum": checksum_of(plain)}))


def test_opened_again_it_finds_the_same(index):
    opened = Index.open(index.path, HashModel(4))
    assert opened.engine.manifest == index.engine.manifest
    assert opened.search(["a", "b"], 75) == index.search(["a", "b"], 75)


def test_opened_by_another_process_elsewhere_it_finds_the_same(index, tmp_path):
    script = """
import json
from hash_model import HashModel
from polyrank.retrieval.index import Index
hits = Index.open("../index", HashModel(4)).search(["a", "b"], 20)
print(json.dumps(hits))
"""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=elsewhere,
        env=environment,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    expected = [[list(hit) for hit in row] for row in index.search(["a", "b"], 20)]
    assert json.loads(done.stdout) == expected


def test_vectors_are_mapped_and_not_read(index):
    cache = index.engine.cache
    whole = list(cache.screened(64, sketches=False))
    assert [(first, len(rows.values)) for first, rows in whole] == [(0, 30), (30, 30), (60, 15)]
    assert whole[0][1].values.data_ptr() == cache.vectors[0].components.data_ptr()
    (_, sketch), *_ = cache.screened(64, sketches=True)
    assert sketch.values.data_ptr() == cache.vectors[0].sketch.data_ptr()


@pytest.mark.usefixtures("loading")
def test_a_moved_index_brings_its_model(index, tmp_path):
    expected = index.search(["a"], 5)
    shutil.move(index.path, tmp_path / "moved")
    opened = Index.open(tmp_path / "moved")
    assert opened.model.path == tmp_path / "moved" / "model"
    assert opened.search(["a"], 5) == expected


@pytest.mark.usefixtures("loading")
def test_an_index_without_a_copy_names_its_model(tmp_path):
    HashModel().save_copy(tmp_path / "my model")
    model = HashModel.load(tmp_path / "my model")
    index = Index.build(model, ["x"], tmp_path / "a" / "index", copy_model=False)
    assert not (index.path / "model").exists()
    assert Index.open(index.path).model.path == tmp_path / "my model"

    shutil.copytree(tmp_path, tmp_path.parent / f"{tmp_path.name} moved")  # model and index
    shutil.rmtree(tmp_path / "my model")
    moved = Index.open(tmp_path.parent / f"{tmp_path.name} moved" / "a" / "index")
    assert moved.model.path.resolve().parent.name == f"{tmp_path.name} moved"
    with pytest.raises(IndexFolderError, match=r"misses its model .*my model.*--model"):
        Index.open(index.path)

    HashModel(salt="trained further").save_copy(tmp_path / "my model")
    with pytest.raises(IndexFolderError, match=r"was made by the model .*--model"):
        Index.open(index.path)


def test_without_a_copy_the_model_must_lie_somewhere_else(tmp_path):
    with pytest.raises(UsageError, match="not loaded from a folder"):
        Index.build(HashModel(), ["x"], tmp_path / "index", copy_model=False)
    Index.build(HashModel(), ["x"], tmp_path / "index")
    inside = HashModel.load(tmp_path / "index" / "model")
    with pytest.raises(UsageError, match="inside the index"):
        Index.build(inside, ["x"], tmp_path / "index", copy_model=False)
    assert len(Index.build(inside, ["x", "y"], tmp_path / "index")) == 2


def test_another_model_is_refused(index):
    with pytest.raises(IndexFolderError, match="was made by the model"):
        Index.open(index.path, HashModel(4, salt="other"))


@pytest.mark.usefixtures("loading")
def test_a_missing_or_broken_model_is_an_error_of_the_index(index, monkeypatch):
    monkeypatch.undo()
    with pytest.raises(IndexFolderError, match=r"cannot be loaded: .*--model"):
        Index.open(index.path)
    shutil.rmtree(index.path / "model")
    with pytest.raises(IndexFolderError, match=r"misses its model .*--model"):
        Index.open(index.path)


def test_what_is_no_index_is_refused(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("x")
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "manifest.json").write_text("[]")
    expected = {
        "nothing": "does not exist",
        "folder": r"has no manifest\.json",
        "file": "is a file",
        "app": "of another program",
    }
    for name, message in expected.items():
        with pytest.raises(IndexFolderError, match=f"{name} is not an index: .*{message}"):
            Index.open(tmp_path / name, HashModel())
    (tmp_path / ".nothing.building").mkdir()
    with pytest.raises(IndexFolderError, match="interrupted: run the same command again"):
        Index.open(tmp_path / "nothing", HashModel())


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"version": 4}, r"format version 4; .* reads 3\. .* that version or a newer one"),
        ({"version": 2}, r"format version 2; .* reads 3\. .* or build the index again"),
        ({"count": 74}, "75 rows, not 74"),
        ({"count": "many"}, "damaged"),
        ({"model": {}}, "damaged"),
        ({"files": {"../x": {"bytes": 1, "sha256": ""}}}, r"'\.\./x' lies outside"),
        ({"storage": "int4"}, "are int4; this polyrank reads float32, bfloat16, float16, int8"),
        ({"dimension": 9}, r"vectors.npy is damaged: it is not an array .* shape \(30, 9\)"),
        ({"dimension": 7}, r"vectors.npy is damaged: it is not an array .* shape \(30, 7\)"),
    ],
)
def test_a_manifest_that_does_not_fit_is_refused(index, values, message):
    change_manifest(index, **values)
    with pytest.raises(IndexFolderError, match=message):
        Index.open(index.path, HashModel(4))


def test_a_manifest_that_is_no_json_is_refused(index):
    (index.path / "manifest.json").write_text("{")
    with pytest.raises(IndexFolderError, match="not JSON"):
        Index.open(index.path, HashModel(4))


@pytest.mark.parametrize(
    "name",
    [
        *("vectors.npy", "sketch.npy", "scales.npy", "norms.npy", "errors.npy"),
        *("candidates.arrow", "id-hashes.npy", "id-rows.npy"),
    ],
)
def test_a_missing_a_truncated_and_a_flipped_file(index, name):
    file = index.path / "shards" / "00001" / name
    data = file.read_bytes()
    place = data.index(b"text number") if name == "candidates.arrow" else len(data) - 1
    file.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
    opened = Index.open(index.path, HashModel(4))
    with pytest.raises(IndexFolderError, match=f"{name} of the index is damaged: its checksum"):
        opened.verify()
    file.write_bytes(data[:-1])
    with pytest.raises(IndexFolderError, match=f"{len(data) - 1} bytes instead of {len(data)}"):
        Index.open(index.path, HashModel(4))
    file.unlink()
    with pytest.raises(IndexFolderError, match=f"{name} of the index is missing"):
        Index.open(index.path, HashModel(4))


def test_damaged_texts_are_an_error_of_the_index_when_read(index):
    file = index.path / "shards" / "00000" / "candidates.arrow"
    file.write_bytes(file.read_bytes().replace(b"text number", b"\xffext number", 1))
    opened = Index.open(index.path, HashModel(4))
    with pytest.raises(IndexFolderError, match="damaged"):
        opened.get("id0")


def test_an_open_index_survives_its_replacement(index):
    before = index.search(["a"], 10)
    Index.build(HashModel(4), ["new"], index.path)
    assert index.search(["a"], 10) == before
