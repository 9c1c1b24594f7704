import threading

import pytest
from engine_contract import EngineContract

from hash_model import HashModel, numbered
from polyrank.errors import IndexFolderError, UsageError
from polyrank.retrieval import folder_engine
from polyrank.retrieval.folder_engine import FolderEngine, give_structure
from polyrank.retrieval.index import Index
from polyrank.retrieval.search.structure import GRAPH
from polyrank.retrieval.store.build import build_folder
from polyrank.retrieval.store.manifest import ShardLayout

LAYOUT = ShardLayout(block_rows=32, shard_rows=128)
CONTEXTS = [f"context {i}" for i in range(40)]


class TestExact(EngineContract):
    @pytest.fixture
    def build(self, tmp_path):
        def build(model, candidates):
            folder = tmp_path / "index"
            build_folder(
                model, candidates, folder, model_from=None, layout=LAYOUT, storage="float32"
            )
            return FolderEngine(folder)

        return build


class Structured(EngineContract):
    """An index with a structure, though it is small."""

    kind = "hnsw"

    @pytest.fixture
    def build(self, tmp_path, monkeypatch):
        monkeypatch.setattr(folder_engine, "FEWEST_ROWS", 300)

        def build(model, candidates):
            folder = tmp_path / "index"

            def sample(_):
                return model.encode_for_scoring(CONTEXTS)

            build_folder(
                model,
                candidates,
                folder,
                model_from=None,
                layout=LAYOUT,
                storage="float32",
                complete=lambda fresh: give_structure(
                    fresh, model.fingerprint(), self.kind, 0.99, sample
                ),
            )
            return FolderEngine(folder, sample)

        return build


class TestHnsw(Structured):
    kind = "hnsw"


class TestIvf(Structured):
    kind = "ivf"


class TestIvfpq(Structured):
    kind = "ivfpq"


@pytest.mark.parametrize("kind", ["hnsw", "ivf", "ivfpq"])
@pytest.mark.parametrize("num_vectors", [1, 8])
def test_a_structure_finds_what_it_promises_and_follows_changes(tmp_path, kind, num_vectors):
    model = HashModel(num_vectors, dimension=16)
    candidates = numbered(1500)
    index = Index.build(
        model, candidates, tmp_path / "index", layout=LAYOUT, backend=kind, contexts=CONTEXTS
    )
    search = index.engine.manifest.search
    assert (search["kind"], search["rows"], search["target"]) == (kind, 1500, 0.99)
    assert search["recall"]["contexts"] == 20

    def recall(opened, others):
        found, best = opened.search(others, 50), opened.search(others, 50, exact=True)
        assert {report.strategy for report in found.reports} == {"approximate"}
        assert all(report.certified for report in best.reports)
        exact = Index.build(model, list(opened), tmp_path / "plain").search(others, 50)
        assert best == exact
        for ours, theirs in zip(found, best, strict=True):
            scores = {hit.id: hit.score for hit in theirs}
            assert all(hit.score == scores.get(hit.id, hit.score) for hit in ours)
        hits = sum(
            len({hit.id for hit in a} & {hit.id for hit in b})
            for a, b in zip(found, best, strict=True)
        )
        return hits / (50 * len(others))

    others = [f"other {i}" for i in range(10)]
    assert recall(index, others) >= 0.9  # independent random vectors are the hardest
    index.add([(f"new{i}", f"new text {i}") for i in range(60)])
    index.delete([f"id{i}" for i in range(0, 600, 2)])
    assert recall(Index.open(index.path, model), others) >= 0.9
    (found,), (best,) = index.search(others[:1], 200), index.search(others[:1], 200, exact=True)
    added = {hit.id for hit in best if hit.id.startswith("new")}
    assert added
    assert added <= {hit.id for hit in found}  # those are all scored
    index.compact()
    search = index.engine.manifest.search
    assert (search["rows"], search["kind"]) == (1260, kind)
    assert recall(Index.open(index.path, model), others) >= 0.9
    index.verify()


def test_a_selective_filter_is_searched_exactly(tmp_path):
    model = HashModel(4, dimension=16)
    candidates = [(f"id{i}", f"text {i}", {"rare": i % 50 == 0}) for i in range(1500)]
    index = Index.build(model, candidates, tmp_path / "index", backend="hnsw")
    rare = index.search(["a"], 10, filter="rare == true")
    assert rare.reports[0].certified
    assert rare.reports[0].num_candidates == 30
    common = index.search(["a"], 10, filter="rare == false")
    assert not common.reports[0].certified
    assert common.reports[0].num_candidates == 1470


def test_few_candidates_wait_for_their_structure(tmp_path):
    model = HashModel(dimension=16)
    index = Index.build(model, numbered(300), tmp_path / "index", backend="ivf")
    assert index.engine.manifest.search == {"kind": "ivf", "target": 0.99, "rows": 0}
    assert index.search(["a"], 3).reports[0].certified
    index.add([(f"new{i}", f"new text {i}") for i in range(900)])
    index.compact()
    assert index.engine.manifest.search["rows"] == 1200


def test_a_damaged_structure_is_named(tmp_path):
    model = HashModel(dimension=16)
    index = Index.build(model, numbered(1100), tmp_path / "index", backend="hnsw")
    path = index.path / index.engine.manifest.search["folder"] / GRAPH
    data = bytearray(path.read_bytes())
    data[:4] = b"none"
    path.write_bytes(data)
    index = Index.open(index.path, model)
    with pytest.raises(IndexFolderError, match="faiss cannot read it"):
        index.search(["a"], 3)
    with pytest.raises(IndexFolderError, match="checksum differs"):
        index.verify()


def test_a_structure_too_large_for_the_memory_may_be_sound(tmp_path, monkeypatch):
    import faiss

    def refuse(path):
        raise MemoryError

    model = HashModel(dimension=16)
    index = Index.build(model, numbered(1100), tmp_path / "index", backend="hnsw")
    index = Index.open(index.path, model)
    with monkeypatch.context() as patch:
        patch.setattr(faiss, "read_index", refuse)
        with pytest.raises(IndexFolderError, match="index verify"):
            index.search(["a"], 3)
    index.verify()
    assert len(index.search(["a"], 3)[0]) == 3


@pytest.mark.parametrize("recall", [0, 1.5, -1])
def test_a_recall_that_cannot_be_is_refused(tmp_path, recall):
    with pytest.raises(UsageError, match="recall must be above 0"):
        Index.build(HashModel(), numbered(5), tmp_path / "index", backend="hnsw", recall=recall)
    assert not (tmp_path / "index").exists()


def test_an_interrupted_structure_keeps_the_vectors(tmp_path, monkeypatch):
    model = HashModel(dimension=16)

    def interrupt(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(folder_engine, "write_structure", interrupt)
        with pytest.raises(KeyboardInterrupt):
            Index.build(model, numbered(1100), tmp_path / "index", backend="hnsw")
    assert not (tmp_path / "index").exists()
    model = HashModel(dimension=16)
    index = Index.build(
        model, numbered(1100), tmp_path / "index", backend="hnsw", contexts=CONTEXTS
    )
    assert model.encoded == 0
    index.verify()
    assert index.engine.manifest.search["rows"] == 1100


def test_a_refresh_reads_the_manifest_only_when_it_is_another(tmp_path, monkeypatch):
    index = Index.build(HashModel(), numbered(20), tmp_path / "index", layout=LAYOUT)
    read, count = folder_engine.read_manifest, []
    monkeypatch.setattr(folder_engine, "read_manifest", lambda path: count.append(1) or read(path))
    monkeypatch.setattr(folder_engine, "CLOCK_TICK", 0)
    engine = FolderEngine(tmp_path / "index")
    assert [engine.refresh() for _ in range(5)] == [False] * 5
    assert len(count) == 1
    index.add([("new", "text")])
    assert [engine.refresh() for _ in range(3)] == [True, False, False]
    assert engine.get("new").text == "text"
    monkeypatch.setattr(folder_engine, "CLOCK_TICK", 10**15)  # every manifest is too young to tell
    reads = len(count)
    assert [engine.refresh() for _ in range(3)] == [False] * 3
    assert len(count) == reads + 3


def test_a_refresh_keeps_what_is_unchanged_mapped(tmp_path):
    pytest.importorskip("faiss", reason="needs the extra faiss")
    path = tmp_path / "index"
    writer = Index.build(HashModel(4), numbered(1100), path, backend="hnsw")
    engine = Index.open(path, HashModel(4)).engine
    structure, shard = engine.structure, engine.cache.shards[0]
    writer.add([("new", "text")])
    writer.delete(["id7"])
    engine.refresh()
    assert engine.structure is structure
    assert engine.cache.shards[0] is shard
    assert (engine.get("new").text, engine.get("id7")) == ("text", None)
    found = engine.search(HashModel(4).encode_for_scoring(["a"]), 1100, exact=False, filter=None)
    assert "id7" not in {hit.id for hit in found[0].hits}
    writer.compact()
    engine.refresh()
    assert engine.structure is not structure
    assert engine.cache.shards[0] is not shard


def test_searches_see_one_state_while_another_thread_refreshes(tmp_path):
    path = tmp_path / "index"
    index = Index.build(HashModel(4), numbered(60), path, layout=LAYOUT)
    engine = FolderEngine(path)
    encoded = HashModel(4).encode_for_scoring(["a"])

    def change():
        for version in range(12):
            index.add([("left", f"{version}"), ("right", f"{version}")], replace=True)
            if version % 4 == 3:
                index.compact()
            engine.refresh()

    thread = threading.Thread(target=change)
    thread.start()
    while thread.is_alive():
        (found,) = engine.search(encoded, 62, exact=True, filter=None)
        texts = {hit.id: hit.text for hit in found.hits}
        assert len(texts) in (60, 62)
        assert texts.get("left") == texts.get("right")
    thread.join()
    assert engine.get("left").text == "11"
