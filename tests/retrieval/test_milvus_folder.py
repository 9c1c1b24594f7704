"""An index in embedded Milvus through the same `Index` as any other."""

import json

import pytest

from hash_model import HashModel
from polyrank.errors import DataError, IndexFolderError, UsageError
from polyrank.retrieval import model_record
from polyrank.retrieval.index import Index

pytest.importorskip("pymilvus", reason="pymilvus is not installed")
pytest.importorskip("milvus_lite", reason="milvus-lite is not installed")

CANDIDATES = [(f"id{i}", f"text number {i}", {"year": 2000 + i % 20}) for i in range(150)]


@pytest.fixture(params=["FLAT", "HNSW"])
def index(request, tmp_path):
    backend = str(tmp_path / "store.db")
    with Index.build(
        HashModel(4), CANDIDATES, tmp_path / "index", backend=backend, milvus_index=request.param
    ) as built:
        yield built


def test_it_is_the_index_in_a_folder(index, tmp_path):
    local = Index.build(HashModel(4), CANDIDATES, tmp_path / "local")
    assert len(index) == 150
    for filter in (None, "year >= 2010", "year == 2003 or not year < 2015"):
        ours = index.search(["a", "b"], 7, exact=True, filter=filter)
        theirs = local.search(["a", "b"], 7, filter=filter)
        assert [[hit.id for hit in hits] for hits in ours] == [
            [hit.id for hit in hits] for hits in theirs
        ]
        assert all(report.certified for report in ours.reports)
    for changed in (index, local):
        changed.delete(["id3", "id77"])
        changed.add([("new", "text number 1000", {"year": 2011})])
        changed.add([("id5", "another text")], replace=True)
    assert len(index) == len(local) == 149
    assert index.get("id5") == local.get("id5")
    assert index.get("id3") is None
    ours, theirs = (each.search(["a", "b"], 149, exact=True) for each in (index, local))
    assert [[hit.id for hit in hits] for hits in ours] == [[h.id for h in hits] for hits in theirs]
    index.compact()
    index.verify()


def test_it_is_opened_again_with_its_own_model(index, monkeypatch):
    best = index.search(["a"], 5, exact=True)
    index.close()
    monkeypatch.setattr(model_record, "load_model", HashModel.load)
    with Index.open(index.path) as opened:
        assert opened.search(["a"], 5, exact=True) == best
        assert json.loads((index.path / "manifest.json").read_text())["milvus"].endswith("polyrank")


def test_another_model_is_refused(index):
    index.close()
    with pytest.raises(IndexFolderError, match="m = 4 context vectors, the model has m = 8"):
        Index.open(index.path, HashModel(8))
    with pytest.raises(IndexFolderError, match="was made by the model"):
        Index.open(index.path, HashModel(4, salt="other"))


def test_a_failed_build_leaves_the_old_index(index, tmp_path):
    best = index.search(["a"], 5, exact=True)
    index.close()
    bad = [*CANDIDATES[:20], ("id3", "twice")]
    with pytest.raises(DataError, match="'id3' is given twice"):
        Index.build(HashModel(4), bad, index.path, backend=str(tmp_path / "store.db"))
    with Index.open(index.path, HashModel(4)) as opened:
        assert opened.search(["a"], 5, exact=True) == best


def test_an_unknown_index_type_is_refused(tmp_path):
    with pytest.raises(UsageError, match="HNSW"):
        Index.build(
            HashModel(),
            CANDIDATES,
            tmp_path / "index",
            backend=str(tmp_path / "store.db"),
            milvus_index="HNWS",
        )
    assert not (tmp_path / "index").exists()
