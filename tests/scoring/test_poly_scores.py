import math

import pytest
import torch

from polyrank.scoring.poly import combine, poly_scores, poly_scores_each, present


def by_the_formula(contexts, candidates, attention):
    """Σ w_i y_i, then its product with e, one context and one candidate at a time."""
    rows = []
    for vectors in contexts:
        there = [vector for vector in vectors if bool((vector != 0).any())]
        row = []
        for candidate in candidates:
            logits = [sum(a * b for a, b in zip(v, candidate, strict=True)) for v in there]
            scale = 1 / math.sqrt(len(candidate)) if attention == "sqrt" else 1.0
            powers = [torch.exp(logit * scale) for logit in logits]
            attended = sum(p / sum(powers) * v for p, v in zip(powers, there, strict=True))
            row.append((attended * candidate).sum())
        rows.append(torch.stack(row))
    return torch.stack(rows)


def draw(*shape):
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(*shape, generator=generator, dtype=torch.float64).requires_grad_()


def gradients(scores, *inputs):
    weights = torch.linspace(-1, 2, scores.numel(), dtype=scores.dtype).view(scores.shape)
    return torch.autograd.grad((scores * weights).sum(), inputs, retain_graph=True)


@pytest.mark.parametrize("attention", ["basic", "sqrt"])
@pytest.mark.parametrize("num_vectors", [1, 2, 7])
def test_scores_and_gradients_are_the_formulas(attention, num_vectors):
    contexts, candidates = draw(3, num_vectors, 4), draw(5, 4)
    scores = poly_scores(contexts, candidates, attention)
    expected = by_the_formula(contexts, candidates, attention)
    assert scores.shape == (3, 5)
    torch.testing.assert_close(scores, expected)
    ours = gradients(scores, contexts, candidates)
    for own, reference in zip(ours, gradients(expected, contexts, candidates), strict=True):
        torch.testing.assert_close(own, reference)
        assert (own.abs() > 1e-6).all()


@pytest.mark.parametrize("attention", ["basic", "sqrt"])
def test_missing_vectors_count_for_nothing(attention):
    contexts, candidates = draw(3, 4, 6), draw(5, 6)
    masks = torch.tensor([[1, 1, 1, 1], [0, 1, 1, 0], [0, 0, 0, 1]], dtype=torch.float64)
    masked = contexts * masks[:, :, None]
    scores = poly_scores(masked, candidates, attention)
    torch.testing.assert_close(scores, by_the_formula(masked, candidates, attention))
    for row, mask in enumerate(masks.bool()):
        alone = poly_scores(contexts[row : row + 1, mask], candidates, attention)
        torch.testing.assert_close(scores[row : row + 1], alone)
    ours = gradients(scores, contexts, candidates)
    theirs = gradients(by_the_formula(masked, candidates, attention), contexts, candidates)
    for own, reference in zip(ours, theirs, strict=True):
        torch.testing.assert_close(own, reference)
    assert (ours[0][~masks.bool()] == 0).all()
    assert (ours[0][masks.bool()] != 0).all()


def test_one_vector_is_the_inner_product():
    contexts, candidates = draw(3, 1, 6), draw(5, 6)
    assert torch.equal(
        poly_scores(contexts, candidates, "sqrt"),
        torch.einsum("bmd,nd->bmn", contexts, candidates)[:, 0],
    )
    torch.testing.assert_close(
        poly_scores(contexts, candidates), contexts[:, 0] @ candidates.transpose(0, 1)
    )


@pytest.mark.parametrize("attention", ["basic", "sqrt"])
def test_equal_vectors_score_as_one(attention):
    contexts, candidates = draw(2, 1, 6), draw(5, 6)
    torch.testing.assert_close(
        poly_scores(contexts.expand(-1, 4, -1), candidates, attention),
        poly_scores(contexts, candidates, attention),
    )


@pytest.mark.parametrize("num_vectors", [1, 4])
def test_own_candidates_score_as_among_all(num_vectors):
    contexts, candidates = draw(3, num_vectors, 6), draw(3, 5, 6)
    each = poly_scores_each(contexts, candidates, "sqrt")
    for row in range(3):
        expected = poly_scores(contexts[row : row + 1], candidates[row], "sqrt")
        torch.testing.assert_close(each[row : row + 1], expected)


def test_the_order_of_vectors_is_no_matter():
    contexts, candidates = draw(2, 4, 6), draw(5, 6)
    torch.testing.assert_close(
        poly_scores(contexts[:, [2, 0, 3, 1]], candidates), poly_scores(contexts, candidates)
    )


@pytest.mark.parametrize("num_vectors", [2, 16, 64])
def test_scores_lie_between_their_bounds(num_vectors):
    contexts, candidates = draw(3, num_vectors, 6), draw(50, 6)
    best = torch.einsum("bmd,nd->bmn", contexts, candidates).amax(dim=1)
    scores = poly_scores(contexts, candidates)
    gap = lambert((num_vectors - 1) / math.e)
    assert (scores <= best + 1e-12).all()
    assert (scores >= best - gap - 1e-12).all()


def lambert(value):
    """W₀ by Newton's method."""
    guess = math.log1p(value)
    for _ in range(50):
        power = math.exp(guess)
        guess -= (guess * power - value) / (power * (guess + 1))
    return guess


def test_large_logits_do_not_overflow():
    contexts, candidates = 1e4 * draw(2, 3, 6).float(), 1e2 * draw(5, 6).float()
    scores = poly_scores(contexts, candidates)
    assert scores.isfinite().all()
    best = torch.einsum("bmd,nd->bmn", contexts, candidates).amax(dim=1)
    torch.testing.assert_close(scores, best, rtol=1e-3, atol=1.0)


def test_what_is_present_is_not_all_zeros():
    contexts = torch.tensor([[[0.0, 1.0], [0.0, 0.0]], [[-1.0, 0.0], [1.0, -1.0]]])
    assert present(contexts).tolist() == [[True, False], [True, True]]


def test_combine_gives_what_the_softmax_weighs():
    logits = torch.tensor([[[0.0], [math.log(3.0)]]])
    scores = combine(logits, torch.tensor([[True, True]]), 1.0)
    assert scores.item() == pytest.approx(0.75 * math.log(3.0))


@pytest.mark.parametrize(("num_contexts", "num_candidates"), [(0, 3), (2, 0)])
def test_no_contexts_or_no_candidates_are_no_scores(num_contexts, num_candidates):
    contexts, candidates = draw(num_contexts, 2, 4), draw(num_candidates, 4)
    assert poly_scores(contexts, candidates).shape == (num_contexts, num_candidates)
