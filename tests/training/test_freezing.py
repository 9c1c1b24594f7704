import json
import math
from dataclasses import replace

import pytest
import torch

from polyrank import BiEncoder, PolyEncoder
from polyrank.cli.options import build
from polyrank.cli.train import TrainOptions
from polyrank.errors import UsageError
from polyrank.evaluation.tasks import with_sampled_candidates
from polyrank.records import Example, LabelledPair
from polyrank.runtime import set_seed
from polyrank.training.config import TrainingConfig
from polyrank.training.encoders import BERT_STD, freeze, layers_of, prepare, rescale, texts_of
from polyrank.training.optimisers import parameter_groups
from polyrank.training.run import train
from tiny_encoders import FAMILIES, WORDS, load_variant

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
        rescale(model, [0.25, 0.5])
        after = model.context_tower(BATCH), model.candidate_tower(BATCH)
    for one, other, factor in zip(before, after, (0.25, 0.5), strict=True):
        torch.testing.assert_close(other, one * factor, rtol=1e-5, atol=1e-6)


EXAMPLES = [
    Example(context=("hello", f"what is {word}"), response=f"the {word} and the {WORDS[place]}")
    for place, word in enumerate(WORDS[15:45])
]
PAIRS = [LabelledPair(first=f"the {word}", second=f"no {word}", label=0.5) for word in WORDS[:9]]


def outputs_at_tokens(tower, sequences):
    return torch.cat([tower({"input_ids": torch.tensor([ids])})[0].flatten() for ids in sequences])


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("records", [EXAMPLES, PAIRS])
def test_the_outputs_get_the_standard_deviation_of_bert(records, family, encoder_folder):
    model = model_of(family, encoder_folder)
    with torch.no_grad():
        rescale(model, [1.0, 0.3])  # two towers of different sizes
    said = []
    config = TrainingConfig(rescale_last_layer="bert")
    factors = prepare(model, config, records, said.append)
    assert len(factors) == len(said) == 2
    assert factors[1] == pytest.approx(factors[0] / 0.3, rel=0.2)
    assert f"multiplied by {factors[0]:.4g}" in said[0]
    texts = [texts_of(record) for record in records]
    contexts = model.context_ids([first for first, _ in texts])
    candidates = model.candidate_ids([second for _, second in texts])
    for tower, ids in zip(model.towers, (contexts, candidates), strict=True):
        with torch.no_grad():
            found = outputs_at_tokens(tower, ids).std()
        assert float(found) == pytest.approx(BERT_STD, rel=0.01)


@pytest.mark.parametrize("variant", ["bi", "cross", "cross-interaction"])
def test_the_encoder_of_every_architecture_is_measured(variant, bert):
    model = load_variant(variant, bert, **({"shared_towers": True} if variant == "bi" else {}))
    factors = prepare(model, TrainingConfig(rescale_last_layer="bert"), EXAMPLES)
    assert len(factors) == len(model.towers)
    again = prepare(model, TrainingConfig(rescale_last_layer="bert"), EXAMPLES)
    assert again == pytest.approx([1.0] * len(factors), rel=1e-4)
    assert all(factor < 0.9 for factor in factors), "the tiny encoder's outputs are larger"


def test_a_given_factor_is_taken_and_outputs_without_spread_are_refused(encoder_folder):
    model = model_of("bert", encoder_folder, shared_towers=True)
    assert prepare(model, TrainingConfig(rescale_last_layer=0.06), EXAMPLES) == [0.06]
    with torch.no_grad():
        rescale(model, [0.0])
    with pytest.raises(UsageError, match="standard deviation"):
        prepare(model, TrainingConfig(rescale_last_layer="bert"), EXAMPLES)
    with pytest.raises(UsageError, match="positive or bert, got 0"):
        TrainingConfig(rescale_last_layer=0.0)


@pytest.mark.parametrize(
    ("variant", "changes"),
    [("bi", False), ("poly-first", False), ("poly-last", False), ("poly-learnt", True)],
)
def test_with_cosine_the_size_of_outputs_matters_to_learnt_codes_alone(variant, changes, bert):
    """They attend to outputs before these are normalised."""
    model = load_variant(variant, bert, similarity="cosine", dtype="float32")
    contexts, texts = [" ".join(WORDS[5:20]), "how do i read a file"], WORDS[20:25]

    def scores():
        return model.score(model.encode_contexts(contexts), model.encode_candidates(texts))

    before = scores()
    rescale(model, [0.25] * len(model.towers))
    assert torch.allclose(scores(), before, atol=1e-5) is not changes
    assert before.std() > 0


def test_the_run_records_the_factor_and_the_recipe_learns(bert, tmp_path):
    values = {"base": str(bert), "train": "t", "output": "o", "recipe": "poly-encoder-reddit"}
    given = {"max_steps": "30", "batch_size": "8", "warmup": "0", "learning_rate": "1e-3"}
    options = build(
        TrainOptions,
        {
            **values,
            **given,
            "num_codes": "4",
            "max_context_length": "32",
            "max_candidate_length": "32",
        },
        None,
        "polyrank train",
    )
    assert options.training.trainable == "all"
    losses, models = {}, {}
    dev = with_sampled_candidates(EXAMPLES, 5)
    for factor in ("bert", 0.06):
        set_seed(0)
        model = PolyEncoder.from_pretrained(bert, dtype="float32", device="cpu", **options.model)
        before = model.context_tower.encoder.embeddings.word_embeddings.weight.clone()
        config = replace(options.training, rescale_last_layer=factor, dropout=0.0)
        output = tmp_path / str(factor)
        result = train(model, EXAMPLES, output, config, dev=dev)
        losses[factor] = [entry["loss"] for entry in result.history if "loss" in entry]
        models[factor] = json.loads((output / "training.json").read_text())
        after = model.context_tower.encoder.embeddings.word_embeddings.weight
        assert not torch.equal(before, after), "the embeddings are trained"
    assert sum(losses["bert"][-5:]) / 5 < 0.8 * losses["bert"][0]
    assert losses[0.06][0] == pytest.approx(math.log(8), abs=0.05), "a constant may be too small"
    assert models[0.06]["rescaling"] == [0.06, 0.06]
    [first, second] = models["bert"]["rescaling"]
    card = (tmp_path / "bert" / "README.md").read_text()
    assert f"| outputs multiplied by | {first:.4g}, {second:.4g} |" in card


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
    with pytest.raises(UsageError, match="rescale_last_layer cannot be used with an encoder"):
        rescale(model, [0.5, 0.5])
    freeze(model, "all")
