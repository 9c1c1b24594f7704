"""Every loss against a formula written out, in value and gradient, and against its equal in
sentence-transformers."""

import math

import pytest
import torch
from sentence_transformers.sentence_transformer import losses as peers

from polyrank.models.heads import concatenated
from polyrank.training.objectives.binary import binary_cross_entropy
from polyrank.training.objectives.classification import class_softmax
from polyrank.training.objectives.cosent import cosent
from polyrank.training.objectives.in_batch_softmax import in_batch_softmax
from polyrank.training.objectives.kl import kl_divergence
from polyrank.training.objectives.listwise import listwise_softmax
from polyrank.training.objectives.margin_mse import margin_mse
from polyrank.training.objectives.regression import regression
from polyrank.training.objectives.triplet import triplet

SCALE = 20.0
GRADED = torch.tensor([0.1, 0.9, 0.4, 0.4, 0.7], dtype=torch.float64)


def draw(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed + sum(shape))
    return torch.randn(*shape, generator=generator, dtype=torch.float64).requires_grad_()


def unit(vectors):
    return vectors / vectors.pow(2).sum(dim=-1, keepdim=True).sqrt()


def assert_same(ours, theirs, *inputs):
    """Equal in value and in the gradients of all inputs, none of which is zero."""
    torch.testing.assert_close(ours, theirs)
    gradients = [torch.autograd.grad(loss, inputs, retain_graph=True) for loss in (ours, theirs)]
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other)
        assert one.abs().max() > 1e-6


def peer(kind, *arguments, **options):
    """A loss of sentence-transformers, of embeddings; its model is not used."""
    loss = kind(torch.nn.Identity(), **options)
    return loss.compute_loss_from_embeddings(list(arguments[:-1]), arguments[-1])


class Given(torch.nn.Module):
    """A model of sentence-transformers whose embeddings are given to it."""

    device = "cpu"

    def forward(self, features):
        return {"sentence_embedding": features["vectors"]}


@pytest.mark.parametrize("num_negatives", [0, 1, 2])
def test_in_batch_softmax(num_negatives):
    contexts, responses = draw(4, 6), draw(4, 6, seed=1)
    negatives = [draw(4, 6, seed=seed) for seed in range(2, 2 + num_negatives)]
    columns = torch.cat([responses, *negatives])
    ours = in_batch_softmax(SCALE * unit(contexts) @ unit(columns).T, torch.arange(len(columns)))
    theirs = peer(
        peers.MultipleNegativesRankingLoss, contexts, responses, *negatives, None, scale=SCALE
    )
    assert_same(ours, theirs, contexts, responses, *negatives)


def test_symmetric_softmax():
    contexts, responses = draw(4, 6), draw(4, 6, seed=1)
    scores, texts = SCALE * unit(contexts) @ unit(responses).T, torch.arange(4)
    ours = (in_batch_softmax(scores, texts) + in_batch_softmax(scores.T, texts)) / 2
    theirs = peer(
        peers.MultipleNegativesRankingLoss,
        contexts,
        responses,
        None,
        scale=SCALE,
        directions=("query_to_doc", "doc_to_query"),
        partition_mode="per_direction",
    )
    assert_same(ours, theirs, contexts, responses)


def test_logq_correction_and_equal_contexts():
    scores, texts = draw(3, 5), torch.tensor([0, 1, 2, 3, 1])
    contexts = torch.tensor([7, 8, 7])
    frequencies = torch.tensor([0.5, 0.1, 0.2, 0.1, 0.1], dtype=torch.float64).log()
    ours = in_batch_softmax(scores, texts, contexts=contexts, log_frequencies=frequencies)
    allowed = [[0, 1, 3, 4], [1, 0, 2, 3], [2, 1, 3, 4]]  # the own column first
    theirs = 0
    for row, columns in enumerate(allowed):
        weights = [torch.exp(scores[row, c]) / math.exp(frequencies[c]) for c in columns]
        theirs = theirs - torch.log(weights[0] / sum(weights)) / 3
    assert_same(ours, theirs, scores)


def test_further_responses_of_other_processes_may_follow():
    """The rows of one process, whose columns hold the responses of all."""
    scores, texts = draw(5, 7), torch.tensor([0, 1, 2, 3, 0, 5, 1])
    contexts = torch.tensor([9, 8, 7, 8, 5])
    whole = in_batch_softmax(scores, texts, contexts=contexts)
    parts = 0
    for rows, columns in (([0, 1], [0, 1, 2, 3, 4, 5, 6]), ([2, 3, 4], [2, 3, 4, 0, 1, 5, 6])):
        part = in_batch_softmax(
            scores[rows][:, columns], texts[columns], contexts=contexts[columns[:5]]
        )
        parts = parts + part * len(rows) / 5
    assert_same(parts, whole, scores)


def test_listwise_softmax():
    scores = draw(4, 3)
    theirs = -(scores[:, 0] - scores.exp().sum(dim=1).log()).mean()
    assert_same(listwise_softmax(scores), theirs, scores)


@pytest.mark.parametrize("margin", [1.0, 5.0])
def test_triplet(margin):
    contexts, responses, negatives = draw(5, 4), draw(5, 4, seed=1), draw(5, 1, 4, seed=2)
    there = torch.ones(5, 1, dtype=torch.bool)
    ours = triplet(contexts, responses, negatives, there, margin)
    theirs = peer(
        peers.TripletLoss, contexts, responses, negatives[:, 0], None, triplet_margin=margin
    )
    assert_same(ours, theirs, contexts, responses, negatives)


def test_triplet_with_several_negatives_a_context():
    contexts, responses, negatives = draw(2, 4), draw(2, 4, seed=1), draw(2, 3, 4, seed=2)
    there = torch.tensor([[True, True, False], [True, False, False]])
    ours = triplet(contexts, responses, negatives, there, 5.0)
    terms = []
    for row, column in ((0, 0), (0, 1), (1, 0)):
        near = (contexts[row] - responses[row]).pow(2).sum().sqrt()
        far = (contexts[row] - negatives[row, column]).pow(2).sum().sqrt()
        terms.append(torch.clamp(near - far + 5.0, min=0))
    assert_same(ours, sum(terms) / 3, contexts, responses, negatives)


def test_regression():
    u, v = draw(5, 4), draw(5, 4, seed=1)
    ours = regression((unit(u) * unit(v)).sum(dim=1), GRADED)
    theirs = ((torch.cosine_similarity(u, v) - GRADED) ** 2).mean()
    assert_same(ours, theirs, u, v)
    u, v = u.float(), v.float()  # the peer's labels are always float32
    theirs = peer(peers.CosineSimilarityLoss, u, v, GRADED)
    assert_same(regression((unit(u) * unit(v)).sum(dim=1), GRADED.float()), theirs, u, v)


def test_cosent():
    u, v = draw(5, 4), draw(5, 4, seed=1)
    similarities = (unit(u) * unit(v)).sum(dim=1)
    ours = cosent(similarities, GRADED, SCALE)
    assert_same(ours, peer(peers.CoSENTLoss, u, v, GRADED, scale=SCALE), u, v)
    total = 1 + sum(
        torch.exp(SCALE * (similarities[j] - similarities[i]))
        for i in range(5)
        for j in range(5)
        if GRADED[i] > GRADED[j]
    )
    assert_same(ours, torch.log(total), u, v)


def test_cosent_of_equal_labels_is_zero():
    similarities = draw(3)
    loss = cosent(similarities, torch.ones(3), SCALE)
    assert loss.item() == 0
    assert (torch.autograd.grad(loss, similarities)[0] == 0).all()


@pytest.mark.parametrize(
    ("concatenation", "options"),
    [
        ("u,v,|u-v|", {}),
        ("u,v", {"concatenation_sent_difference": False}),
        ("|u-v|", {"concatenation_sent_rep": False}),
        ("u,v,|u-v|,u*v", {"concatenation_sent_multiplication": True}),
    ],
)
def test_classification(concatenation, options):
    u, v = draw(6, 4), draw(6, 4, seed=1)
    labels = torch.tensor([0, 2, 1, 1, 0, 2])
    features = concatenated(u, v, concatenation)
    weight = draw(3, features.shape[1], seed=2)
    bias = draw(3, seed=3)
    ours = class_softmax(features @ weight.T + bias, labels)
    theirs = peers.SoftmaxLoss(Given(), 4, 3, **options).double()
    classifier = theirs.classifier
    with torch.no_grad():
        classifier.weight.copy_(weight)
        classifier.bias.copy_(bias)
    value = theirs([{"vectors": u}, {"vectors": v}], labels)
    torch.testing.assert_close(ours, value)
    own = torch.autograd.grad(ours, (u, v, weight, bias))
    other = torch.autograd.grad(value, (u, v, classifier.weight, classifier.bias))
    for one, two in zip(own, other, strict=True):
        torch.testing.assert_close(one, two)
        assert one.abs().max() > 1e-6


def test_every_concatenation():
    u, v = torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0, -1.0]])
    assert concatenated(u, v, "|u-v|").tolist() == [[2, 3]]
    assert concatenated(u, v, "|u-v|,u*v").tolist() == [[2, 3, 3, -2]]
    assert concatenated(u, v, "u,v,u*v").tolist() == [[1, 2, 3, -1, 3, -2]]
    assert concatenated(u, v, "u*v").tolist() == [[3, -2]]


@pytest.mark.parametrize("labels", [[1, 0, 0, 1, 0], [0.2, 0.9, 0.5, 0.0, 1.0]])
def test_binary_cross_entropy(labels):
    logits, labels = draw(5), torch.tensor(labels, dtype=torch.float64)
    chance = 1 / (1 + torch.exp(-logits))
    theirs = -(labels * chance.log() + (1 - labels) * (1 - chance).log()).mean()
    assert_same(binary_cross_entropy(logits, labels), theirs, logits)


@pytest.mark.parametrize("num_negatives", [1, 3])
def test_margin_mse(num_negatives):
    contexts, responses = draw(4, 5), draw(4, 5, seed=1)
    negatives = [draw(4, 5, seed=seed) for seed in range(2, 2 + num_negatives)]
    teacher = draw(4, 1 + num_negatives, seed=9).detach()
    scores = torch.stack([(contexts * one).sum(dim=1) for one in (responses, *negatives)], dim=1)
    ours = margin_mse(scores, teacher, torch.ones_like(teacher, dtype=torch.bool))
    margins = (teacher[:, :1] - teacher[:, 1:]).squeeze(1) if num_negatives == 1 else teacher
    theirs = peer(peers.MarginMSELoss, contexts, responses, *negatives, margins)
    assert_same(ours, theirs, contexts, responses, *negatives)


@pytest.mark.parametrize("temperature", [1.0, 3.0])
def test_kl_divergence(temperature):
    contexts, candidates = draw(4, 5), [draw(4, 5, seed=seed) for seed in range(3)]
    teacher = draw(4, 3, seed=9).detach()
    scores = torch.stack([(contexts * one).sum(dim=1) for one in candidates], dim=1)
    there = torch.ones_like(teacher, dtype=torch.bool)
    ours = kl_divergence(scores, teacher, there, temperature)
    theirs = peer(peers.DistillKLDivLoss, contexts, *candidates, teacher, temperature=temperature)
    assert_same(ours, theirs, contexts, *candidates)


def test_candidates_that_are_not_there_do_not_count():
    scores, teacher = draw(2, 3), draw(2, 3, seed=1).detach()
    there = torch.tensor([[True, True, True], [True, True, False]])
    chances = [row[:n].softmax(dim=0) for row, n in zip(teacher, (3, 2), strict=True)]
    got = [row[:n].log_softmax(dim=0) for row, n in zip(scores, (3, 2), strict=True)]
    expected = sum((p * (p.log() - q)).sum() for p, q in zip(chances, got, strict=True)) / 2
    assert_same(kl_divergence(scores, teacher, there), expected, scores)
    margins = [(0, 1), (0, 2), (1, 1)]
    squares = [
        (scores[b, 0] - scores[b, c] - teacher[b, 0] + teacher[b, c]) ** 2 for b, c in margins
    ]
    assert_same(margin_mse(scores, teacher, there), sum(squares) / 3, scores)


def test_the_teachers_own_scores_have_no_divergence():
    teacher = 50 * draw(3, 4).detach()
    scores = teacher.clone().requires_grad_()
    loss = kl_divergence(scores, teacher, torch.ones(3, 4, dtype=torch.bool))
    torch.testing.assert_close(loss, torch.zeros_like(loss))
    (gradient,) = torch.autograd.grad(loss, scores)
    torch.testing.assert_close(gradient, torch.zeros_like(gradient))
