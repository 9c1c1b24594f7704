import pytest
import torch

from polyrank import BiEncoder
from polyrank.errors import UsageError
from polyrank.runtime import set_seed
from polyrank.training.config import TrainingConfig
from polyrank.training.encoders import freeze, layers_of, rescale
from polyrank.training.optimisers import parameter_groups
from tiny_encoders import FAMILIES

BATCH = {"input_ids": torch.tensor([[5, 6, 7, 8], [9, 10, 11, 12]])}


def model_of(family, encoder_folder, **settings):
    set_seed(0)
    return BiEncoder.from_pretrained(
        encoder_folder(family), dtype="float32", device="cpu", **settings
    )


@pytest.mark.parametrize("family", FAMILIES)
def test_only_what_was_asked_for_has_gradients(family, encoder_folder):
    model = model_of(family, encoder_folder, projection=8)
    encoder = model.towers[0].encoder
    layers = layers_of(encoder)
    assert len(layers) == 2
    inside = {id(p) for layer in layers for p in layer.parameters()}
    last = {id(p) for p in layers[-1].parameters()}
    final = {id(p) for n, p in encoder.named_parameters() if n.startswith("final_norm")}
    everything = {id(p) for p in encoder.parameters()}
    expected = {"top": last | final, "top4": inside | final, "all_but_embeddings": inside | final}
    for trainable, wanted in {**expected, "all": everything}.items():
        freeze(model, trainable)
        assert {id(p) for p in encoder.parameters() if p.requires_grad} == wanted, trainable
        assert all(p.requires_grad for p in model.context_projection.parameters())
        model.zero_grad(set_to_none=True)
        model.context_tower(BATCH).square().sum().backward()
        got = {id(p) for p in encoder.parameters() if p.grad is not None}
        assert got <= wanted
        assert {id(p) for p in layers[-1].parameters() if p.grad is not None}


@pytest.mark.parametrize("family", FAMILIES)
def test_nothing_is_kept_below_the_lowest_trained_layer(family, encoder_folder):
    model = model_of(family, encoder_folder)
    encoder = model.towers[0].encoder
    needs = []

    def look(module, inputs, output):
        hidden = output[0] if isinstance(output, tuple) else output
        needs.append(hidden.requires_grad)

    for layer in layers_of(encoder):
        layer.register_forward_hook(look)
    freeze(model, "top")
    model.context_tower(BATCH)
    assert needs == [False, True]


@pytest.mark.parametrize("family", FAMILIES)
def test_the_outputs_are_rescaled_exactly(family, encoder_folder):
    model = model_of(family, encoder_folder)
    with torch.no_grad():
        before = model.context_tower(BATCH), model.candidate_tower(BATCH)
        rescale(model, 0.25)
        after = model.context_tower(BATCH), model.candidate_tower(BATCH)
    for one, other in zip(before, after, strict=True):
        torch.testing.assert_close(other, one * 0.25, rtol=1e-5, atol=1e-6)


def test_frozen_parameters_are_in_no_group(bert, encoder_folder):
    model = model_of("bert", encoder_folder)
    freeze(model, "top")
    module = torch.nn.Module()
    module.model = model
    module.classifier = torch.nn.Linear(4, 2)
    groups = parameter_groups(module, model, TrainingConfig())
    inside = {id(p) for group in groups for p in group["params"]}
    assert inside == {id(p) for p in module.parameters() if p.requires_grad}
    rates = {id(p): group["lr"] for group in groups for p in group["params"]}
    assert rates[id(module.classifier.weight)] == 1e-3
    assert all(not group["weight_decay"] or group["lr"] == 5e-5 for group in groups)
    adamax = parameter_groups(module, model, TrainingConfig(optimiser="adamax"))
    assert not any(group["weight_decay"] for group in adamax)


def test_an_encoder_of_an_unknown_family_is_named(encoder_folder):
    model = model_of("bert", encoder_folder)
    encoder = model.context_tower.encoder
    encoder.encoder, encoder.stack = None, encoder.encoder
    with pytest.raises(UsageError, match="type bert: its layers are not known"):
        freeze(model, "top")
    freeze(model, "all")
