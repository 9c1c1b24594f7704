"""The statements of docs/bounds.md, those that search relies on and those that explain it."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from polyrank.scoring.poly import attention_scale, combine, factorise, numerical_rank, poly_scores

FINITE = st.floats(-40, 40)


def gap(num_vectors, attention="basic", dimension=1):
    """The most by which a score lies below its best logit: W₀((m − 1) / e), for `sqrt` √d times."""
    return lambert_w((num_vectors - 1) / math.e) / attention_scale(attention, dimension)


def lambert_w(x):
    """W₀(x) for x ≥ 0: the w with w · exp(w) = x. Newton's method, which here only descends."""
    w = math.log1p(x)
    while True:
        step = (w * math.exp(w) - x) / ((w + 1) * math.exp(w))
        w -= step
        if abs(step) <= 1e-14 * max(1.0, w):
            return w


def upper_bounds(vectors, factor, candidates):
    """Upper bounds of the scores from a truncated factor: candidates (n, d) → (n,)."""
    residuals = (vectors - factor.weights @ factor.basis).norm(dim=1)  # (m,)
    inside = candidates @ factor.basis.T  # (n, r)
    outside = (candidates.square().sum(1) - inside.square().sum(1)).clamp_min(0).sqrt()  # (n,)
    logits = inside @ factor.weights.T + outside[:, None] * residuals  # (n, m)
    return logits.amax(1)


@pytest.mark.parametrize(("num_vectors", "expected"), [(1, 0), (16, 1.38), (64, 2.31), (360, 3.60)])
def test_the_gap_is_the_published_one(num_vectors, expected):
    assert gap(num_vectors) == pytest.approx(expected, abs=0.005)
    assert gap(num_vectors, "sqrt", 384) == pytest.approx(gap(num_vectors) * math.sqrt(384))


@given(st.floats(0, 1e12))
def test_lambert_w_inverts(x):
    w = lambert_w(x)
    assert w * math.exp(w) == pytest.approx(x, rel=1e-9, abs=1e-12)


@given(st.lists(FINITE, min_size=1, max_size=40), st.sampled_from(["basic", "sqrt"]))
def test_a_score_lies_between_its_bounds(logits, attention):
    values = torch.tensor(logits, dtype=torch.float64)
    dimension = 16
    mask = torch.ones(1, len(logits), dtype=torch.bool)
    scale = attention_scale(attention, dimension)
    score = float(combine(values[None, :, None], mask, scale))
    largest = max(logits)
    assert score <= largest + 1e-9
    assert score >= largest - gap(len(logits), attention, dimension) - 1e-9


@pytest.mark.parametrize("attention", ["basic", "sqrt"])
def test_the_lower_bound_is_reached(attention):
    """One logit x above m - 1 equal ones, at the x where the derivative vanishes."""
    num_vectors, dimension = 64, 9
    scale = attention_scale(attention, dimension)
    lead = (1 + lambert_w((num_vectors - 1) / math.e)) / scale
    logits = torch.zeros(1, num_vectors, 1, dtype=torch.float64)
    logits[0, 0] = lead
    score = float(combine(logits, torch.ones(1, num_vectors, dtype=torch.bool), scale))
    assert lead - score == pytest.approx(gap(num_vectors, attention, dimension), rel=1e-9)


@settings(deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 12), st.integers(1, 12))
def test_a_truncated_factor_bounds_from_above(seed, num_vectors, rank):
    generator = torch.Generator().manual_seed(seed)
    vectors = torch.randn(num_vectors, 10, generator=generator, dtype=torch.float64) * 3
    candidates = torch.randn(50, 10, generator=generator, dtype=torch.float64)
    factor = factorise(vectors, min(rank, num_vectors))
    bounds = upper_bounds(vectors, factor, candidates)
    scores = poly_scores(vectors[None], candidates)[0]
    assert bool((bounds >= scores - 1e-9).all())


def test_a_full_factor_is_the_vectors():
    vectors = torch.randn(3, 5, generator=torch.Generator().manual_seed(0)).repeat(4, 1)
    assert numerical_rank(vectors) == 3
    factor = factorise(vectors, 3)
    torch.testing.assert_close(factor.weights @ factor.basis, vectors)
    assert float((vectors - factor.weights @ factor.basis).norm(dim=1).max()) < 1e-5
    torch.testing.assert_close(factor.basis @ factor.basis.T, torch.eye(3))
