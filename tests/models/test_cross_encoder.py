import pytest
import torch

from polyrank.errors import UsageError
from polyrank.models.cross_encoder import CrossEncoder
from polyrank.tokens.batching import batches
from tiny_encoders import FAMILIES, LONG, TEXTS, load_variant

CONTEXT = "how do i install the driver"
PAIRS = [(CONTEXT, text) for text in TEXTS]


@pytest.fixture
def model(bert):
    return load_variant("cross", bert)


@pytest.mark.parametrize("family", FAMILIES)
def test_scores_are_those_of_transformers_inputs(family, encoder_folder):
    lengths = {"max_context_length": 16, "max_candidate_length": 44}
    model = load_variant("cross", encoder_folder(family), **lengths)
    for score, (context, candidate) in zip(model.score_pairs(PAIRS), PAIRS, strict=True):
        inputs = model.tokenizer.pretrained([context], [candidate], return_tensors="pt")
        with torch.no_grad():
            outputs = model.tower.encoder(**inputs).last_hidden_state
            expected = model.head.out.weight[0] @ outputs[0, 0] + model.head.out.bias[0]
        torch.testing.assert_close(score, expected, atol=2e-5, rtol=0)


def test_the_encoder_sees_segments(model, monkeypatch):
    seen = []
    forward = model.tower.encoder.forward

    def recording(**inputs):
        seen.append(inputs)
        return forward(**inputs)

    monkeypatch.setattr(model.tower.encoder, "forward", recording)
    ids, segments = model.encode_pairs(["how is it", "yes"], ["print", "no"])
    model(batches(ids, 0, segments=segments))
    [inputs] = seen
    length = len(ids[0])
    assert inputs["token_type_ids"][0].tolist() == [0, 0, 0, 0, 0, 1, 1]
    assert inputs["token_type_ids"][1].tolist() == [0, 0, 0, 1, 1] + [0] * (length - 5)
    assert inputs["attention_mask"][1].tolist() == [1] * 5 + [0] * (length - 5)


def test_segments_matter(model):
    ids, segments = model.encode_pairs([CONTEXT], ["print"])
    with torch.no_grad():
        right = model(batches(ids, 0, segments=segments))
        without = model(batches(ids, 0))
    torch.testing.assert_close(right, model.score_pairs([(CONTEXT, "print")]), atol=1e-5, rtol=0)
    assert (right - without).abs().item() > 1e-3


def test_encoders_without_segments_get_none(encoder_folder):
    model = load_variant("cross", encoder_folder("distilbert"))
    assert model.encode_pairs(["a"], ["b"])[1] is None


def test_each_text_is_cut_to_its_share_of_the_pair(bert):
    model = load_variant("cross", bert, max_context_length=6, max_candidate_length=5)
    dialogue = ["hello", LONG]
    ids, segments = model.encode_pairs([LONG, dialogue, "no"], [LONG] * 3)
    [bare], [no] = model.tokenizer.encode([LONG]), model.tokenizer.encode(["no"])
    assert ids[0] == [2, *bare[:6], 3, *bare[:5], 3]
    assert ids[1] == [2, *bare[-6:], 3, *bare[:5], 3]
    assert ids[2] == [2, *no, 3, *bare[:5], 3]  # what the context leaves free stays free
    assert segments[0] == segments[1] == [0] * 8 + [1] * 6


def test_a_pair_is_cut_on_the_sides_asked_for(bert):
    sides = {"context_truncation": "left", "candidate_truncation": "left"}
    model = load_variant("cross", bert, max_context_length=6, max_candidate_length=5, **sides)
    [ids], _ = model.encode_pairs([LONG], [LONG])
    [bare] = model.tokenizer.encode([LONG])
    assert ids == [2, *bare[-6:], 3, *bare[-5:], 3]


def test_turns_are_joined(model):
    [ids], _ = model.encode_pairs([["hello", "yes"]], ["no"])
    [hello], [yes], [no] = (model.tokenizer.encode([text]) for text in ("hello", "yes", "no"))
    assert ids == [2, *hello, 3, *yes, 3, *no, 3]


def test_a_pair_fits_into_the_encoder(bert):
    config = load_variant("cross", bert).config
    assert config.max_context_length + config.max_candidate_length + 4 == 64
    config = load_variant("cross", bert, max_context_length=10, max_candidate_length=20).config
    assert (config.max_context_length, config.max_candidate_length) == (10, 20)
    with pytest.raises(UsageError, match=r"add up to 64.*room for 60 tokens"):
        load_variant("cross", bert, max_context_length=32, max_candidate_length=32)


def test_one_context_against_many_is_listwise(model):
    scores = model.score(CONTEXT, TEXTS)
    assert scores.shape == (len(TEXTS),)
    torch.testing.assert_close(scores, model.score_pairs(PAIRS))
    ranked = model.rank(CONTEXT, TEXTS, top_k=3)
    best = scores.argsort(descending=True)[:3].tolist()
    assert [hit.id for hit in ranked] == [str(place) for place in best]
    assert [hit.text for hit in ranked] == [TEXTS[place] for place in best]
    assert [hit.score for hit in ranked] == pytest.approx(scores[best].tolist(), abs=1e-5)


@pytest.mark.parametrize(
    ("settings", "shape"),
    [
        ({"task": "rank"}, (10,)),
        ({"task": "regress"}, (10,)),
        ({"task": "classify", "num_labels": 4}, (10, 4)),
        ({"task": "classify", "num_labels": 2, "reduction": "mean"}, (10, 2)),
    ],
)
def test_heads_have_their_shapes(settings, shape, bert):
    model = load_variant("cross", bert, **settings)
    score = model.class_logits if settings["task"] == "classify" else model.score_pairs
    scores = score(PAIRS)
    assert scores.shape == shape
    assert scores.dtype == torch.float32
    assert score([]).shape == (0, *shape[1:])
    assert score(PAIRS[:1]).shape == (1, *shape[1:])
    assert score(PAIRS[0]).shape == shape[1:]
    ids, segments = model.encode_pairs(*map(list, zip(*PAIRS, strict=True)))
    trained = model(batches(ids, 0, segments=segments, budget=60))
    torch.testing.assert_close(trained, scores, atol=1e-5, rtol=0)
    assert (scores.amax(dim=0) - scores.amin(dim=0) > 1e-2).all()


@pytest.mark.parametrize("task", ["classify", "regress"])
def test_the_dense_head_by_hand(task, bert):
    model = load_variant("cross", bert, task=task)
    vectors = torch.randn(3, 32, generator=torch.Generator().manual_seed(0))
    kinds = [type(layer).__name__ for layer in model.head.layers]
    assert kinds == ["Dropout", "Linear", "GELU", "Dropout", "Linear"]
    dense, out = model.head.layers[1], model.head.layers[4]
    hidden = vectors @ dense.weight.T + dense.bias
    hidden = hidden * 0.5 * (1 + torch.erf(hidden / 2**0.5))
    torch.testing.assert_close(model.head(vectors), hidden @ out.weight.T + out.bias)


def test_dropout_works_in_training_alone(bert):
    model = load_variant("cross", bert, head_dropout=0.5)
    vectors = torch.ones(1, 32)
    assert torch.equal(model.head(vectors), model.head(vectors))
    before = model.score_pairs(PAIRS)
    model.train()
    assert not torch.equal(model.head(vectors), model.head(vectors))
    assert torch.equal(model.score_pairs(PAIRS), before)


def test_a_regression_ranks_and_classes_do_not(bert):
    assert len(load_variant("cross", bert, task="regress").rank(CONTEXT, TEXTS)) == len(TEXTS)
    classes = load_variant("cross", bert, task="classify")
    for call in (classes.rank, classes.score):
        with pytest.raises(UsageError, match="no single score for a pair"):
            call("context", TEXTS)
    with pytest.raises(UsageError, match="no single score for a pair"):
        classes.score_pairs(PAIRS)


def test_every_weight_gets_a_gradient(model):
    ids, segments = model.encode_pairs(*map(list, zip(*PAIRS, strict=True)))
    model(batches(ids, 0, segments=segments, budget=60)).logsumexp(dim=0).backward()
    without = [name for name, p in model.named_parameters() if p.grad is None or not p.grad.any()]
    assert all(name.endswith("key.bias") for name in without)


def test_pairs_and_settings_are_checked(model, bert):
    with pytest.raises(UsageError, match="pairs must be a pair"):
        model.score_pairs("hello")
    with pytest.raises(UsageError, match="task is 'rnak'"):
        CrossEncoder.from_pretrained(bert, task="rnak")
    with pytest.raises(UsageError, match="num_labels must be at least 2"):
        CrossEncoder.from_pretrained(bert, num_labels=1)
