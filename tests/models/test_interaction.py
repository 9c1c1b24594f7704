"""Pairs read through a gate and compared token by token."""

import itertools

import pytest
import torch
from torch.nn import functional

from polyrank.errors import UsageError
from polyrank.models.cross_encoder import CrossEncoder
from polyrank.models.interaction import InteractionHead, Sides, apart
from polyrank.tokens.batching import batches, mask_of
from tiny_encoders import TEXTS, load_variant

CONTEXTS = ["how do i read a file", "", ["hello", "no sound", "old kernel"], "yes"]
CLOSED = -1e4


def alone(model, sequences):
    """The outputs of each sequence read by itself."""
    return [model.tower(batches([ids], model.texts.pad_id)[0])[0] for ids in sequences]


def by_hand(head, left, right):
    """The score of one pair from its token outputs (T, h) and (U, h), written out."""
    means = [functional.normalize(side.mean(dim=0), dim=0) for side in (left, right)]
    total = head.weights[0].exp() * (means[0] @ means[1])
    for which, (own, other) in ((1, (right, left)), (2, (left, right))):
        vector = head.importance[1 if which == 1 else 0]
        shares = torch.exp(own @ vector)
        best = [max(functional.cosine_similarity(x, y, dim=0) for y in other) for x in own]
        total = total + head.weights[which].exp() * sum(
            share * value for share, value in zip(shares / shares.sum(), best, strict=True)
        )
    return total


@pytest.mark.parametrize("family", ["bert", "electra", "roberta"])
def test_with_the_gate_closed_texts_are_read_apart(family, encoder_folder):
    model = load_variant("cross-interaction", encoder_folder(family))
    model.head.gate.data.fill_(CLOSED)
    contexts = model.texts.contexts(CONTEXTS, 20)
    candidates = model.texts.candidates(TEXTS[: len(CONTEXTS)], 20)
    ids, sides = model.encode_pairs(CONTEXTS, TEXTS[: len(CONTEXTS)])
    (batch,) = batches(ids, model.texts.pad_id, segments=sides)
    with torch.no_grad():
        outputs = model.tower(apart(batch, model.head.gate, torch.float32))
        expected = zip(alone(model, contexts), alone(model, candidates), strict=True)
        for row, pair in zip(torch.argsort(batch["rows"]), expected, strict=True):
            together = torch.cat(pair)
            torch.testing.assert_close(
                outputs[row, : len(together)], together, atol=2e-5, rtol=1e-4
            )


@pytest.mark.parametrize("family", ["bert", "electra", "roberta"])
def test_with_the_gate_open_each_text_changes_the_other(family, encoder_folder):
    model = load_variant("cross-interaction", encoder_folder(family))
    model.head.gate.data.zero_()
    ids, sides = model.encode_pairs(["hello", "hello"], ["no sound", "old kernel"])
    (batch,) = batches(ids, model.texts.pad_id, segments=sides)
    with torch.no_grad():
        outputs = model.tower(apart(batch, model.head.gate, torch.float32))
    length = len(model.texts.contexts(["hello"], 20)[0])
    assert (outputs[0, :length] - outputs[1, :length]).abs().max() > 1e-3


def test_scores_and_gradients_are_those_written_out():
    torch.manual_seed(0)
    head = InteractionHead(6, -2.0).double()
    head.importance.data.normal_()
    lengths = [(3, 4), (5, 2), (1, 1)]
    texts = [
        (torch.randn(t, 6, dtype=torch.float64), torch.randn(u, 6, dtype=torch.float64))
        for t, u in lengths
    ]
    width = max(t + u for t, u in lengths)
    outputs = torch.zeros(3, width, 6, dtype=torch.float64)
    context, candidate = torch.zeros(2, 3, width, dtype=torch.bool)
    for row, (left, right) in enumerate(texts):
        outputs[row, : len(left) + len(right)] = torch.cat([left, right])
        context[row, : len(left)] = True
        candidate[row, len(left) : len(left) + len(right)] = True
    outputs.requires_grad_()
    pairs = head(outputs, Sides(context, candidate))[:, 0]
    expected = torch.stack([by_hand(head, *pair) for pair in texts])
    torch.testing.assert_close(pairs, expected)
    parameters = [head.weights, head.importance]
    got = torch.autograd.grad(pairs.pow(2).sum(), parameters)
    wanted = torch.autograd.grad(expected.pow(2).sum(), parameters)
    for one, other in zip(got, wanted, strict=True):
        torch.testing.assert_close(one, other)
        assert one.abs().max() > 1e-3


def test_every_context_with_every_candidate_as_pair_by_pair():
    torch.manual_seed(1)
    head = InteractionHead(6, -2.0).double()
    head.importance.data.normal_()
    lefts = [torch.randn(length, 6, dtype=torch.float64) for length in range(1, 20)]
    rights = [torch.randn(length, 6, dtype=torch.float64) for length in (4, 1, 9)]
    padded = [torch.nn.utils.rnn.pad_sequence(side, batch_first=True) for side in (lefts, rights)]
    for tensor in padded:
        tensor.requires_grad_()
    scores = head.every(*padded)
    expected = torch.stack(
        [
            by_hand(head, left[: len(one)], right[: len(other)])
            for (one, left), (other, right) in itertools.product(
                zip(lefts, padded[0], strict=True), zip(rights, padded[1], strict=True)
            )
        ]
    ).view(len(lefts), len(rights))
    torch.testing.assert_close(scores, expected)
    inputs = [*padded, head.weights, head.importance]
    got = torch.autograd.grad(scores.pow(2).sum(), inputs)
    wanted = torch.autograd.grad(expected.pow(2).sum(), inputs)
    for one, other in zip(got, wanted, strict=True):
        torch.testing.assert_close(one, other)
        assert one.abs().max() > 1e-4


def test_more_cosines_than_are_kept_give_the_same_gradients(monkeypatch):
    torch.manual_seed(2)
    head = InteractionHead(6, -2.0)
    texts = torch.randn(40, 5, 6, requires_grad=True)
    kept = torch.autograd.grad(head.every(texts, texts[:7]).pow(2).sum(), texts)
    monkeypatch.setattr("polyrank.models.interaction.KEPT_COSINES", 1)
    again = torch.autograd.grad(head.every(texts, texts[:7]).pow(2).sum(), texts)
    torch.testing.assert_close(kept, again)


def test_read_apart_it_scores_as_through_a_closed_gate(bert):
    model = load_variant("cross-interaction", bert)
    model.head.gate.data.fill_(CLOSED)
    config = model.config
    contexts = model.texts.contexts(CONTEXTS, config.max_context_length)
    candidates = model.texts.candidates(TEXTS, config.max_candidate_length)
    padded = [
        torch.nn.utils.rnn.pad_sequence(alone(model, side), batch_first=True)
        for side in (contexts, candidates)
    ]
    with torch.no_grad():
        expected = model.head.every(*padded)
    pairs = [(context, text) for context in CONTEXTS for text in TEXTS]
    scores = model.score_pairs(pairs).view(len(CONTEXTS), len(TEXTS))
    torch.testing.assert_close(scores, expected, atol=1e-4, rtol=1e-4)


def test_the_gate_is_trained_where_pairs_are_read(bert):
    model = load_variant("cross-interaction", bert).train()
    ids, sides = model.encode_pairs(CONTEXTS, TEXTS[: len(CONTEXTS)])
    model(batches(ids, model.texts.pad_id, segments=sides)).pow(2).sum().backward()
    assert model.head.gate.grad.abs() > 1e-6


def test_a_pair_may_be_as_long_as_both_texts(bert):
    model = CrossEncoder.from_pretrained(bert, head="interaction", dtype="float32")
    assert model.config.max_context_length == model.config.max_candidate_length == 64
    ids, sides = model.encode_pairs(["word " * 200], ["other " * 200])
    assert len(ids[0]) == 128
    (batch,) = batches(ids, model.texts.pad_id, segments=sides)
    assert apart(batch, model.head.gate, torch.float32)["position_ids"].max() == 63
    assert mask_of(batch).all()
    assert model.score_pairs([("word " * 200, "other " * 200)]).isfinite().all()


@pytest.mark.parametrize("family", ["distilbert", "modernbert"])
def test_encoders_that_take_no_positions_are_refused(family, encoder_folder):
    with pytest.raises(UsageError, match="head = interaction needs an encoder of the kind bert"):
        CrossEncoder.from_pretrained(encoder_folder(family), head="interaction")


def test_classes_are_refused(bert):
    with pytest.raises(UsageError, match="task must be rank with head = interaction"):
        CrossEncoder.from_pretrained(bert, head="interaction", task="classify")
