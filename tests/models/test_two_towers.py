"""What the bi-encoder and the poly-encoder share."""

import numpy as np
import pytest
import torch

from polyrank.errors import UsageError
from polyrank.models.bi_encoder import BiEncoder
from polyrank.models.poly_encoder import PolyEncoder
from polyrank.tokens.batching import batches
from tiny_encoders import LONG, TEXTS, WIDTH, load_variant

BOTH = pytest.mark.parametrize("variant", ["bi", "poly-learnt", "poly-last-and-first"])


def outputs_of(tower, sequence):
    """Token outputs of one text by `transformers` alone: (T, h)."""
    with torch.no_grad():
        ids = torch.tensor([sequence])
        return tower.encoder(input_ids=ids, attention_mask=torch.ones_like(ids))[0][0].numpy()


def test_the_bi_encoder_by_hand(bert):
    model = load_variant("bi", bert, temperature=0.5)
    for side, encode, tower in (
        ("contexts", model.encode_contexts, model.context_tower),
        ("candidates", model.encode_candidates, model.candidate_tower),
    ):
        encoded = encode(TEXTS)
        for row, sequence in enumerate(getattr(model.tokenizer, side)(TEXTS, 64)):
            mean = outputs_of(tower, sequence).mean(axis=0)
            expected = mean / np.linalg.norm(mean)
            np.testing.assert_allclose(encoded[row].numpy(), expected, atol=1e-5)


@pytest.mark.parametrize("reduction", ["first", "mean", "mean_first", "max"])
def test_every_reduction_on_both_sides(bert, reduction):
    model = load_variant("bi", bert, reduction=reduction, reduction_tokens=3, similarity="dot")
    pick = {
        "first": lambda tokens: tokens[0],
        "mean": lambda tokens: tokens.mean(axis=0),
        "mean_first": lambda tokens: tokens[:3].mean(axis=0),
        "max": lambda tokens: tokens.max(axis=0),
    }[reduction]
    sequences = model.tokenizer.candidates(TEXTS, 64)
    expected = np.stack([pick(outputs_of(model.candidate_tower, ids)) for ids in sequences])
    np.testing.assert_allclose(model.encode_candidates(TEXTS).numpy(), expected, atol=1e-4)
    expected = np.stack([pick(outputs_of(model.context_tower, ids)) for ids in sequences])
    np.testing.assert_allclose(model.encode_contexts(TEXTS).numpy(), expected, atol=1e-4)


@BOTH
def test_shapes(variant, bert):
    model = load_variant(variant, bert)
    inner = (WIDTH,) if variant == "bi" else (model.num_vectors, WIDTH)
    assert model.encode_contexts(TEXTS).shape == (len(TEXTS), *inner)
    assert model.encode_for_scoring(TEXTS).shape == (len(TEXTS), model.num_vectors, WIDTH)
    assert model.encode_candidates(TEXTS).shape == (len(TEXTS), WIDTH)
    assert model.encode_contexts([]).shape == (0, *inner)
    assert model.encode_candidates([]).shape == (0, WIDTH)
    scores = model.score(model.encode_contexts(TEXTS[:2]), model.encode_candidates(TEXTS))
    assert scores.shape == (2, len(TEXTS))
    assert scores.dtype == torch.float32


@BOTH
@pytest.mark.parametrize("shared", [True, False])
def test_a_projection_sets_the_dimension(variant, shared, bert):
    model = load_variant(variant, bert, projection=7, similarity="dot", shared_towers=shared)
    assert model.dimension == 7
    assert model.encode_for_scoring(TEXTS).shape == (len(TEXTS), model.num_vectors, 7)
    plain = load_variant(variant, bert, similarity="dot", shared_towers=shared)
    weights = {k: v for k, v in model.state_dict().items() if "projection" not in k}
    plain.load_state_dict(weights)
    if variant == "bi":
        expected = plain.encode_contexts(TEXTS) @ model.context_projection.weight.T
        torch.testing.assert_close(model.encode_contexts(TEXTS), expected, atol=1e-4, rtol=1e-4)
    projection = model.context_projection if shared else model.candidate_projection
    expected = plain.encode_candidates(TEXTS) @ projection.weight.T
    torch.testing.assert_close(model.encode_candidates(TEXTS), expected, atol=1e-4, rtol=1e-4)


@BOTH
def test_the_temperature_scales_logits_and_is_in_the_vectors_of_a_poly_encoder_alone(variant, bert):
    plain = load_variant(variant, bert)
    cold = load_variant(variant, bert, temperature=0.05)
    steps = batches(plain.context_ids(TEXTS), 0)
    logits = plain(steps, steps)[0]
    torch.testing.assert_close(cold(steps, steps)[0], logits * 20)
    scale = 1 if variant == "bi" else 20
    for encode in ("encode_contexts", "encode_for_scoring"):
        expected = getattr(plain, encode)(TEXTS) * scale
        torch.testing.assert_close(getattr(cold, encode)(TEXTS), expected)


@pytest.mark.parametrize("similarity", ["cosine", "dot"])
def test_the_score_of_a_bi_encoder_is_the_similarity(similarity, bert):
    model = load_variant("bi", bert, temperature=0.05, similarity=similarity)
    left, right = model.encode_contexts(TEXTS), model.encode_candidates(TEXTS)
    torch.testing.assert_close(model.score(TEXTS, TEXTS), left @ right.T, atol=1e-5, rtol=1e-5)
    if similarity == "cosine":
        torch.testing.assert_close(left.norm(dim=1), torch.ones(len(TEXTS)))


@BOTH
def test_cosine_makes_unit_vectors(variant, bert):
    model = load_variant(variant, bert)
    norms = model.encode_candidates(TEXTS).norm(dim=-1)
    torch.testing.assert_close(norms, torch.ones(len(TEXTS)))
    norms = model.encode_contexts(TEXTS).norm(dim=-1)
    assert ((norms - 1).abs().lt(1e-6) | norms.eq(0)).all()
    raw = load_variant(variant, bert, similarity="dot").encode_candidates(TEXTS)
    assert (raw.norm(dim=-1) - 1).abs().min() > 0.1


@BOTH
def test_separate_towers_start_alike_and_may_diverge(variant, bert):
    model = (BiEncoder if variant == "bi" else PolyEncoder).from_pretrained(bert, projection=6)
    pairs = list(
        zip(model.context_tower.parameters(), model.candidate_tower.parameters(), strict=True)
    )
    pairs.append((model.context_projection.weight, model.candidate_projection.weight))
    assert all(torch.equal(one, other) for one, other in pairs)
    assert all(one.data_ptr() != other.data_ptr() for one, other in pairs)
    before = model.encode_contexts(["hello"])
    with torch.no_grad():
        for parameter in model.candidate_tower.parameters():
            parameter.mul_(2)
    assert torch.equal(model.encode_contexts(["hello"]), before)


@BOTH
def test_a_shared_tower_serves_both_sides(variant, bert):
    model = load_variant(variant, bert, shared_towers=True)
    assert model.candidate_tower is None
    assert not any(name.startswith("candidate") for name in model.state_dict())
    before = model.encode_candidates(["hello"])
    with torch.no_grad():
        model.context_tower.encoder.embeddings.word_embeddings.weight.mul_(2)
    assert not torch.equal(model.encode_candidates(["hello"]), before)


def test_both_towers_get_gradients(bert):
    model = load_variant("poly-learnt", bert, projection=6)
    contexts = batches(model.tokenizer.contexts(TEXTS, 64), 0, budget=50)
    candidates = batches(model.tokenizer.candidates(TEXTS, 64), 0, budget=50)
    model.score_all(*model(contexts, candidates)).logsumexp(dim=1).sum().backward()
    without = [name for name, p in model.named_parameters() if p.grad is None or not p.grad.any()]
    # A key's bias adds the same to every logit of a softmax; the pooling layer is left out.
    assert all(name.endswith("key.bias") for name in without)


@BOTH
def test_training_and_inference_give_the_same_vectors(variant, bert):
    model = load_variant(variant, bert, max_candidate_length=9)
    contexts = batches(model.tokenizer.contexts(TEXTS, 64), 0, budget=40)
    candidates = batches(model.tokenizer.candidates(TEXTS, 9), 0, budget=40)
    assert len(contexts) > 1
    context_vectors, candidate_vectors = model(contexts, candidates)
    assert context_vectors.requires_grad
    torch.testing.assert_close(
        context_vectors, model.encode_for_scoring(TEXTS), atol=1e-5, rtol=0, check_device=False
    )
    torch.testing.assert_close(
        candidate_vectors, model.encode_candidates(TEXTS), atol=1e-5, rtol=0, check_device=False
    )


def test_contexts_and_candidates_have_lengths_of_their_own(bert):
    model = load_variant("bi", bert, max_context_length=20, max_candidate_length=10)
    words = LONG.split()
    most, first = " ".join(words[:18]), " ".join(words[:8])
    assert torch.equal(model.encode_contexts([LONG]), model.encode_contexts([most]))
    assert torch.equal(model.encode_candidates([LONG]), model.encode_candidates([first]))
    assert not torch.equal(model.encode_contexts([LONG]), model.encode_contexts([first]))


def test_lengths_are_cut_to_what_the_encoder_places(bert):
    assert load_variant("bi", bert).config.max_context_length == 64
    with pytest.raises(UsageError, match=r"max_candidate_length is 65.*at most 64 tokens"):
        load_variant("bi", bert, max_candidate_length=65)


@BOTH
def test_each_scores_its_own_candidates(variant, bert):
    model = load_variant(variant, bert)
    contexts = model.encode_for_scoring(TEXTS[:2])
    candidates = model.encode_candidates(TEXTS[:6])
    each = model.score_each(contexts, candidates.view(2, 3, -1))
    whole = model.score_all(contexts, candidates)
    torch.testing.assert_close(each, torch.stack([whole[0, :3], whole[1, 3:]]))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"temperature": 0.0}, "temperature must be positive"),
        ({"reduction": "median"}, "reduction is 'median'"),
        ({"projection": 0}, "projection must be at least 1"),
        ({"reductoin": "mean"}, "no setting 'reductoin'. Did you mean 'reduction'"),
        ({"num_codes": 4}, "no setting 'num_codes'"),
        ({"max_context_length": "long"}, "max_context_length must be a whole number"),
    ],
)
def test_wrong_settings_are_named(settings, message, bert):
    with pytest.raises(UsageError, match=message):
        BiEncoder.from_pretrained(bert, **settings)
