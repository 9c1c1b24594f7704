"""On a real cluster of this machine, with two actors."""

import importlib
import os
import sys
from importlib.util import find_spec

import numpy as np
import pytest
from test_bulk import SMALL, rows, write

from polyrank.errors import DataError, MissingExtraError, UsageError
from polyrank.models.bi_encoder import BiEncoder
from polyrank.retrieval.bulk import ray as ray_stage
from polyrank.retrieval.bulk.ray import CandidateEncoder, connected, encode_with_ray
from polyrank.retrieval.index import Index

EXACTLY = {"device": "cpu", "dtype": "float32"}
pytestmark = pytest.mark.filterwarnings(
    "ignore:`use_.*` is deprecated:DeprecationWarning"  # Ray Data of its own settings
)


@pytest.fixture(scope="module")
def model_path(bert, tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "bi"
    BiEncoder.from_pretrained(bert, device="cpu", dtype="float32").save_pretrained(path)
    return path


@pytest.fixture
def model(model_path):
    return BiEncoder.from_pretrained(model_path, **EXACTLY)


@pytest.fixture(scope="module")
def ray():
    if not all(map(find_spec, ("ray", "pandas", "pyarrow"))):
        pytest.skip("the extra ray is not installed")
    os.environ["RAY_AUTH_TOKEN"] = "0" * 32  # else Ray writes one into the home folder
    with connected() as ray:
        importlib.import_module("ray.data")
        yield ray
    assert not ray.is_initialized()


def test_two_actors_add_vectors_to_a_data_set(ray, model, model_path):
    texts = [f"text {number}" * (number % 7) for number in range(60)]
    dataset = ray.data.from_items([{"text": text, "place": n} for n, text in enumerate(texts)])
    encoded = dataset.map_batches(
        CandidateEncoder,
        fn_constructor_kwargs={"model": str(model_path), **EXACTLY},
        compute=ray.data.ActorPoolStrategy(size=2),
        batch_size=15,
    ).take_all()
    assert sorted(row["place"] for row in encoded) == list(range(60))
    vectors = np.stack([row["vector"] for row in sorted(encoded, key=lambda row: row["place"])])
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(vectors, model.encode_candidates(texts), atol=1e-5)


def test_two_actors_encode_the_parts_of_an_index(ray, model, model_path, tmp_path):
    source, parts = write(tmp_path / "candidates.jsonl"), tmp_path / "parts"
    settings = {"layout": SMALL, **EXACTLY}
    made = list(encode_with_ray(model_path, source, parts, 5, 2, **settings))
    assert sorted((part.part_index, part.state) for part in made) == [
        (part, "encoded") for part in range(5)
    ]
    index = Index.assemble(model, parts, tmp_path / "index")
    single = Index.build(model, source, tmp_path / "single", layout=SMALL)
    assert rows(index)[0] == rows(single)[0]
    np.testing.assert_allclose(rows(index)[1], rows(single)[1], atol=1e-6)
    assert ray.is_initialized()


def test_an_error_of_an_actor_is_raised_as_it_was(ray):
    def fail():
        raise DataError("What failed.", "What to do.", path="file", line=3)

    class Pool:
        def map_unordered(self, *_):
            yield ray.get(ray.remote(fail).remote())

    with pytest.raises(DataError) as caught:
        list(ray_stage.results(ray, Pool(), 1))
    assert type(caught.value) is DataError
    assert str(caught.value) == "file, line 3: What failed. What to do."
    assert (caught.value.line, caught.value.remedy) == (3, "What to do.")


def test_the_cluster_listens_on_this_machine_only_and_tells_nobody(ray):
    assert {node["NodeManagerAddress"] for node in ray.nodes()} == {"127.0.0.1"}
    assert os.environ["RAY_USAGE_STATS_ENABLED"] == "0"


def test_without_ray_the_error_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "ray", None)
    source = write(tmp_path / "candidates.jsonl", 3)
    with pytest.raises(MissingExtraError, match=r'pip install "polyrank\[ray\]"'):
        list(encode_with_ray("model", source, tmp_path / "parts", 2, 2))
    with pytest.raises(UsageError, match="at least one part and one actor, got 0 and 2"):
        list(encode_with_ray("model", source, tmp_path / "parts", 0, 2))


def test_a_batch_without_texts_names_its_columns(model_path):
    stage = CandidateEncoder(model_path, device="cpu")
    with pytest.raises(UsageError, match="no column 'text', only 'body'"):
        stage({"body": np.array(["x"])})
    stage = CandidateEncoder(model_path, device="cpu", column="body")
    encoded = stage({"body": np.array(["x", "y"])})
    assert encoded["vector"].shape == (2, stage.model.dimension)
    assert encoded["body"].tolist() == ["x", "y"]


@pytest.mark.parametrize(
    ("resources", "count", "shares"),
    [
        ({"CPU": 16.0}, 3, (5.0, 0.0)),
        ({"CPU": 2.0}, 3, (0.6666, 0.0)),
        ({"CPU": 64.0, "GPU": 8.0}, 4, (16.0, 1.0)),
        ({"CPU": 64.0, "GPU": 1.0}, 4, (16.0, 0.25)),
    ],
)
def test_all_actors_fit_into_the_cluster(resources, count, shares):
    assert tuple(ray_stage.shares(resources, count).values()) == shares
