"""A cross-encoder that reads a context once for all its candidates."""

import random

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from polyrank.errors import UsageError
from polyrank.models.adapters.layers import adapter_parameters, attach, merge
from polyrank.models.cross_encoder import CrossEncoder
from polyrank.models.layers import layers_of
from polyrank.models.once import (
    LIKE,
    Rows,
    SoftmaxAndSum,
    lay_out,
    read_candidates,
    read_contexts,
    read_together,
)
from tiny_encoders import LONG, TEXTS, WORDS, build_encoder_folder, load_variant

FAMILIES = ("bert", "electra", "roberta", "modernbert")
WINDOW = 6
"""The local attention of the tiny ModernBERT: three tokens to each side."""
CONTEXTS = ["how do i read a file", "", ["hello", "no sound", "old kernel"], "yes", LONG]
CLOSED = -1e4


@pytest.fixture(scope="module")
def folder_of(encoder_folder, tmp_path_factory):
    """The tiny encoder of a family; that of ModernBERT looks near in its second layer."""
    near = {"local_attention": WINDOW, "layer_types": ["full_attention", "sliding_attention"]}
    modern = build_encoder_folder("modernbert", tmp_path_factory.mktemp("near") / "modern", **near)
    return lambda family: modern if family == "modernbert" else encoder_folder(family)


@pytest.fixture(scope="module")
def models(folder_of):
    """Models that read once, by family and head, their gates drawn about 0."""
    made = {}

    def model(family, head="linear", **settings):
        key = family, head, *sorted(settings.items())
        if key not in made:
            variant = "cross" if head == "linear" else "cross-interaction"
            made[key] = load_variant(variant, folder_of(family), reading="once", **settings)
        return made[key]

    return model


def batch_of(model, context, candidates):
    """One context with its candidates as a batch."""
    grouped = model.grouped([context] * len(candidates), candidates, 10**6)
    (group,) = grouped.groups
    return grouped.batch(group, group.blocks[0])


def states_of(model, context, candidates):
    """The outputs of a context's tokens, and of those of its candidates, in float64."""
    tower = model.tower.double()
    batch = batch_of(model, context, candidates)
    laid = lay_out(batch, continued=True)
    segment = int(model.has_segments)
    if model.config.context_sees_candidates:
        return batch, read_together(tower, tower, batch, laid, None, segment)
    kept = read_contexts(tower, batch, laid)
    return batch, (kept.outputs, read_candidates(tower, batch, laid, kept, None, segment))


def by_transformers(model, batch, *, sees):
    """The outputs of one context and its one candidate by the encoder's own forward."""
    encoder = model.tower.encoder
    encoder.set_attn_implementation("eager")
    first, second = batch["context_ids"], batch["candidate_ids"]
    ids = torch.cat([first, second])
    count = len(ids)
    visible = torch.ones(count, count, dtype=torch.bool)
    if not sees:
        visible[: len(first), len(first) :] = False
    places = torch.arange(count)
    near = visible & ((places[:, None] - places[None, :]).abs() <= WINDOW // 2)
    masks = [
        torch.zeros(each.shape, dtype=torch.float64).masked_fill(~each, -1e30)[None, None]
        for each in (visible, near)
    ]
    inputs = {"input_ids": ids[None], "attention_mask": masks[0]}
    if encoder.config.model_type == "modernbert":
        named = ("full_attention", "sliding_attention")
        inputs["attention_mask"] = dict(zip(named, masks, strict=True))
    elif model.has_segments:
        inputs["token_type_ids"] = (places >= len(first)).long()[None]
    outputs = encoder(**inputs).last_hidden_state[0]
    return outputs[: len(first)], outputs[len(first) :]


@pytest.mark.parametrize("sees", [False, True])
@pytest.mark.parametrize("family", FAMILIES)
def test_equal_to_the_encoder_s_own_forward_in_value_and_gradient(family, sees, folder_of):
    model = load_variant("cross", folder_of(family), reading="once", context_sees_candidates=sees)
    pairs = [("how do i read a file", "install the new package and boot"), ("", "yes"), (LONG, "")]
    near = 1e-6 if family == "modernbert" else 1e-9  # its own forward rounds to float32
    for context, candidate in pairs:
        batch, ours = states_of(model, context, [candidate])
        theirs = by_transformers(model, batch, sees=sees)
        parameters = [p for p in model.tower.parameters() if p.requires_grad]
        gradients = []
        for one, other in zip(ours, theirs, strict=True):
            torch.testing.assert_close(one, other, rtol=near, atol=near)
        for outputs in (ours, theirs):
            total = sum((part * part.cos()).sum() for part in outputs)
            gradients.append(torch.autograd.grad(total, parameters, allow_unused=True))
        assert sum(each is not None and bool(each.any()) for each in gradients[0]) > 10
        for one, other in zip(*gradients, strict=True):
            if other is not None:
                torch.testing.assert_close(one, other, rtol=100 * near, atol=100 * near)


def test_texts_longer_than_the_window_of_modernbert_were_read(folder_of):
    model = load_variant("cross", folder_of("modernbert"), reading="once")
    layers = layers_of(model.tower)
    assert [layers.reach(layer) for layer in layers.layers] == [None, WINDOW // 2]
    batch = batch_of(model, LONG, ["install the new package and boot"])
    assert min(len(batch["context_ids"]), len(batch["candidate_ids"])) > WINDOW


texts = st.sampled_from([*TEXTS, *WORDS, LONG])


@pytest.mark.parametrize("head", ["linear", "interaction"])
@pytest.mark.parametrize("family", FAMILIES)
@settings(
    max_examples=4, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_a_score_does_not_depend_on_the_other_candidates(family, head, models, data):
    model = models(family, head)
    contexts = data.draw(st.lists(st.sampled_from(range(len(CONTEXTS))), min_size=1, max_size=10))
    pairs = [(CONTEXTS[place], data.draw(texts)) for place in contexts]
    model.batch_tokens = data.draw(st.sampled_from([16, 100, 4096]))
    together = model.score_pairs(pairs)
    size = data.draw(st.sampled_from([1, 3, 100]))
    torch.testing.assert_close(
        model.score_pairs(pairs, batch_size=size), together, rtol=1e-4, atol=1e-4
    )
    order = data.draw(st.permutations(range(len(pairs))))
    shuffled = model.score_pairs([pairs[place] for place in order])
    torch.testing.assert_close(shuffled, together[list(order)], rtol=1e-4, atol=1e-4)
    chosen = data.draw(st.sampled_from(range(len(pairs))))
    alone = model.score_pairs([pairs[chosen]])
    torch.testing.assert_close(alone[0], together[chosen], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("head", ["linear", "interaction"])
def test_a_context_that_sees_its_candidates_changes_their_scores(head, models):
    model = models("bert", head, context_sees_candidates=True)
    both = model.score("how do i read a file", ["yes", "print the last line"])
    alone = model.score("how do i read a file", ["yes"])
    assert (both[0] - alone[0]).abs() > 1e-4
    model.batch_tokens = 8
    cut = model.score("how do i read a file", ["yes", "print the last line"])
    torch.testing.assert_close(cut, both, rtol=1e-4, atol=1e-4)
    sized = model.score("how do i read a file", ["yes", "print the last line"], batch_size=1)
    torch.testing.assert_close(sized, both, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("head", ["linear", "interaction"])
def test_few_many_equal_and_empty_texts(head, models):
    model = models("bert", head)
    model.batch_tokens = 500
    draw = random.Random(0)
    many = [" ".join(draw.choices(WORDS, k=draw.randrange(1, 9))) for _ in range(300)]
    scores = model.score("how do i read a file", many)
    assert scores.shape == (300,)
    assert len(model.grouped(["a"] * 300, many, 500).groups[0].blocks) > 2
    few = model.score("how do i read a file", many[:7])
    torch.testing.assert_close(scores[:7], few, rtol=1e-4, atol=1e-4)
    twice = model.score("hello", ["yes", "no", "yes", ""])
    torch.testing.assert_close(twice[0], twice[2])
    assert twice.isfinite().all()
    assert model.score(["", "a"], "").shape == (2,)
    assert model.score_pairs([]).shape == (0,)
    hits = model.rank("hello", ["yes", "no", "yes"])
    assert [hit.text for hit in hits].count("yes") == 2


@pytest.mark.parametrize("family", ["bert", "electra", "roberta"])
def test_with_closed_gates_it_scores_as_pairs_read_through_a_closed_gate(family, folder_of):
    once = load_variant("cross-interaction", folder_of(family), reading="once")
    pairs = load_variant("cross-interaction", folder_of(family))
    assert once.head.gate.shape == (2, 2)
    weights = {k: v for k, v in once.state_dict().items() if k != "head.gate"}
    pairs.load_state_dict(weights, strict=False)
    for model in (once, pairs):
        model.head.gate.data.fill_(CLOSED)
    expected = pairs.score(CONTEXTS, TEXTS)
    torch.testing.assert_close(once.score(CONTEXTS, TEXTS), expected, rtol=1e-4, atol=1e-4)
    once.head.gate.data.fill_(0.0)
    assert (once.score(CONTEXTS, TEXTS) - expected).abs().max() > 1e-3


def test_one_gate_for_all_layers_and_heads_is_that_of_pairs_where_the_context_sees(bert):
    """One candidate, and a context that sees it: both readings are the same attention."""
    once = load_variant("cross-interaction", bert, reading="once", context_sees_candidates=True)
    pairs = load_variant("cross-interaction", bert)
    weights = {k: v for k, v in once.state_dict().items() if k != "head.gate"}
    pairs.load_state_dict(weights, strict=False)
    for model in (once, pairs):
        model.head.gate.data.fill_(-0.5)
    for context, text in (("how do i read a file", "the kernel"), (["hello", "no"], LONG)):
        torch.testing.assert_close(
            once.score(context, [text]), pairs.score(context, [text]), rtol=1e-4, atol=1e-4
        )


def test_softmax_and_sum():
    torch.manual_seed(0)
    logits = torch.randn(2, 3, 5, dtype=torch.float64, requires_grad=True)
    shares, sums = SoftmaxAndSum.apply(logits, torch.float64)
    torch.testing.assert_close(shares, logits.softmax(dim=-1))
    torch.testing.assert_close(sums, logits.logsumexp(dim=-1, keepdim=True))
    assert torch.autograd.gradcheck(lambda x: SoftmaxAndSum.apply(x, torch.float64), logits)


@pytest.mark.parametrize("shared", [False, True])
def test_saved_and_loaded(shared, bert, tmp_path):
    model = load_variant("cross-interaction", bert, reading="once", shared_towers=shared)
    model.head.gate.data.normal_()
    scores = model.score(CONTEXTS, TEXTS[:3])
    model.save_pretrained(tmp_path / "once")
    again = CrossEncoder.from_pretrained(tmp_path / "once", device="cpu", dtype="float32")
    assert again.config.reading == "once"
    assert again.fingerprint() == model.fingerprint()
    torch.testing.assert_close(again.score(CONTEXTS, TEXTS[:3]), scores)
    with pytest.raises(UsageError, match="was made with reading = once, not pairs"):
        CrossEncoder.from_pretrained(tmp_path / "once", reading="pairs")


@pytest.mark.parametrize("family", FAMILIES)
def test_in_bfloat16_scores_are_close(family, folder_of):
    wide = load_variant("cross", folder_of(family), reading="once")
    narrow = load_variant("cross", folder_of(family), reading="once", dtype="bfloat16")
    expected, found = (model.score(CONTEXTS, TEXTS) for model in (wide, narrow))
    assert found.dtype == torch.float32
    assert (expected - found).abs().mean() < 0.05 * expected.std()


@pytest.mark.parametrize("family", ["bert", "modernbert"])
def test_adapters_are_read_as_merged(family, folder_of):
    model = load_variant("cross", folder_of(family), reading="once")
    plain = model.score(CONTEXTS, TEXTS[:4])
    attach(model, rank=4, alpha=8)
    with torch.no_grad():
        for parameter in adapter_parameters(model.tower):
            parameter.normal_(std=0.1)
    batches = model.pair_batches(["hello"] * 4, TEXTS[:4], 1000)
    with torch.no_grad():
        trained = model.eval()(batches)
    merge(model)
    scores = model.score(["hello"], TEXTS[:4])[0]
    torch.testing.assert_close(trained, scores, rtol=1e-4, atol=1e-4)
    assert (model.score(CONTEXTS, TEXTS[:4]) - plain).abs().max() > 1e-2


def test_what_cannot_be_read_once_is_refused(bert, encoder_folder):
    refused = [
        (encoder_folder("distilbert"), {"head": "linear"}, "needs an encoder of the kind bert"),
        (encoder_folder("mpnet"), {"head": "linear"}, "needs an encoder of the kind bert"),
        (bert, {"task": "classify"}, "task must be rank with reading = once"),
        (bert, {"task": "regress"}, "task must be rank with reading = once"),
        (bert, {"max_context_length": 65, "max_candidate_length": 9}, "takes at most 64 tokens"),
        (
            bert,
            {"head": "linear", "max_context_length": 60, "max_candidate_length": 9},
            "add up to 69",
        ),
    ]
    for folder, chosen, message in refused:
        with pytest.raises(UsageError, match=message):
            CrossEncoder.from_pretrained(folder, reading="once", **chosen)
    with pytest.raises(UsageError, match="but the cross-encoder reads pairs"):
        CrossEncoder.from_pretrained(bert, head="linear", context_sees_candidates=True)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_fused_attention_scores_as_the_plain_one(dtype, bert, monkeypatch):
    torch.manual_seed(0)
    model = CrossEncoder.from_pretrained(
        bert, head="interaction", reading="once", gate=-1.0, device="cpu", dtype=dtype
    )
    contexts, candidates = ["how do i read a file", ["hello", "old kernel"]], TEXTS * 8
    monkeypatch.setattr("polyrank.models.once.MANY", 1)
    fused = model.score(contexts, candidates)
    monkeypatch.setattr("polyrank.models.once.FUSED", None)
    plain = model.score(contexts, candidates)
    near = 1e-4 if dtype == "float32" else 0.05
    torch.testing.assert_close(fused, plain, atol=near, rtol=near)


def test_rows_of_like_length_stand_together():
    lengths = torch.tensor([3, 64, 1, 50, 2, 60])
    rows = Rows(lengths)
    found = torch.cat([tokens for tokens, _ in rows.by_length])
    assert sorted(found.tolist()) == list(range(int(lengths.sum())))
    for tokens, part in rows.by_length:
        assert part.lengths.min() >= LIKE * part.longest
        assert torch.equal(lengths[rows.row[tokens]], part.lengths[part.row])
        assert torch.equal(rows.places[tokens], part.places)
