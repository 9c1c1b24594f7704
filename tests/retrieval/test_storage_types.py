import tempfile
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from hash_model import HashModel, numbered, unflushed
from polyrank.errors import ModelError, UsageError
from polyrank.retrieval.index import Index
from polyrank.retrieval.store.manifest import ShardLayout
from polyrank.retrieval.store.vectors import DTYPES, STORAGES, restored, rounded
from polyrank.scoring.poly import poly_scores

EPSILON = {"float32": 0, "bfloat16": 2**-8, "float16": 2**-11}


def test_lossless_types_are_the_types_of_torch():
    vectors = torch.randn(20, 8, generator=torch.Generator().manual_seed(0))
    for storage, epsilon in EPSILON.items():
        stored = rounded(vectors, storage)
        assert stored.vectors.dtype == DTYPES[storage]
        torch.testing.assert_close(restored(*stored), vectors, rtol=epsilon, atol=0)


@settings(deadline=None)
@given(arrays(np.float32, (5, 4), elements=st.floats(-(2.0**100), 2.0**100, width=32)))
def test_int8_is_at_most_half_a_step_away_and_keeps_the_largest(values):
    vectors = torch.from_numpy(values)
    stored = rounded(vectors, "int8")
    assert stored.vectors.dtype == torch.int8
    largest = vectors.abs().amax(dim=1, keepdim=True)
    step = largest / 127
    tiny = 1e-43  # where a step itself is rounded to the next subnormal number
    error = (restored(*stored) - vectors).abs()
    assert (error <= step * 0.50001 + 127 * tiny).all()
    assert not restored(*rounded(torch.zeros(3, 4), "int8")).any()


@settings(max_examples=25, deadline=None)
@given(
    storage=st.sampled_from(STORAGES),
    count=st.integers(1, 90),
    block_rows=st.sampled_from([7, 128]),
    start=st.integers(0, 100),
    scored=st.sampled_from([1, 4]),
)
def test_scores_are_the_formula_on_the_stored_vectors(storage, count, block_rows, start, scored):
    model = HashModel(scored)
    candidates = numbered(count)
    with tempfile.TemporaryDirectory() as folder, unflushed():
        layout = ShardLayout(block_rows=10, shard_rows=30)
        index = Index.build(
            model, candidates, Path(folder, "index"), storage=storage, layout=layout
        )
        cache = index.engine.cache
        fresh = model.encode_candidates([text for _, text in candidates])
        expected = restored(*rounded(fresh, storage))
        assert torch.equal(cache.gather(np.arange(count)), expected)
        some = np.array([count - 1, 0, count // 2, 0])
        assert torch.equal(cache.gather(some), expected[some])
        for first, rows in cache.screened(block_rows, start=start, sketches=False):
            assert rows.values.dtype == DTYPES[storage]
            assert (rows.scales is not None) == (storage == "int8")
            mine = expected[first : first + len(rows.values)]
            assert torch.equal(restored(rows.values, rows.scales), mine)
            assert bool((rows.norms >= mine.norm(dim=1) * (1 - 1e-6)).all())
        covered = []
        for first, rows in cache.screened(block_rows, start=start, sketches=True):
            mine = expected[first : first + len(rows.values)]
            covered += range(first, first + len(mine))
            assert rows.values.dtype == torch.int8
            errors = (restored(rows.values, rows.scales) - mine).norm(dim=1)
            if rows.errors is None:
                assert storage == "int8"
                assert not errors.any()
            else:
                torch.testing.assert_close(rows.errors, errors)
        assert covered == list(range(start, count))
        contexts = model.encode_for_scoring(["a", "b"])
        scores = poly_scores(contexts, expected)
        (first, second) = index.search(["a", "b"], count)
        for hits, row in ((first, scores[0]), (second, scores[1])):
            place = {hit.id: hit.score for hit in hits}
            found = [place[identifier] for identifier, _ in candidates]
            np.testing.assert_allclose(found, row.tolist(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("storage", STORAGES)
def test_an_interrupted_build_goes_on_in_every_type(tmp_path, storage):
    layout = ShardLayout(block_rows=10, shard_rows=30)
    options = {"layout": layout, "storage": storage}
    model = HashModel()

    def stop():
        if model.encoded == 50:
            raise KeyboardInterrupt

    model.before_block = stop
    with pytest.raises(KeyboardInterrupt):
        Index.build(model, numbered(75), tmp_path / "index", **options)
    model = HashModel()
    index = Index.build(model, numbered(75), tmp_path / "index", **options)
    assert model.encoded == 25
    index.verify()
    assert index.engine.manifest.storage == storage


@pytest.mark.parametrize(
    ("storage", "value"),
    [
        ("float32", float("inf")),
        ("float32", float("nan")),
        ("bfloat16", 3.4e38),
        ("float16", 65520.0),
        ("int8", float("nan")),
    ],
)
def test_vectors_that_do_not_fit_name_the_candidate(tmp_path, storage, value):
    model = HashModel()
    model.vector = lambda text: np.full(8, value if "17" in text else 1, np.float32)
    with pytest.raises(ModelError, match="'id17' is not finite"):
        Index.build(model, numbered(20), tmp_path / "index", storage=storage)
    assert not (tmp_path / "index").exists()


def test_a_vector_of_zeros_is_one_in_every_type(tmp_path):
    model = HashModel()
    model.vector = lambda text: np.zeros(8, np.float32)
    for storage in STORAGES:
        index = Index.build(model, ["a", "b"], tmp_path / storage, storage=storage)
        assert [hit.score for hit in index.search(["x"], 2)[0]] == [0, 0]


def test_an_unknown_type_names_the_nearest(tmp_path):
    with pytest.raises(UsageError, match=r"no storage 'bfloat'.*'bfloat16'"):
        Index.build(HashModel(), ["a"], tmp_path / "index", storage="bfloat")
    with pytest.raises(UsageError, match="no backend 'hnswlib'"):
        Index.build(HashModel(), ["a"], tmp_path / "index", backend="hnswlib")
