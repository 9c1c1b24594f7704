"""Pairs read through a gate and compared token by token."""

import itertools

import pytest
import torch
from torch.nn import functional

from polyrank.errors import UsageError
from polyrank.models.cross_encoder import CrossEncoder
from polyrank.models.interaction import InteractionHead, Sides, apart, read_side_by_side
from polyrank.tokens.batching import batches, mask_of
from tiny_encoders import TEXTS, load_variant

CONTEXTS = ["how do i read a file", "", ["hello", "no sound", "old kernel"], "yes"]
CLOSED = -1e4


def alone(tower, model, sequences):
    """The outputs of each sequence read by itself."""
    return [tower(batches([ids], model.tokenizer.pad_id)[0])[0] for ids in sequences]


def joint(model, batch):
    """The outputs of pairs read together."""
    second = model.candidate_tower or model.tower
    return read_side_by_side(model.tower, second, batch, model.head.gate)


def by_hand(head, left, right):
    """The score of one pair from its token outputs (T, h) and (U, h), written out."""
    means = [functional.normalize(side.mean(dim=0), dim=0) for side in (left, right)]
    whole = means[0] @ means[1]
    if head.codes is not None:
        cosines = []
        for code, recency in zip(head.codes, head.recency, strict=True):
            later = torch.arange(len(left) - 1, -1, -1)
            shares = 0.33 * (left @ code - recency * later).softmax(dim=0) + 0.67 / len(left)
            cosines.append(functional.normalize(shares @ left, dim=0) @ means[1])
        cosines = torch.stack(cosines)
        whole = (cosines / 0.05).softmax(dim=0) @ cosines
    total = head.weights[0].exp() * whole
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
    contexts = model.tokenizer.contexts(CONTEXTS, 20)
    candidates = model.tokenizer.candidates(TEXTS[: len(CONTEXTS)], 20)
    ids, sides = model.encode_pairs(CONTEXTS, TEXTS[: len(CONTEXTS)])
    (batch,) = batches(ids, model.tokenizer.pad_id, segments=sides)
    with torch.no_grad():
        outputs = joint(model, batch)
        read = alone(model.tower, model, contexts), alone(model.candidate_tower, model, candidates)
        expected = zip(*read, strict=True)
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
    (batch,) = batches(ids, model.tokenizer.pad_id, segments=sides)
    with torch.no_grad():
        outputs = joint(model, batch)
    length = len(model.tokenizer.contexts(["hello"], 20)[0])
    assert (outputs[0, :length] - outputs[1, :length]).abs().max() > 1e-3


def layer_by_layer(towers, sides, gate):
    """The outputs of a pair, each side's tokens through its own BERT, from the formulas alone."""
    states = [
        tower.encoder.embeddings(input_ids=ids) for tower, ids in zip(towers, sides, strict=True)
    ]
    lengths = [len(ids[0]) for ids in sides]
    heads = towers[0].encoder.config.num_attention_heads
    blocks = [
        [torch.full((one, other), gate if one_side != other_side else 0.0)
         for other_side, other in enumerate(lengths)]
        for one_side, one in enumerate(lengths)
    ]  # fmt: skip
    bias = torch.cat([torch.cat(row, dim=1) for row in blocks])
    for number in range(towers[0].encoder.config.num_hidden_layers):
        layers = [tower.encoder.encoder.layer[number] for tower in towers]

        def across(name, layers=layers, states=states):
            parts = [
                getattr(layer.attention.self, name)(state)
                for layer, state in zip(layers, states, strict=True)
            ]
            return torch.cat(parts, dim=1)[0].unflatten(-1, (heads, -1)).transpose(0, 1)

        query, key, value = across("query"), across("key"), across("value")
        logits = query @ key.mT / query.shape[-1] ** 0.5 + bias
        mixed = (logits.softmax(-1) @ value).transpose(0, 1).flatten(1)[None]
        attended = mixed.split(lengths, dim=1)
        middle = [
            layer.attention.output(part, state)
            for layer, part, state in zip(layers, attended, states, strict=True)
        ]
        states = [
            layer.output(layer.intermediate(state), state)
            for layer, state in zip(layers, middle, strict=True)
        ]
    return torch.cat(states, dim=1)[0]


def test_each_side_is_read_by_its_own_tower_and_both_attend_to_each_other(bert):
    model = load_variant("cross-interaction", bert)
    model.head.gate.data.fill_(-0.5)
    towers = model.tower, model.candidate_tower
    for tower in towers:
        tower.encoder.set_attn_implementation("eager")
    ids, marks = model.encode_pairs(["how do i read a file", "yes"], ["no sound", "old kernel"])
    (batch,) = batches(ids, model.tokenizer.pad_id, segments=marks)
    outputs = joint(model, batch)
    for row, number in enumerate(batch["rows"].tolist()):
        pair = torch.tensor(ids[number])
        second = torch.tensor(marks[number], dtype=torch.bool)
        sides = [pair[~second][None], pair[second][None]]
        expected = layer_by_layer(towers, sides, -0.5)
        torch.testing.assert_close(outputs[row, : len(pair)], expected, atol=2e-5, rtol=1e-4)
        parameters = [
            tower.encoder.encoder.layer[0].attention.self.query.weight for tower in towers
        ]
        got = torch.autograd.grad(
            outputs[row, : len(pair)].pow(3).sum(), parameters, retain_graph=True
        )
        wanted = torch.autograd.grad(expected.pow(3).sum(), parameters)
        for one, other in zip(got, wanted, strict=True):
            torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-3)
            assert one.abs().max() > 1e-4


def test_one_tower_for_both_sides(bert, tmp_path):
    model = load_variant("cross-interaction", bert, shared_towers=True)
    assert model.candidate_tower is None
    model.save_pretrained(tmp_path / "one")
    pairs = [("hello", "no sound"), ("yes", "old kernel")]
    again = CrossEncoder.from_pretrained(tmp_path / "one", device="cpu", dtype="float32")
    assert torch.equal(again.score_pairs(pairs), model.score_pairs(pairs))
    two = CrossEncoder.from_pretrained(
        tmp_path / "one", shared_towers=False, device="cpu", dtype="float32"
    )
    assert two.candidate_tower is not None
    torch.testing.assert_close(two.score_pairs(pairs), model.score_pairs(pairs))
    with pytest.raises(UsageError, match="shared_towers must be true with head = linear"):
        CrossEncoder.from_pretrained(bert, head="linear", shared_towers=False)


def test_two_towers_that_are_alike_read_as_one(bert):
    torch.manual_seed(0)
    two = CrossEncoder.from_pretrained(
        bert, head="interaction", reading="pairs", gate=-1.0, device="cpu", dtype="float32"
    )
    torch.manual_seed(0)
    one = CrossEncoder.from_pretrained(
        bert,
        head="interaction",
        reading="pairs",
        gate=-1.0,
        shared_towers=True,
        device="cpu",
        dtype="float32",
    )
    pairs = [(context, text) for context in CONTEXTS for text in TEXTS[:5]]
    torch.testing.assert_close(two.score_pairs(pairs), one.score_pairs(pairs))


@pytest.mark.parametrize("num_codes", [0, 3])
def test_scores_and_gradients_are_those_written_out(num_codes):
    torch.manual_seed(0)
    head = InteractionHead(6, -2.0, num_codes=num_codes).double()
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
    parameters += [head.codes, head.recency] if num_codes else []
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
    scores = head.score_all(*padded)
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
    kept = torch.autograd.grad(head.score_all(texts, texts[:7]).pow(2).sum(), texts)
    monkeypatch.setattr("polyrank.models.interaction.KEPT_COSINES", 1)
    again = torch.autograd.grad(head.score_all(texts, texts[:7]).pow(2).sum(), texts)
    torch.testing.assert_close(kept, again)


def test_read_apart_it_scores_as_through_a_closed_gate(bert):
    model = load_variant("cross-interaction", bert)
    model.head.gate.data.fill_(CLOSED)
    config = model.config
    contexts = model.tokenizer.contexts(CONTEXTS, config.max_context_length)
    candidates = model.tokenizer.candidates(TEXTS, config.max_candidate_length)
    padded = [
        torch.nn.utils.rnn.pad_sequence(alone(tower, model, side), batch_first=True)
        for tower, side in ((model.tower, contexts), (model.candidate_tower, candidates))
    ]
    with torch.no_grad():
        expected = model.head.score_all(*padded)
    pairs = [(context, text) for context in CONTEXTS for text in TEXTS]
    scores = model.score_pairs(pairs).view(len(CONTEXTS), len(TEXTS))
    torch.testing.assert_close(scores, expected, atol=1e-4, rtol=1e-4)


def test_the_gate_is_trained_where_pairs_are_read(bert):
    model = load_variant("cross-interaction", bert).train()
    ids, sides = model.encode_pairs(CONTEXTS, TEXTS[: len(CONTEXTS)])
    model(batches(ids, model.tokenizer.pad_id, segments=sides)).pow(2).sum().backward()
    assert model.head.gate.grad.abs() > 1e-6


def test_a_pair_may_be_as_long_as_both_texts(bert):
    model = CrossEncoder.from_pretrained(bert, head="interaction", reading="pairs", dtype="float32")
    assert model.config.max_context_length == model.config.max_candidate_length == 64
    ids, sides = model.encode_pairs(["word " * 200], ["other " * 200])
    assert len(ids[0]) == 128
    (batch,) = batches(ids, model.tokenizer.pad_id, segments=sides)
    assert apart(batch, model.head.gate)[0].max() == 63
    assert mask_of(batch).all()
    assert model.score_pairs([("word " * 200, "other " * 200)]).isfinite().all()


@pytest.mark.parametrize("family", ["distilbert", "modernbert"])
def test_encoders_that_take_no_positions_are_refused(family, encoder_folder):
    with pytest.raises(UsageError, match="head = interaction needs an encoder of the kind bert"):
        CrossEncoder.from_pretrained(encoder_folder(family), head="interaction", reading="pairs")


def test_classes_are_refused(bert):
    with pytest.raises(UsageError, match="task must be rank with head = interaction"):
        CrossEncoder.from_pretrained(bert, head="interaction", task="classify")
