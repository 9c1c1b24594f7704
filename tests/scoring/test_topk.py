import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from polyrank.errors import ModelError
from polyrank.scoring import topk
from polyrank.scoring.matmul import can_multiply_int8
from polyrank.scoring.poly import CHUNK, ExactScorer, poly_scores
from polyrank.scoring.screen import FloatScreen, IntegerScreen, ScreenRows, norms_of, quantised
from polyrank.scoring.topk import Best, CandidateBlock, best_rows, top_k

integers = pytest.mark.skipif(not can_multiply_int8(), reason="torch has no 8-bit products here")


def draw(seed, *shape, scale=1.0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)) * scale


def texts_like(seed, count, dimension):
    """Unit vectors around a few directions, as encoded texts are; some of them equal."""
    centres = draw(seed, 8, dimension)
    vectors = centres[torch.arange(count) % 8] + draw(seed + 1, count, dimension, scale=0.7)
    vectors[count // 2] = vectors[0]
    return torch.nn.functional.normalize(vectors, dim=1)


def ranking(scores, k):
    """Rows by (score, row), descending."""
    pairs = sorted(((s, r) for r, s in enumerate(scores.tolist())), reverse=True)
    return [row for _, row in pairs[:k]]


@pytest.mark.parametrize("attention", ["basic", "sqrt"])
@pytest.mark.parametrize("num_vectors", [1, 3, 64])
@pytest.mark.parametrize("tokens", [None, 2])
def test_exact_scores_are_the_formulas(attention, num_vectors, tokens):
    vectors = draw(0, num_vectors, 24, scale=4)
    if tokens is not None:  # a short context: its vectors are mixtures of few outputs
        vectors = draw(1, num_vectors, tokens).softmax(1) @ draw(2, tokens, 24, scale=4)
    if num_vectors == 64:
        vectors[50:] = 0  # no vectors
    candidates = draw(3, 300, 24)
    scores = ExactScorer(vectors, attention).scores(candidates)
    expected = poly_scores(vectors[None], candidates, attention)[0]
    torch.testing.assert_close(scores, expected, rtol=0, atol=1e-4)


def test_a_context_without_vectors_scores_nothing():
    assert ExactScorer(torch.zeros(4, 6), "basic").scores(draw(0, 5, 6)).tolist() == [0.0] * 5


@given(st.integers(1, 3 * CHUNK), st.integers(0, 2 * CHUNK))
@settings(deadline=None, max_examples=25)
def test_a_score_does_not_depend_on_its_block(count, start):
    candidates = draw(0, 4 * CHUNK, 20)
    scorer = ExactScorer(draw(1, 5, 20, scale=3), "basic")
    whole = scorer.scores(candidates)
    part = candidates[start : start + count]
    assert torch.equal(scorer.scores(part), whole[start : start + len(part)])


SCREENS = {
    "float32": (lambda contexts: FloatScreen(contexts, torch.float32), torch.float32),
    "bfloat16": (lambda contexts: FloatScreen(contexts, torch.bfloat16), torch.float32),
    "stored in bfloat16": (lambda contexts: FloatScreen(contexts, torch.bfloat16), torch.bfloat16),
    "stored in float16": (lambda contexts: FloatScreen(contexts, torch.bfloat16), torch.float16),
}


@pytest.mark.parametrize("name", SCREENS)
@given(st.integers(0, 1000), st.sampled_from([0.01, 1.0, 30.0]))
@settings(deadline=None, max_examples=15)
def test_no_score_is_above_its_bound(name, seed, scale):
    make, dtype = SCREENS[name]
    contexts = draw(seed, 3, 7, 40, scale=scale)
    contexts[1, 4:] = 0
    candidates = texts_like(seed, 64, 40).to(dtype) * (1 + seed % 5)
    bounds = make(contexts).upper(ScreenRows(candidates, None, norms_of(candidates), None))
    scores = poly_scores(contexts.double(), candidates.double())
    assert bounds.shape == (3, 64)
    assert bool((bounds.double() >= scores).all())
    assert float((bounds.double() - scores).max()) < 40 * scale * (1 + seed % 5)


@integers
@given(st.integers(0, 1000), st.sampled_from([0.01, 1.0, 30.0]))
@settings(deadline=None, max_examples=30)
def test_no_score_is_above_its_bound_in_integers(seed, scale):
    contexts = draw(seed, 3, 7, 40, scale=scale)
    contexts[1, 4:] = 0
    candidates = texts_like(seed, 64, 40) * (1 + seed % 5)
    candidates[5] = 0
    rows = quantised(candidates)
    restored = rows.values * rows.scales[:, None]
    torch.testing.assert_close((candidates - restored).norm(dim=1), rows.errors)
    bounds = IntegerScreen(contexts).upper(rows).double()
    logits = torch.einsum("bmd,nd->bmn", contexts.double(), candidates.double())
    logits = logits.masked_fill((contexts == 0).all(2)[:, :, None], -torch.inf).amax(1)
    assert bool((bounds >= logits).all())
    assert bool((bounds >= poly_scores(contexts.double(), candidates.double())).all())
    slack = (bounds - logits) / (contexts.norm(dim=2).amax(1)[:, None] * (1 + seed % 5))
    assert float(slack.max()) < 0.1


@pytest.mark.parametrize("attention", ["basic", "sqrt"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("num_vectors", [1, 16])
def test_the_best_are_those_of_brute_force(attention, dtype, num_vectors, monkeypatch):
    monkeypatch.setattr(topk, "BLOCK_ROWS", 700)
    contexts = draw(5, 3, num_vectors, 32, scale=4)
    candidates = texts_like(6, 3000, 32).to(dtype)
    found = top_k(contexts, candidates, 20, attention)
    for context, ranked in zip(contexts, found, strict=True):
        scores = ExactScorer(context, attention).scores(candidates.float())
        assert ranked.rows == ranking(scores, 20)
        assert ranked.scores == scores[ranked.rows].tolist()
    if attention == "basic":  # sqrt averages more, so that its bound is further away
        assert sum(ranked.num_scored for ranked in found) < 0.6 * 3 * 3000


@integers
def test_integer_blocks_give_the_same_and_score_few():
    contexts, candidates = draw(1, 2, 16, 64, scale=3), texts_like(2, 4000, 64)
    rows = quantised(candidates)
    blocks = [
        CandidateBlock(start, ScreenRows(*(part[start : start + 1000] for part in rows)))
        for start in range(0, 4000, 1000)
    ]
    best = [Best(10, lambda row: row) for _ in contexts]
    found = best_rows(contexts, "basic", blocks, lambda n: candidates[torch.from_numpy(n)], best)
    for ours, brute in zip(found, top_k(contexts, candidates, 10), strict=True):
        assert ours.rows == brute.rows
        assert ours.scores == brute.scores
        assert ours.num_scored < 2000


def test_rows_that_are_not_allowed_are_not_found():
    contexts, candidates = draw(1, 2, 4, 16), texts_like(2, 500, 16)
    allowed = np.arange(500) % 7 == 3
    rows = ScreenRows(candidates, None, norms_of(candidates), None)
    best = [Best(1000, lambda row: row) for _ in contexts]
    found = best_rows(
        contexts,
        "basic",
        [CandidateBlock(0, rows, allowed)],
        lambda n: candidates[torch.from_numpy(n)],
        best,
    )
    for ranked in found:
        assert sorted(ranked.rows) == np.flatnonzero(allowed).tolist()


@pytest.mark.parametrize("key", [lambda row: row, lambda row: -row])
def test_ties_go_to_the_larger_key(key):
    candidates = texts_like(2, 1, 8).repeat(50, 1)
    rows = ScreenRows(candidates, None, norms_of(candidates), None)
    best = [Best(3, key)]
    (ranked,) = best_rows(
        draw(0, 1, 2, 8),
        "basic",
        [CandidateBlock(0, rows)],
        lambda n: candidates[torch.from_numpy(n)],
        best,
    )
    assert ranked.rows == sorted(range(50), key=key, reverse=True)[:3]


def test_a_context_that_is_not_finite_is_refused():
    contexts = torch.full((1, 2, 4), torch.nan)
    with pytest.raises(ModelError, match="not numbers"):
        top_k(contexts, draw(0, 5, 4), 2)


def test_rows_scored_early_are_found_once(monkeypatch):
    monkeypatch.setattr(topk, "MOST_BOUNDS", 300)
    contexts, candidates = draw(1, 2, 4, 16), texts_like(2, 500, 16)
    blocks = [
        CandidateBlock(start, ScreenRows(part, None, norms_of(part)))
        for start, part in zip(range(0, 500, 100), candidates.split(100), strict=True)
        if start != 200
    ]
    best = [Best(500, lambda row: row) for _ in contexts]
    early = [np.array([499, 3, 250]), np.array([], np.int64)]
    found = best_rows(
        contexts, "basic", blocks, lambda n: candidates[torch.from_numpy(n)], best, early
    )
    there = [row for row in range(500) if not 200 <= row < 300]
    assert sorted(found[0].rows) == sorted([*there, 250])
    assert sorted(found[1].rows) == there
