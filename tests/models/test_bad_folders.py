"""Folders that are no model, or damaged: each gets a clear ModelError."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from polyrank.errors import ModelError, UsageError
from polyrank.models.bi_encoder import BiEncoder
from polyrank.models.checkpoint import load_model
from polyrank.models.cross_encoder import CrossEncoder
from polyrank.models.poly_encoder import PolyEncoder
from tiny_encoders import load_variant


@pytest.fixture(scope="module")
def saved(bert, tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved") / "poly"
    load_variant("poly-learnt", bert, projection=7).save_pretrained(folder)
    return folder


@pytest.fixture
def folder(saved, tmp_path):
    return shutil.copytree(saved, tmp_path / "poly")


def change_weights(folder, change):
    weights = load_file(folder / "model.safetensors")
    change(weights)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def change_description(folder, **values):
    described = json.loads((folder / "polyrank.json").read_text())
    (folder / "polyrank.json").write_text(json.dumps({**described, **values}))


def refuse(folder, *patterns):
    with pytest.raises(ModelError) as caught:
        load_model(folder, device="cpu")
    for pattern in patterns:
        assert pattern in str(caught.value)
    assert caught.value.exit_code == 2


def test_missing_weights_are_named(folder):
    change_weights(folder, lambda weights: weights.pop("codes"))
    refuse(folder, "(missing: codes)", str(folder))


def test_surplus_weights_are_named(folder):
    change_weights(folder, lambda weights: weights.update(extra=torch.zeros(2)))
    refuse(folder, "(surplus: extra)")


def test_misshapen_weights_are_named(folder):
    change_weights(folder, lambda weights: weights.update(codes=torch.zeros(4, 32)))
    refuse(folder, "(misshapen: codes)")


@pytest.mark.parametrize(
    ("name", "misshapen"), [("num_codes", "codes, recency"), ("projection", "candidate_projection")]
)
def test_endless_sizes_are_never_allocated(folder, name, misshapen):
    described = json.loads((folder / "polyrank.json").read_text())
    change_description(folder, settings={**described["settings"], name: 1 << 31})
    refuse(folder, f"(misshapen: {misshapen}")


def test_all_faults_are_named_together(folder):
    def change(weights):
        weights["cods"] = weights.pop("codes")
        weights["context_projection.weight"] = torch.zeros(1)

    change_weights(folder, change)
    refuse(folder, "missing: codes; surplus: cods; misshapen: context_projection.weight")


def test_of_many_faults_the_first_are_named(folder):
    change_weights(folder, lambda weights: [weights.pop(n) for n in list(weights) if "layer" in n])
    refuse(folder, "missing: candidate_tower.encoder.encoder.layer.0.", " more")


def test_truncated_weights(folder):
    whole = (folder / "model.safetensors").read_bytes()
    for size in (0, 5, len(whole) // 2, len(whole) - 1):
        (folder / "model.safetensors").write_bytes(whole[:size])
        refuse(folder, "model.safetensors cannot be read")


def test_no_weights(folder):
    (folder / "model.safetensors").unlink()
    refuse(folder, "model.safetensors cannot be read")


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "7", "{}", '{"format": 1}', '{"format": 1, "architecture": "bi"}', "\x00"],
)
def test_a_broken_description(folder, text):
    (folder / "polyrank.json").write_text(text)
    refuse(folder, "polyrank.json is not a description of a model", "Save the model again.")


def test_a_description_that_is_no_utf8(folder):
    (folder / "polyrank.json").write_bytes(b'{"format": "\xff"}')
    refuse(folder, "polyrank.json is not a description of a model")


def test_a_newer_format_names_the_version_to_install(folder):
    change_description(folder, format=2, polyrank_version="7.1")
    refuse(folder, "has format 2", "Install the version of polyrank that wrote it, 7.1.")


@pytest.mark.parametrize(
    ("name", "hint"), [("polly", "Did you mean 'poly'?"), ([], "Known are: bi, cross, poly.")]
)
def test_an_unknown_architecture(folder, name, hint):
    change_description(folder, architecture=name)
    refuse(folder, f"the unknown architecture {name!r}", hint)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"reductoin": "mean"}, "no setting 'reductoin'. Did you mean 'reduction'?"),
        ({"reduction": ["mean"]}, "reduction is ['mean']"),
        ({"num_codes": -1}, "num_codes must be at least 1, got -1"),
        ({"num_codes": "five"}, "num_codes must be a whole number, got 'five'"),
    ],
)
def test_wrong_settings_in_the_description(folder, settings, message):
    change_description(folder, settings=settings)
    refuse(folder, message)


def test_a_description_of_another_model(folder):
    change_description(folder, settings={"num_codes": 9})
    refuse(folder, "misshapen: codes", "surplus: candidate_projection.weight")


def test_a_folder_without_its_encoders_description(folder):
    (folder / "backbone" / "config.json").unlink()
    refuse(folder, "backbone")


def test_a_folder_without_its_tokeniser(folder):
    (folder / "backbone" / "tokenizer.json").unlink()
    refuse(folder, "tokeniser")


@pytest.mark.parametrize("model_class", [BiEncoder, PolyEncoder, CrossEncoder])
def test_no_model_at_all(model_class, tmp_path):
    with pytest.raises(ModelError, match="There is no model at"):
        model_class.from_pretrained(tmp_path / "nothing")
    with pytest.raises(ModelError, match=r"is not a model: it has no config\.json"):
        model_class.from_pretrained(tmp_path)
    with pytest.raises(ModelError, match=r"no folder 'nobody/nothing', .* HF_HUB_OFFLINE forbids"):
        model_class.from_pretrained("nobody/nothing")


def test_load_model_wants_a_saved_model(bert, tmp_path):
    refuse(tmp_path / "nothing", "There is no model at")
    refuse(tmp_path, "is not a saved model: it has no polyrank.json")
    refuse(bert, "is not a saved model: it has no polyrank.json")


def test_an_encoder_with_damaged_weights(own_bert):
    whole = (own_bert / "model.safetensors").read_bytes()
    (own_bert / "model.safetensors").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ModelError, match=r"The encoder in .* could not be loaded"):
        BiEncoder.from_pretrained(own_bert)
    (own_bert / "model.safetensors").unlink()
    with pytest.raises(ModelError, match=r"model\.safetensors"):
        BiEncoder.from_pretrained(own_bert)


def test_an_encoder_with_missing_weights(own_bert):
    change_weights(own_bert, lambda weights: weights.pop("embeddings.LayerNorm.weight"))
    with pytest.raises(ModelError, match=r"lack 1 tensors .*: embeddings\.LayerNorm\.weight"):
        BiEncoder.from_pretrained(own_bert)


def test_an_encoder_with_weights_of_other_shapes(own_bert):
    key = "embeddings.LayerNorm.weight"
    change_weights(own_bert, lambda weights: weights.update({key: torch.zeros(3)}))
    with pytest.raises(ModelError, match=r"whose shapes differ .*: embeddings\.LayerNorm\.weight"):
        BiEncoder.from_pretrained(own_bert)


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "{}",
        '{"model_type": "nonesuch"}',
        '{"model_type": "bert", "hidden_size": "wide"}',
        '{"model_type": "modernbert", "classifier_pooling": "max"}',
    ],
)
def test_an_encoder_with_a_broken_description(own_bert, text):
    (own_bert / "config.json").write_text(text)
    with pytest.raises(ModelError, match=r"The encoder in .* could not be loaded"):
        BiEncoder.from_pretrained(own_bert)


def test_an_encoder_without_a_tokeniser(own_bert):
    (own_bert / "tokenizer.json").write_text("{")
    with pytest.raises(ModelError, match=r"The tokeniser in .* could not be loaded"):
        BiEncoder.from_pretrained(own_bert)
    (own_bert / "tokenizer.json").unlink()
    with pytest.raises(ModelError, match="has no vocabulary"):
        BiEncoder.from_pretrained(own_bert)


@pytest.mark.parametrize(
    ("name", "error", "words"),
    [
        ("my-modle", ModelError, "no folder 'my-modle'.* Did you mean the folder 'my-model'"),
        ("./my-modle", ModelError, r"no model at \./my-modle\. Did you mean the folder 'my-model'"),
        ("nothing like it", ModelError, "neither a folder nor a possible id .* Give the path of"),
        ("a/b/c", ModelError, r"There is no model at a/b/c\. Check the path"),
        ("", UsageError, "got ''. Give a path, or an id such as"),
        (None, UsageError, "got None. Give a path, or an id such as"),
        (3, UsageError, "got 3. Give a path, or an id such as"),
    ],
)
def test_a_mistyped_name_is_said_in_two_sentences(name, error, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my-model").mkdir()
    for load in (load_model, BiEncoder.from_pretrained):
        with pytest.raises(error, match=words):
            load(name)
