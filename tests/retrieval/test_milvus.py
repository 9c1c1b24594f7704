import itertools

import numpy as np
import pytest
import torch
from engine_contract import CONTEXTS, require_equal, some, truth

from hash_model import HashModel
from polyrank.errors import DataError, IndexFolderError, ModelError, StorageError, UsageError
from polyrank.records import Candidate
from polyrank.retrieval.filters import Comparison
from polyrank.retrieval.milvus import collection as collection_module
from polyrank.retrieval.milvus import schema as schema_module
from polyrank.retrieval.milvus import search as search_module
from polyrank.retrieval.milvus.address import MilvusAddress
from polyrank.retrieval.milvus.collection import Collection
from polyrank.retrieval.milvus.engine import MilvusEngine
from polyrank.retrieval.milvus.schema import INDEX_TYPES, MilvusIndex, longest, requests
from polyrank.retrieval.milvus.search import Ranking
from polyrank.retrieval.source import Candidates
from polyrank.scoring.poly import poly_scores

pytest.importorskip("pymilvus", reason="needs the extra milvus")
pytest.importorskip("milvus_lite", reason="needs the extra milvus")

numbers = itertools.count()


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """A file whose server runs as long as the module's tests."""
    path = tmp_path_factory.mktemp("milvus") / "shared.db"
    engine = create(path, name="kept")
    yield path
    engine.close()


@pytest.fixture
def make(path):
    """Makes engines that are closed at the end."""
    engines = []

    def make(**options):
        engines.append(create(path, **options))
        return engines[-1]

    yield make
    for engine in engines:
        engine.close()


def create(path, *, name=None, index_type="FLAT", dimension=8, **options):
    return MilvusEngine.create(
        MilvusAddress(path=path, collection=name or f"c{next(numbers)}"),
        fingerprint=options.pop("fingerprint", "f" * 64),
        dimension=dimension,
        num_vectors=4,
        index=MilvusIndex(index_type=index_type, lists=4, links=5, construction=50),
        **options,
    )


def address(engine):
    return engine._collection.address


def search(engine, model, top_k=5, **options):
    encoded = model.encode_for_scoring(CONTEXTS)
    return engine.search(encoded, top_k, **{"exact": True, "filter": None, **options})


@pytest.mark.parametrize("num_vectors", [1, 4])
def test_under_flat_searches_alone_certify(make, num_vectors):
    model = HashModel(num_vectors)
    engine = make()
    candidates = some(3000)
    engine.add(candidates, model.encode_candidates, replace=False)
    found = search(engine, model)
    require_equal(found, truth(model, candidates, model.encode_for_scoring(CONTEXTS), 5))
    for each in found:
        assert each.report.strategy == "searches"
        assert 5 <= each.report.num_scored < 3000


def test_searches_are_widened_until_they_certify(make, monkeypatch):
    monkeypatch.setattr(search_module, "FIRST", 2)
    limits = []
    plain = Collection.search
    monkeypatch.setattr(
        Collection, "search", lambda s, v, limit, *r: limits.append(limit) or plain(s, v, limit, *r)
    )
    model = HashModel(4)
    engine = make()
    candidates = some(1500)
    engine.add(candidates, model.encode_candidates, replace=False)
    encoded = model.encode_for_scoring(CONTEXTS) / 8  # so that attention is spread out
    found = engine.search(encoded, 2, exact=True, filter=None)
    require_equal(found, truth(model, candidates, encoded, 2))
    assert {each.report.strategy for each in found} == {"searches"}
    assert {4, 16, 64} <= set(limits)


def test_where_searches_cannot_certify_everything_is_scanned(make, monkeypatch):
    model = HashModel(4)
    engine = make()
    candidates = [Candidate(f"id{i}", f"text {i % 2}") for i in range(1500)]
    engine.add(candidates, model.encode_candidates, replace=False)
    monkeypatch.setattr(search_module, "MOST_HITS", 100)
    found = search(engine, model, 5)
    require_equal(found, truth(model, candidates, model.encode_for_scoring(CONTEXTS), 5))
    for each in found:
        assert (each.report.strategy, each.report.num_scored) == ("scan", 1500)


@pytest.mark.parametrize("index_type", sorted(INDEX_TYPES))
def test_every_index_type_is_made_and_searched(make, index_type):
    model = HashModel(4)
    engine = make(index_type=index_type)
    candidates = some(600)
    engine.add(candidates, model.encode_candidates, replace=False)
    engine.compact()
    answer = engine._collection.index()
    assert answer["index_type"] == index_type
    made_with = engine._collection.index().get("params", {})
    assert set(made_with) == set(INDEX_TYPES[index_type])
    found = search(engine, model, 5)
    require_equal(found, truth(model, candidates, model.encode_for_scoring(CONTEXTS), 5))
    right = [{hit.id for hit in each.hits} for each in found]
    near = search(engine, model, 5, exact=False)
    assert {each.report.strategy for each in near} == {"approximate"}
    assert (
        sum(len({hit.id for hit in each.hits} & ids) for each, ids in zip(near, right, strict=True))
        >= 12
    )
    engine.verify()


@pytest.mark.parametrize(
    ("name", "nearest"), [("HNWS", "HNSW"), ("flat", "FLAT"), ("IVF_PQ", "IVF")]
)
def test_an_index_type_that_milvus_would_silently_ignore_is_refused(name, nearest):
    with pytest.raises(UsageError, match=f"{name}.*{nearest}"):
        MilvusIndex(index_type=name)


@pytest.mark.parametrize(
    ("text", "parameters"),
    [
        ("FLAT", {}),
        ("HNSW", {"M": 16, "efConstruction": 200}),
        ("HNSW:M=32,efConstruction=400", {"M": 32, "efConstruction": 400}),
        ("HNSW_SQ: M = 8", {"M": 8, "efConstruction": 200, "sq_type": "SQ8"}),
        ("IVF_SQ8:nlist=64", {"nlist": 64}),
    ],
)
def test_parameters_of_an_index_are_read(text, parameters):
    assert MilvusIndex.parse(text).parameters() == parameters


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("hnsw:M=32", "no Milvus index type 'hnsw'.*'HNSW'"),
        ("HNSW:m=32", "no parameter of HNSW 'm'.*'M'"),
        ("HNSW:nlist=32", "no parameter of HNSW 'nlist'"),
        ("HNSW_SQ:sq_type=6", "no parameter of HNSW_SQ 'sq_type'"),
        ("FLAT:M=32", "FLAT has no parameters"),
        ("HNSW:M=1", "M must be from 2 to 2048, got 1"),
        ("HNSW:M=2.5", "M must be a whole number, got 2.5"),
        ("HNSW:M=many", "'M=many' is not a name and a number"),
        ("HNSW:M", "'M' is not a name and a number"),
        ("IVF_FLAT:nlist=0", "nlist must be from 1 to 65536, got 0"),
    ],
)
def test_parameters_that_an_index_does_not_have_are_refused(text, message):
    with pytest.raises(UsageError, match=message):
        MilvusIndex.parse(text)


def test_another_index_than_was_asked_for_is_noticed(make, path, monkeypatch):
    engine = make()
    other = {"index_type": "HNSW", "metric_type": "IP"}
    monkeypatch.setattr(Collection, "index", lambda self: other)
    with pytest.raises(IndexFolderError, match="index HNSW with IP instead of FLAT"):
        engine.verify()
    with pytest.raises(StorageError, match="instead of FLAT"):
        create(path, name="refused")
    monkeypatch.undo()
    with pytest.raises(IndexFolderError, match="no collection"):
        MilvusEngine.open(MilvusAddress(path=path, collection="refused"))


def test_a_collection_describes_itself(make):
    engine = make(index_type="IVF_FLAT")
    model = HashModel()
    engine.add(some(10), model.encode_candidates, replace=False)
    again = MilvusEngine.open(address(engine), fingerprint="f" * 64)
    assert again._description == engine._description
    assert again._description.kinds == {
        "lang": "string",
        "year": "integer",
        "weight": "number",
        "flag": "boolean",
    }
    assert (again._description.dimension, again._description.num_vectors) == (8, 4)
    assert (again._description.attention, again._description.lists) == ("basic", 4)
    again.close()


def test_another_model_is_refused(make):
    engine = make(fingerprint="a" * 64)
    with pytest.raises(IndexFolderError, match="made by the model aaaaaaaaaaaa, not by bbbb"):
        MilvusEngine.open(address(engine), fingerprint="b" * 64)


def test_a_collection_of_others_is_neither_opened_nor_replaced(make, path):
    engine = make(name="others")
    drop = [name for name in engine._collection.properties() if name.startswith("polyrank.")]
    engine._connection.ask("Testing", "drop_collection_properties", "others", drop)
    with pytest.raises(IndexFolderError, match="not made by polyrank"):
        MilvusEngine.open(address(engine))
    with pytest.raises(UsageError, match="others exists and is not an index, so"):
        create(path, name="others")
    fresh = make()
    with pytest.raises(UsageError, match="others exists and is not an index"):
        fresh.publish("others")


def test_a_version_of_the_future_is_refused(make):
    engine = make()
    engine._collection.set_properties({"polyrank.version": "2"})
    with pytest.raises(IndexFolderError, match="version 2; this polyrank reads 1"):
        MilvusEngine.open(address(engine))
    engine._collection.set_properties({"polyrank.version": "1", "polyrank.dimension": "many"})
    with pytest.raises(IndexFolderError, match="damaged"):
        MilvusEngine.open(address(engine))


def test_an_index_of_the_name_is_replaced(make, path):
    model = HashModel()
    old = make()
    old.add(some(10), model.encode_candidates, replace=False)
    name = address(old).collection
    fresh = make(name=name)
    assert len(fresh) == 0


def test_an_index_is_built_beside_and_takes_the_name_when_complete(make, path):
    model = HashModel()
    old = make(name="published")
    old.add(some(10), model.encode_candidates, replace=False)
    fresh = make(name="published_new")
    fresh.add(some(20), model.encode_candidates, replace=False)
    fresh.publish("published")
    assert str(address(fresh)).endswith("/published")
    assert len(fresh) == len(search(fresh, model, 30)[0].hits) == 20
    again = MilvusEngine.open(MilvusAddress(path=path, collection="published"))
    assert len(again) == 20
    again.close()


@pytest.mark.parametrize(
    ("candidate", "message"),
    [
        (Candidate("é" * 40000, "x"), "The id has 80000 bytes; Milvus holds at most 65535"),
        (Candidate("long", "x" * 65536), "'long': The text has 65536 bytes"),
        (Candidate("wide", "é" * 33000), "'wide': The text has 66000 bytes"),
        (Candidate("fat", "x", {"a": "y" * 70000}), "'fat': The metadata have 7[0-9]{4} bytes"),
        (Candidate("odd", "\ud800"), "'odd': The text holds half of a surrogate"),
        (Candidate("kind", "x", {"year": "2020"}), "'kind': .*'year' is .*'2020'.*string.*integer"),
    ],
)
def test_what_milvus_cannot_hold_names_the_candidate_and_adds_nothing(make, candidate, message):
    model = HashModel()
    engine = make()
    engine.add(some(3), model.encode_candidates, replace=False)
    with pytest.raises(DataError, match=message):
        engine.add([Candidate("n", "x"), candidate], model.encode_candidates, replace=False)
    assert len(engine) == 3


def test_the_longest_texts_and_ids_are_held(make):
    model = HashModel()
    engine = make()
    candidates = [Candidate("i" * 65535, "é" * 32767), Candidate("", "")]
    engine.add(candidates, model.encode_candidates, replace=False)
    assert list(engine) == candidates[::-1]
    assert len(search(engine, model, 2)[0].hits) == 2
    assert engine.delete(["i" * 65535, ""]) == 2


def test_requests_stay_below_their_limits(make, monkeypatch):
    monkeypatch.setattr(schema_module, "REQUEST_BYTES", 20_000)
    monkeypatch.setattr(collection_module, "PAGE_BYTES", 5_000)
    monkeypatch.setattr(collection_module, "ID_BYTES", 300)
    monkeypatch.setattr(collection_module, "HITS_AT_ONCE", 70)
    rows = [{"id": str(i), "text": "x" * 1000, "vector": np.ones(8)} for i in range(50)]
    blocks = list(requests(rows))
    assert [row for block in blocks for row in block] == rows
    assert max(len(block) for block in blocks) < 6
    model = HashModel(4)
    engine = make()
    candidates = some(400)
    engine.add(candidates, model.encode_candidates, replace=False)
    assert {candidate.id for candidate in engine} == {candidate.id for candidate in candidates}
    found = search(engine, model, 7)
    require_equal(found, truth(model, candidates, model.encode_for_scoring(CONTEXTS), 7))
    assert engine.delete([candidate.id for candidate in candidates]) == 400
    assert len(engine) == 0
    assert [each.hits for each in search(engine, model, 7)] == [[], [], []]


def test_fields_widen_from_whole_numbers_to_numbers(make):
    model = HashModel()
    engine = make()
    other = MilvusEngine.open(address(engine))
    engine.add([Candidate("a", "x", {"n": 1})], model.encode_candidates, replace=False)
    engine.add([Candidate("b", "y", {"n": 1.5})], model.encode_candidates, replace=False)
    assert engine._description.kinds == {"n": "number"}
    found = search(other, model, 5, filter=Comparison("n", ">", 1.2))
    assert [hit.id for hit in found[0].hits] == ["b"]
    other.close()


def test_others_see_changes_without_opening_again(make):
    model = HashModel()
    engine = make()
    other = MilvusEngine.open(address(engine))
    other.refresh()
    assert not other.refresh()
    engine.add(some(5), model.encode_candidates, replace=False)
    assert len(other) == 5
    assert len(search(other, model, 9)[0].hits) == 5
    assert other.refresh()
    assert not other.refresh()
    other.close()


def test_verify_notices_bad_vectors(make):
    model = HashModel()
    engine = make()
    engine.add(some(5), model.encode_candidates, replace=False)
    engine.verify()
    row = {"id": "bad", "text": "x", "vector": np.full(8, 1e6, np.float32)}
    engine._collection.write([row])
    with pytest.raises(IndexFolderError, match="bad vector, of 'bad'"):
        engine.verify()


def test_a_write_that_fails_takes_back_what_was_replaced(make, monkeypatch):
    model = HashModel()
    engine = make()
    candidates = some(10)
    engine.add(candidates, model.encode_candidates, replace=False)
    before = engine.search(model.encode_for_scoring(CONTEXTS), 10, exact=True, filter=None)
    plain = Collection.write
    calls = []

    def failing(self, rows):
        calls.append(rows)
        plain(self, rows)
        if len(calls) == 2:
            raise StorageError("Writing failed.", "Wait.")

    monkeypatch.setattr(Collection, "write", failing)
    changed = [Candidate(f"id{i}", f"changed {i}", {"year": 1}) for i in range(3000)]
    with pytest.raises(StorageError, match="Writing failed"):
        engine.add(changed, model.encode_candidates, replace=True)
    assert list(engine) == sorted(candidates)
    assert search(engine, model, 10) == before


def test_contexts_of_another_dimension_are_refused(make):
    engine = make()
    with pytest.raises(UsageError, match="8 dimensions, got contexts of 5"):
        engine.search(torch.ones(1, 2, 5), 3, exact=True, filter=None)


def test_vectors_of_another_shape_are_refused(make):
    engine = make()
    with pytest.raises(ModelError, match=r"\(2, 5\) for 2 texts"):
        engine.add(some(2), lambda texts: torch.ones(2, 5), replace=False)


@pytest.mark.parametrize("num_vectors", [1, 64])
def test_equal_candidates_score_equally_wherever_they_lie(num_vectors):
    generator = torch.Generator().manual_seed(1)
    context = torch.randn(num_vectors, 384, generator=generator)
    vectors = torch.randn(1037, 384, generator=generator).numpy()
    same = [0, 1, 500, 511, 512, 1023, 1035, 1036]
    vectors[same] = vectors[3]
    ranking = Ranking(context, "basic", 2000)
    for start, stop in ((0, 501), (501, 512), (512, 513), (513, 1037)):
        ranking.offer([str(i) for i in range(start, stop)], vectors[start:stop])
    scores = {identifier: score for score, identifier in ranking.best}
    assert len({scores[str(place)] for place in same}) == 1


@pytest.mark.parametrize("attention", ["basic", "sqrt"])
def test_no_score_is_above_the_largest_inner_product(attention):
    generator = torch.Generator().manual_seed(2)
    context = torch.randn(9, 16, generator=generator)
    vectors = torch.randn(500, 16, generator=generator)
    scores = poly_scores(context[None], vectors, attention)[0]
    largest = (context @ vectors.T).amax(dim=0)
    assert (scores <= largest + 1e-5).all()


def test_the_longest_vector_is_bounded_by_a_power_of_two():
    assert longest(np.zeros((2, 3), np.float32)) == 0.0
    assert longest(np.eye(3, dtype=np.float32)) == 1.0
    assert longest(np.array([[3, 4.1]], np.float32)) == 8.0
    assert longest(np.full((1, 4), 1e30, np.float32)) >= 2e30


def test_a_file_with_a_bad_candidate_names_its_line(make, tmp_path):
    file = tmp_path / "candidates.txt"
    file.write_text("good\n" + "x" * 70_000 + "\n")
    engine = make()
    with pytest.raises(DataError, match=r"candidates\.txt, line 2: The text has 70000 bytes"):
        engine.add(Candidates(file), HashModel().encode_candidates, replace=False)
    assert len(engine) == 0
