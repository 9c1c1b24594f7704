"""Cross-encoders of transformers and sentence-transformers in: scores of their own libraries."""

import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AlbertConfig, AutoModelForSequenceClassification

from polyrank.errors import ModelError
from polyrank.models.bi_encoder import BiEncoder
from polyrank.models.checkpoint import load_model
from polyrank.models.cross_encoder import CrossEncoder
from polyrank.models.default_head import ranker_of
from tiny_encoders import POSITIONS, TEXTS, WIDTH, config_of, tokenizer_of

sentence_transformers = pytest.importorskip("sentence_transformers")
CPU = {"device": "cpu", "dtype": "float32"}
CONTEXT = "how do i install the driver"
PAIRS = [(CONTEXT, text) for text in TEXTS if len(text) < 50]  # they fit into every tokeniser
SIZES = (
    "vocab_size",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "max_position_embeddings",
    "initializer_range",
)
FAMILIES = (
    "bert",
    "albert",
    "roberta",
    "xlm-roberta",
    "camembert",
    "mpnet",
    "electra",
    "distilbert",
    "deberta",
    "deberta-v2",
    "modernbert",
)


def classifier(family, folder, labels=1, **settings):
    """A model for sequence classification as `transformers` saves it."""
    tokenizer = tokenizer_of("bert" if family == "albert" else family)
    if family == "albert":
        sizes = config_of("bert", len(tokenizer)).to_dict()
        config = AlbertConfig(**{name: sizes[name] for name in SIZES}, embedding_size=16)
    else:
        config = config_of(family, len(tokenizer))
    for name, value in settings.items():
        setattr(config, name, value)
    if labels > 1:
        config.id2label = {number: f"class {number}" for number in range(labels)}
    else:
        config.num_labels = 1
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        model = AutoModelForSequenceClassification.from_config(config)
        for name, parameter in model.named_parameters():
            if not name.startswith(f"{model.base_model_prefix}.") or ".pooler." in name:
                torch.nn.init.normal_(parameter, std=0.3)
    model.save_pretrained(folder)
    tokenizer.model_max_length = POSITIONS
    tokenizer.save_pretrained(folder)
    return folder


def theirs_of(folder):
    return sentence_transformers.CrossEncoder(
        str(folder), device="cpu", activation_fn=torch.nn.Identity()
    )


def require_equal(folder, model):
    expected = theirs_of(folder).predict(PAIRS)
    ours = model.score_pairs(PAIRS) if model.classes is None else model.class_logits(PAIRS)
    np.testing.assert_allclose(ours.numpy(), expected, atol=1e-5)
    assert np.ptp(expected, axis=0).min() > 0.01


@pytest.mark.parametrize("family", FAMILIES)
def test_scores_are_those_of_their_library(family, tmp_path):
    folder = classifier(family, tmp_path / "theirs")
    model = load_model(folder, **CPU)
    assert (model.config.task, model.config.head) == ("rank", "pooler")
    require_equal(folder, model)
    model.save_pretrained(tmp_path / "ours")
    assert torch.equal(
        load_model(tmp_path / "ours", **CPU).score_pairs(PAIRS), model.score_pairs(PAIRS)
    )


@pytest.mark.parametrize(
    "settings",
    [
        {"classifier_pooling": "mean", "classifier_bias": True, "norm_bias": True},
        {"classifier_activation": "relu"},
    ],
)
def test_the_forms_of_modernberts_head(settings, tmp_path):
    folder = classifier("modernbert", tmp_path / "theirs", **settings)
    require_equal(folder, load_model(folder, **CPU))


@pytest.mark.parametrize("family", ["bert", "roberta", "modernbert"])
def test_several_labels_become_classes(family, tmp_path):
    folder = classifier(family, tmp_path / "theirs", labels=3)
    model = load_model(folder, **CPU)
    assert model.classes == ("class 0", "class 1", "class 2")
    require_equal(folder, model)
    assert CrossEncoder.from_pretrained(folder, **CPU).classes == model.classes
    assert ranker_of(folder) is None


def test_a_folder_that_version_6_saved(tmp_path):
    theirs_of(classifier("bert", tmp_path / "theirs")).save_pretrained(str(tmp_path / "saved"))
    assert (tmp_path / "saved" / "modules.json").is_file()
    require_equal(tmp_path / "saved", load_model(tmp_path / "saved", **CPU))


def modules_of(folder, *heads, reduction="cls"):
    """A cross-encoder of an encoder, pooling and layers, as version 6 saves it."""
    from sentence_transformers.base.modules import Transformer
    from sentence_transformers.sentence_transformer.modules import Pooling

    transformer = Transformer(str(folder))
    model = sentence_transformers.CrossEncoder(
        modules=[transformer, Pooling(WIDTH, pooling_mode=reduction), *heads], device="cpu"
    )
    model.save_pretrained(str(folder / "cross"))
    return folder / "cross"


def dense(outputs, activation, **names):
    from sentence_transformers.base.modules import Dense

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(outputs)
        return Dense(WIDTH, outputs, activation_function=activation, **names)


@pytest.mark.parametrize(("reduction", "ours"), [("cls", "first"), ("mean", "mean")])
def test_an_encoder_with_one_dense_module(reduction, ours, own_bert):
    head = dense(1, torch.nn.Identity(), module_output_name="scores")
    folder = modules_of(own_bert, head, reduction=reduction)
    model = load_model(folder, **CPU)
    assert (model.config.head, model.config.reduction) == ("linear", ours)
    require_equal(folder, model)


def test_an_encoder_with_two_dense_modules_and_a_prompt(own_bert):
    last = dense(3, torch.nn.Identity(), module_output_name="scores")
    folder = modules_of(own_bert, dense(WIDTH, torch.nn.GELU()), last)
    path = folder / "config_sentence_transformers.json"
    described = json.loads(path.read_text())
    path.write_text(
        json.dumps({**described, "prompts": {"q": "what is "}, "default_prompt_name": "q"})
    )
    model = load_model(folder, **CPU)
    assert (model.config.head, model.config.context_prompt) == ("pooler", "what is ")
    require_equal(folder, model)


def test_the_length_of_a_pair_is_shared_out(tmp_path):
    config = load_model(classifier("bert", tmp_path / "theirs"), **CPU).config
    assert (config.max_context_length, config.max_candidate_length) == (30, 30)


def test_other_architectures_take_the_encoder(own_bert):
    head = dense(1, torch.nn.Identity(), module_output_name="scores")
    folder = modules_of(own_bert, head)
    assert BiEncoder.from_pretrained(folder, **CPU).config.reduction == "mean"
    assert CrossEncoder.from_pretrained(folder, head="interaction", **CPU).config.gate == -6


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"architectures": ["XLNetForSequenceClassification"], "model_type": "xlnet"}, "XLNetFor"),
        ({"classifier_pooling": "max"}, "classifier_pooling = max"),
        ({"classifier_activation": "quick_gelu"}, "classifier_activation = quick_gelu"),
    ],
)
def test_heads_that_polyrank_lacks_are_named(change, words, tmp_path):
    folder = classifier("modernbert", tmp_path / "theirs")
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    for load in (load_model, CrossEncoder.from_pretrained):
        with pytest.raises(ModelError, match=f"{words}.*choose head = linear"):
            load(folder, **CPU)


def test_a_new_head_on_its_encoder_can_be_asked_for(tmp_path):
    folder = classifier("modernbert", tmp_path / "theirs", classifier_activation="quick_gelu")
    assert CrossEncoder.from_pretrained(folder, head="linear", **CPU).config.head == "linear"
    assert BiEncoder.from_pretrained(folder, **CPU).dimension == WIDTH


@pytest.mark.parametrize(
    ("heads", "words"),
    [
        ([dense(1, torch.nn.Sigmoid(), module_output_name="scores")], "activation is sigmoid"),
        ([dense(WIDTH, torch.nn.Tanh()), dense(1, torch.nn.Identity())], "its output"),
        ([torch.nn.Identity()], "has the modules"),
        ([dense(3, torch.nn.Identity(), module_output_name="scores")], "1 dense layers for 3"),
    ],
)
def test_modules_that_polyrank_lacks_are_named(heads, words, own_bert):
    if isinstance(heads[0], torch.nn.Identity):
        from sentence_transformers.base.modules import Normalize

        heads = [Normalize(), dense(1, torch.nn.Identity(), module_output_name="scores")]
    with pytest.raises(ModelError, match=words):
        load_model(modules_of(own_bert, *heads), **CPU)


def test_a_head_without_weights_is_damaged(tmp_path):
    folder = classifier("bert", tmp_path / "theirs")
    weights = load_file(folder / "model.safetensors")
    del weights["classifier.weight"]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelError, match=r"missing: out\.weight"):
        load_model(folder, **CPU)


def test_the_head_of_a_model_in_several_files(tmp_path):
    folder = classifier("bert", tmp_path / "theirs")
    AutoModelForSequenceClassification.from_pretrained(folder).save_pretrained(
        tmp_path / "parts", max_shard_size="20KB"
    )
    for file in folder.glob("token*"):
        (tmp_path / "parts" / file.name).write_bytes(file.read_bytes())
    assert not (tmp_path / "parts" / "model.safetensors").exists()
    require_equal(tmp_path / "parts", load_model(tmp_path / "parts", **CPU))
