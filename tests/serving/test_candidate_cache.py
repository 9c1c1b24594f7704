"""The cache of candidates' vectors: what it keeps, what it drops, and scores with it."""

import asyncio

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from polyrank.serving.candidate_cache import OVERHEAD, CandidateCache, keys_of, record_of
from polyrank.serving.config import ServerConfig
from polyrank.serving.pipeline import Pipeline
from polyrank.serving.runtime import Runtime
from polyrank.serving.scheduling.flow import Flow

D = 4
ENTRY = record_of(D).itemsize + OVERHEAD
TEXTS = ["how do i read a file", "sound and screen", "yes", "print the last line", "boot"]


def vector_of(text):
    return np.full(D, sum(text.encode()), dtype=np.float32)


def put(cache, texts, model="m"):
    vectors = np.array([vector_of(text) for text in texts]).reshape(-1, D)
    cache.put_many(keys_of(model, texts), vectors, [len(text) for text in texts])


def test_known_vectors_and_missing_places():
    cache = CandidateCache(100 * ENTRY)
    put(cache, ["a", "b"])
    known = cache.get_many(keys_of("m", ["b", "c", "a", ""]), D)
    assert (known.places, known.missing, known.num_tokens) == ([0, 2], [1, 3], 2)
    np.testing.assert_array_equal(known.vectors, [vector_of("b"), vector_of("a")])
    assert (cache.hits, cache.misses, len(cache)) == (2, 2, 2)


def test_models_do_not_share_vectors():
    cache = CandidateCache(100 * ENTRY)
    put(cache, ["a"], model="m")
    assert cache.get_many(keys_of("n", ["a"]), D).missing == [0]
    assert len(keys_of("m", ["a"])[0]) * 8 == 128


@given(
    room=st.integers(0, 6),
    steps=st.lists(st.tuples(st.booleans(), st.lists(st.sampled_from("abcdefgh"), unique=True))),
)
def test_it_holds_what_was_used_last_and_never_more_than_its_limit(room, steps):
    cache = CandidateCache(room * ENTRY + ENTRY // 2)
    used = []  # the longest unused first
    for is_put, texts in steps:
        if is_put:
            put(cache, texts)
            used = [text for text in used if text not in texts] + texts
            used = used[len(used) - min(room, len(used)) :]
        else:
            known = cache.get_many(keys_of("m", texts), D)
            assert [texts[place] for place in known.places] == [t for t in texts if t in used]
            for place, vector in zip(known.places, known.vectors, strict=True):
                np.testing.assert_array_equal(vector, vector_of(texts[place]))
            used = [t for t in used if t not in texts] + [t for t in texts if t in used]
        assert len(cache) == len(used)
        assert cache.num_bytes == len(used) * ENTRY <= cache.max_bytes


def test_a_vector_larger_than_the_limit_is_not_kept():
    cache = CandidateCache(ENTRY - 1)
    put(cache, ["a"])
    assert (len(cache), cache.num_bytes) == (0, 0)


@pytest.mark.parametrize("name", ["bi", "poly"])
@pytest.mark.parametrize("megabytes", [0.0, 1.0])
def test_scores_and_token_counts_are_the_same_with_known_vectors(name, megabytes, bi, poly):
    model = {"bi": bi, "poly": poly}[name]
    runtime = Runtime(Pipeline({name: model}), ServerConfig(candidate_cache_mb=megabytes))
    served = runtime.pipeline.models[name]

    async def score(context, texts):
        return await runtime.score(served, context, texts, Flow.lasting(60))

    try:
        first = asyncio.run(score("yes", TEXTS[:3]))
        again = asyncio.run(score("yes", TEXTS[:3]))
        mixed = asyncio.run(score("print", [*TEXTS[::-1], "yes"]))
    finally:
        runtime.close()
    np.testing.assert_allclose(first.scores, model.score("yes", TEXTS[:3]), atol=1e-5)
    np.testing.assert_allclose(again.scores, first.scores, atol=1e-5)
    np.testing.assert_allclose(mixed.scores, model.score("print", [*TEXTS[::-1], "yes"]), atol=1e-5)
    assert first.num_tokens == again.num_tokens
    ids = model.context_ids(["print"]) + model.candidate_ids(TEXTS)
    assert mixed.num_tokens == sum(map(len, ids))
    cache = runtime.candidate_cache
    expected = (6, 5, 5) if megabytes else (0, 11, 0)
    assert (cache.hits, cache.misses, len(cache)) == expected
