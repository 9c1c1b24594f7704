import tempfile
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hash_model import HashModel, brute_force, numbered
from polyrank.errors import ModelError, UsageError
from polyrank.retrieval.index import Index
from polyrank.retrieval.search import exact as exact_module
from polyrank.retrieval.search.exact import cheaper_strategy, search_exact
from polyrank.retrieval.store.manifest import ShardLayout
from polyrank.scoring.matmul import can_multiply_int8
from polyrank.scoring.topk import COLUMNS_AT_ONCE, context_groups

STRATEGIES = ["scan", *(["bounded"] if can_multiply_int8() else [])]

CONTEXTS = ["what is it", "another", ["two", "turns"]]


def flat(hits):
    return [[(hit.id, hit.text) for hit in row] for row in hits]


def build(model, candidates, folder, **layout):
    return Index.build(model, candidates, Path(folder) / "index", layout=ShardLayout(**layout))


@settings(max_examples=40, deadline=None)
@given(
    num_vectors=st.sampled_from([1, 4]),
    texts=st.lists(st.integers(0, 30), min_size=1, max_size=150),
    top_k=st.integers(1, 150),
    block_rows=st.integers(1, 40),
    blocks_a_shard=st.integers(1, 5),
    strategy=st.sampled_from(STRATEGIES),
    seed=st.randoms(use_true_random=False),
)
def test_search_equals_brute_force(
    num_vectors, texts, top_k, block_rows, blocks_a_shard, strategy, seed
):
    # few texts under many ids: most scores tie
    model = HashModel(num_vectors)
    candidates = [(f"c{i}", f"text {text}") for i, text in enumerate(texts)]
    seed.shuffle(candidates)
    top_k = min(top_k, len(candidates))
    with tempfile.TemporaryDirectory() as folder:
        index = build(
            model,
            candidates,
            folder,
            block_rows=block_rows,
            shard_rows=block_rows * blocks_a_shard,
        )
        encoded = model.encode_for_scoring(CONTEXTS)
        ranked, how = search_exact(encoded, "basic", index.engine.cache, top_k, strategy=strategy)
        assert how == strategy
        padded = [*candidates, *((f"~{i}", "") for i in range(-len(candidates) % 64))]
        expected = [
            [hit for hit in row if not hit[0].startswith("~")][:top_k]
            for row in brute_force(model, padded, CONTEXTS, len(padded))
        ]
        identify = index.engine.cache.id
        assert [[identify(row) for row in each.rows] for each in ranked] == [
            [hit[0] for hit in row] for row in expected
        ]
        np.testing.assert_allclose(
            [each.scores for each in ranked],
            [[hit[2] for hit in row] for row in expected],
            rtol=1e-5,
            atol=1e-6,
        )


@pytest.mark.parametrize("num_vectors", [1, 4])
def test_order_of_candidates_and_batch_of_contexts_change_nothing(tmp_path, num_vectors):
    model = HashModel(num_vectors)
    candidates = numbered(300)
    forward = build(model, candidates, tmp_path / "a", block_rows=64, shard_rows=128)
    backward = build(model, candidates[::-1], tmp_path / "b", block_rows=50, shard_rows=50)
    together = forward.search(CONTEXTS, 20, exact=True)
    assert flat(together) == flat(backward.search(CONTEXTS, 20))
    for context, hits in zip(CONTEXTS, together, strict=True):
        alone = forward.search([context], 20)[0]
        assert flat([alone]) == flat([hits])
        np.testing.assert_allclose([h.score for h in alone], [h.score for h in hits], rtol=1e-5)


def test_ties_go_to_the_larger_id_across_blocks_and_at_the_last_place(tmp_path, monkeypatch):
    model = HashModel()
    candidates = [(str(i), "the same") for i in range(150)]
    index = build(model, candidates, tmp_path, block_rows=16, shard_rows=32)
    encoded = model.encode_for_scoring(["x"])
    expected = sorted((identifier for identifier, _ in candidates), reverse=True)
    for top_k in (1, 7, 149, 150):
        for block_rows in (1, 13, 64, 4096):
            monkeypatch.setattr(exact_module, "BLOCK_ROWS", block_rows)
            (found,), _ = search_exact(encoded, "basic", index.engine.cache, top_k)
            assert [index.engine.cache.id(row) for row in found.rows] == expected[:top_k]


@pytest.mark.parametrize("num_vectors", [1, 64])
def test_equal_candidates_score_equally_wherever_they_lie(tmp_path, num_vectors):
    # an odd last row of a matrix product is added up in another order
    model = HashModel(num_vectors, dimension=384)
    candidates = numbered(1037)
    same = [0, 1, 500, 511, 512, 1023, 1035, 1036]
    for place in same:
        candidates[place] = (f"same{place}", "the same")
    index = build(model, candidates, tmp_path, block_rows=128, shard_rows=512)
    hits = index.search(["a", "b", "c"], 1037)
    for row in hits:
        assert len({hit.score for hit in row if hit.id.startswith("same")}) == 1


@pytest.mark.parametrize("top_k", [0, -1, 1.5])
def test_a_top_k_below_one_is_refused(tmp_path, top_k):
    index = build(HashModel(), numbered(3), tmp_path)
    with pytest.raises(UsageError, match=f"whole number of at least 1, got {top_k}"):
        index.search(["x"], top_k)


def test_a_top_k_above_the_number_of_candidates_gives_all(tmp_path):
    index = build(HashModel(), numbered(3), tmp_path)
    [hits] = index.search(["x"], 10**9)
    assert len(hits) == 3
    assert index.search(["x"]) == [hits]
    index.delete(["id0", "id1", "id2"])
    assert index.search(["x"]) == [[]]


def test_one_text_gives_its_hits_and_no_contexts_none(tmp_path):
    index = build(HashModel(), numbered(30), tmp_path)
    assert index.search([], 2) == []
    found = index.search(["text", "other"], 4)
    hits = index.search("text", 4)
    assert hits == found[0]
    assert hits.report == found[0].report == found.reports[0]
    assert hits.report.num_candidates == 30
    with pytest.raises(UsageError, match="contexts must be a text or a list"):
        index.search(None)


def test_scores_that_are_not_numbers_are_an_error(tmp_path):
    model = HashModel()
    index = build(model, numbered(3), tmp_path)
    model.encode_for_scoring = lambda contexts: torch.full((len(contexts), 1, 8), torch.nan)
    with pytest.raises(ModelError, match="not numbers"):
        index.search(["x"], 2)


@pytest.mark.parametrize(("count", "num_vectors"), [(0, 1), (1, 1), (65, 1), (200, 1), (3, 360)])
def test_groups_of_contexts_are_even_and_complete(count, num_vectors):
    contexts = torch.arange(float(count)).reshape(-1, 1, 1).expand(-1, num_vectors, 2)
    sizes = [len(group) for group in context_groups(contexts)]
    assert sum(sizes) == count
    assert max(sizes) - min(sizes) <= 1
    assert max(sizes) <= max(1, COLUMNS_AT_ONCE // num_vectors)


@pytest.mark.parametrize("storage", ["float32", "bfloat16", "int8"])
@pytest.mark.parametrize("num_vectors", [1, 16])
def test_every_strategy_gives_the_same_and_says_what_it_did(tmp_path, storage, num_vectors):
    model = HashModel(num_vectors, dimension=32)
    index = Index.build(model, numbered(3000), tmp_path / "index", storage=storage)
    cache, encoded = index.engine.cache, model.encode_for_scoring(CONTEXTS)
    results = [search_exact(encoded, "basic", cache, 10, strategy=each)[0] for each in STRATEGIES]
    for other in results[1:]:
        for ours, theirs in zip(results[0], other, strict=True):
            assert (ours.rows, ours.scores) == (theirs.rows, theirs.scores)
            assert theirs.num_scored < 3000
    chosen = cheaper_strategy(encoded, cache)
    found = index.search(CONTEXTS, 10)
    for report, hits, ranked in zip(found.reports, found, results[0], strict=True):
        assert (report.strategy, report.certified, report.num_candidates) == (chosen, True, 3000)
        assert [hit.score for hit in hits] == ranked.scores


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda index: index.add(None), "candidates must be a file or a list .* got None"),
        (lambda index: index.add(5), "candidates must be a file or a list .* got 5"),
        (lambda index: index.add({"a": "b"}), "candidates must be a file or a list"),
        (lambda index: index.delete(3), "identifiers must be an id or a list of ids, got int 3"),
        (lambda index: index.delete([3]), r"identifiers\[0\] must be an id"),
        (lambda index: index.search("x", filter=3), "filter must be a text, got 3. Write it like"),
        (lambda index: index.search([3]), r"contexts\[0\] must be a text or a list of turns"),
    ],
)
def test_what_an_index_cannot_take_is_refused(tmp_path, call, words):
    index = build(HashModel(), numbered(3), tmp_path)
    with pytest.raises(UsageError, match=words):
        call(index)
    assert len(index) == 3
    assert index.delete("id1") == 1
    assert [candidate.id for candidate in index] == ["id0", "id2"]
