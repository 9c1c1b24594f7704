import math

import pytest
import torch

from polyrank.scoring.poly import poly_scores, poly_scores_each
from polyrank.training.objectives.in_batch_softmax import in_batch_softmax
from polyrank.training.objectives.listwise import listwise_softmax


def draw(*shape):
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(*shape, generator=generator, dtype=torch.float64).requires_grad_()


def by_the_formula(scores, identities):
    """The mean of −log(exp s_ii / Σ_j exp s_ij), j over the own column and other texts."""
    losses = []
    for row in range(len(scores)):
        columns = [
            column
            for column in range(len(identities))
            if column == row or identities[column] != identities[row]
        ]
        total = sum(torch.exp(scores[row, column]) for column in columns)
        losses.append(-torch.log(torch.exp(scores[row, row]) / total))
    return sum(losses) / len(losses)


@pytest.mark.parametrize(
    "identities",
    [
        [0, 1, 2, 3],  # no duplicates
        [0, 1, 0, 3],  # two contexts of one response
        [0, 1, 2, 3, 4, 5],  # further negatives
        [0, 1, 2, 3, 1, 4, 4],  # a response among the negatives, an equal pair of these
        [0, 0, 0, 1, 0, 2],
    ],
)
def test_in_batch_softmax_is_its_formula(identities):
    scores, identities = draw(4, len(identities)), torch.tensor(identities)
    loss, expected = in_batch_softmax(scores, identities), by_the_formula(scores, identities)
    torch.testing.assert_close(loss, expected)
    [ours], [theirs] = (torch.autograd.grad(value, scores) for value in (loss, expected))
    torch.testing.assert_close(ours, theirs)
    masked = (identities[:4, None] == identities[None, :]) & ~torch.eye(
        4, len(identities), dtype=torch.bool
    )
    assert (ours[masked] == 0).all()
    assert (ours[~masked].abs() > 1e-6).all()


def test_without_duplicates_it_is_plain_cross_entropy():
    scores = draw(5, 5)
    expected = torch.nn.functional.cross_entropy(scores, torch.arange(5))
    torch.testing.assert_close(in_batch_softmax(scores, torch.arange(5)), expected)


def test_a_duplicate_changes_the_loss():
    scores = draw(3, 3)
    plain = in_batch_softmax(scores, torch.tensor([0, 1, 2]))
    assert in_batch_softmax(scores, torch.tensor([0, 1, 0])) < plain


@pytest.mark.parametrize("identities", [[0], [0, 0, 0], [0, 0, 0, 0]])
def test_with_no_negatives_there_is_no_loss_and_no_gradient(identities):
    scores = draw(min(len(identities), 3), len(identities))
    loss = in_batch_softmax(scores, torch.tensor(identities))
    assert loss.item() == 0
    (gradient,) = torch.autograd.grad(loss, scores)
    assert (gradient == 0).all()


def test_equal_scores_lose_by_chance():
    assert in_batch_softmax(torch.zeros(4, 4), torch.arange(4)).item() == pytest.approx(math.log(4))
    assert listwise_softmax(torch.zeros(2, 8)).item() == pytest.approx(math.log(8))


def test_listwise_softmax_is_its_formula():
    scores = draw(3, 5)
    loss = listwise_softmax(scores)
    expected = sum(torch.logsumexp(row, dim=0) - row[0] for row in scores) / 3
    torch.testing.assert_close(loss, expected)
    [ours], [theirs] = (torch.autograd.grad(value, scores) for value in (loss, expected))
    torch.testing.assert_close(ours, theirs)
    assert (ours.abs() > 1e-6).all()


def test_both_losses_are_equal_on_one_context():
    scores = draw(1, 6)
    torch.testing.assert_close(in_batch_softmax(scores, torch.arange(6)), listwise_softmax(scores))


def test_both_losses_are_equal_where_each_context_has_all_candidates():
    contexts, candidates = draw(3, 2, 4), draw(3, 4)
    in_batch = in_batch_softmax(poly_scores(contexts, candidates), torch.arange(3))
    own = torch.stack([candidates[[row, *(c for c in range(3) if c != row)]] for row in range(3)])
    listwise = listwise_softmax(poly_scores_each(contexts, own))
    torch.testing.assert_close(in_batch, listwise)
    ours, theirs = (
        torch.autograd.grad(value, (contexts, candidates)) for value in (in_batch, listwise)
    )
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other)
        assert (one.abs() > 1e-6).any()


def test_the_order_of_the_batch_is_no_matter():
    scores, identities = draw(4, 6), torch.tensor([0, 1, 0, 3, 1, 5])
    order = [2, 0, 3, 1]
    columns = [*order, 5, 4]
    torch.testing.assert_close(
        in_batch_softmax(scores[order][:, columns], identities[columns]),
        in_batch_softmax(scores, identities),
    )
