"""Copies for inference: never stale, in the precision asked for, without side effects."""

import pytest
import torch

from polyrank.errors import UsageError
from polyrank.models import inference
from polyrank.models.bi_encoder import BiEncoder
from tiny_encoders import FAMILIES, TEXTS, load_variant, scores_of

VARIANTS = pytest.mark.parametrize("variant", ["bi", "poly-learnt", "cross"])
CONTEXTS = ["how do i read a file", "yes"]
OPTIMIZERS = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.1),
    "adamw": lambda parameters: torch.optim.AdamW(parameters, lr=0.1, foreach=False),
    "adamw-foreach": lambda parameters: torch.optim.AdamW(parameters, lr=0.1, foreach=True),
    "adamw-fused": lambda parameters: torch.optim.AdamW(parameters, lr=0.1, fused=True),
}


def fresh_copy(model, folder):
    """The scores of the same weights in a model that has never computed before."""
    model.save_pretrained(folder)
    return type(model).from_pretrained(folder, device="cpu", dtype=model.compute_dtype)


@VARIANTS
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_step_of_any_optimizer_reaches_the_scores(variant, dtype, optimizer, bert, tmp_path):
    model = load_variant(variant, bert, dtype=dtype)
    before, fingerprint = scores_of(model, CONTEXTS, TEXTS), model.fingerprint()
    steps = OPTIMIZERS[optimizer](model.parameters())
    generator = torch.Generator().manual_seed(0)
    for parameter in model.parameters():
        parameter.grad = torch.randn(parameter.shape, generator=generator)
    steps.step()
    after = scores_of(model, CONTEXTS, TEXTS)
    assert (after - before).abs().max() > 1e-3
    assert model.fingerprint() != fingerprint
    fresh = fresh_copy(model, tmp_path / "model")
    assert torch.equal(scores_of(fresh, CONTEXTS, TEXTS), after)
    assert fresh.fingerprint() == model.fingerprint()


@VARIANTS
def test_loaded_weights_reach_the_scores(variant, bert):
    model, other = load_variant(variant, bert), load_variant(variant, bert)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.mul_(1.1)
    assert (scores_of(model, CONTEXTS, TEXTS) - scores_of(other, CONTEXTS, TEXTS)).abs().max() > 0
    model.load_state_dict(other.state_dict())
    assert torch.equal(scores_of(model, CONTEXTS, TEXTS), scores_of(other, CONTEXTS, TEXTS))
    assert model.fingerprint() == other.fingerprint()


@VARIANTS
def test_replaced_parameters_reach_the_scores(variant, bert):
    model = load_variant(variant, bert)
    before = scores_of(model, CONTEXTS, TEXTS)
    tower = model.get_submodule(model.tower_names[0]).encoder
    tower.embeddings.word_embeddings.weight = torch.nn.Parameter(
        2 * tower.embeddings.word_embeddings.weight.detach()
    )
    assert not torch.equal(scores_of(model, CONTEXTS, TEXTS), before)


@VARIANTS
@pytest.mark.parametrize("family", FAMILIES)
def test_bfloat16_is_close_to_float32(variant, family, encoder_folder):
    folder = encoder_folder(family)
    if variant == "cross":
        exact, low = (
            load_variant(variant, folder, dtype=dtype).score("hello", TEXTS)
            for dtype in ("float32", "bfloat16")
        )
        assert (exact - low).abs().max() < 0.1 * exact.abs().max()
    else:
        models = [load_variant(variant, folder, dtype=dtype) for dtype in ("float32", "bfloat16")]
        exact, low = (model.encode_candidates(TEXTS) for model in models)
        assert torch.cosine_similarity(exact, low).min() > 0.99
        exact_contexts, low_contexts = (model.encode_contexts(TEXTS) for model in models)
        assert torch.cosine_similarity(exact_contexts, low_contexts, dim=-1).min() > 0.99
        assert low.dtype == low_contexts.dtype == torch.float32
    assert not torch.equal(exact, low)


def test_auto_resolves_and_unknown_dtypes_are_refused(bert):
    model = BiEncoder.from_pretrained(bert, device="cpu", dtype="auto")
    assert model.compute_dtype in (torch.float32, torch.bfloat16)
    assert next(model.parameters()).dtype == torch.float32
    assert BiEncoder.from_pretrained(bert, dtype=torch.bfloat16).compute_dtype == torch.bfloat16
    with pytest.raises(UsageError, match="float16' is unknown"):
        BiEncoder.from_pretrained(bert, dtype="float16")
    with pytest.raises(UsageError, match="device 'nowhere' cannot be used"):
        BiEncoder.from_pretrained(bert, device="nowhere")


def test_the_precision_may_be_changed(bert):
    model = load_variant("bi", bert)
    exact = model.encode_candidates(TEXTS)
    model.place("cpu", "bfloat16")
    assert not torch.equal(model.encode_candidates(TEXTS), exact)
    model.place("cpu", "float32")
    assert torch.equal(model.encode_candidates(TEXTS), exact)


@VARIANTS
def test_unpacked_layers_give_the_same_scores(variant, bert, monkeypatch):
    packed = scores_of(load_variant(variant, bert), CONTEXTS, TEXTS)
    monkeypatch.setattr(inference, "can_pack", lambda dtype: False)
    plain = scores_of(load_variant(variant, bert), CONTEXTS, TEXTS)
    torch.testing.assert_close(packed, plain, atol=1e-5, rtol=0)


@VARIANTS
def test_encoding_has_no_side_effects(variant, bert):
    model = load_variant(variant, bert)
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    random_state = torch.get_rng_state()
    model.train()
    in_training = scores_of(model, CONTEXTS, TEXTS)
    assert model.training
    model.eval()
    assert torch.equal(scores_of(model, CONTEXTS, TEXTS), in_training)
    assert torch.equal(torch.get_rng_state(), random_state)
    assert all(torch.equal(tensor, state[name]) for name, tensor in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())


def test_encoded_vectors_can_be_trained_on(bert):
    model = load_variant("poly-learnt", bert)
    layer = torch.nn.Linear(32, 4)
    layer(model.encode_candidates(TEXTS)).sum().backward()
    layer(model.encode_contexts(TEXTS)).sum().backward()
    assert (layer.weight.grad != 0).all()
    assert not model.encode_candidates(TEXTS).requires_grad


def test_a_model_made_in_inference_mode_encodes(bert):
    expected = load_variant("bi", bert).encode_candidates(TEXTS)
    with torch.inference_mode():
        model = load_variant("bi", bert)
        assert torch.equal(model.encode_candidates(TEXTS), expected)
        model.fingerprint()


def test_copies_are_made_once(bert, monkeypatch):
    model = load_variant("bi", bert)
    model.encode_candidates(TEXTS)
    first = model.for_inference("candidate_tower")
    model.encode_candidates(TEXTS[::-1])
    assert model.for_inference("candidate_tower") is first
    model.train()
    assert model.for_inference("candidate_tower") is not first
