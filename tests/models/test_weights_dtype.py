"""Weights that stay in 16 bits: in memory once, saved as they are, with one fingerprint."""

import pytest
import torch
from safetensors.torch import load_file

import polyrank
from polyrank import BiEncoder, CrossEncoder, Index, PolyEncoder
from polyrank.errors import UsageError
from polyrank.models.backbone import load_encoder
from polyrank.models.checkpoint import load_model
from polyrank.models.description import fingerprint_of
from tiny_encoders import LONG, TEXTS

FAMILIES = ("bert", "modernbert", "qwen3", "gemma3")
SOME = [*(text for text in TEXTS if text), LONG]
CPU = {"device": "cpu", "dtype": "float32"}


@pytest.fixture(scope="module")
def half(encoder_folder, tmp_path_factory):
    """The tiny encoder of a family with its weights stored in bfloat16."""
    made = {}

    def folder(family):
        if family not in made:
            from polyrank.models.backbone import load_tokenizer

            place = tmp_path_factory.mktemp("half") / family
            load_encoder(encoder_folder(family)).to(torch.bfloat16).save_pretrained(place)
            load_tokenizer(encoder_folder(family)).save_pretrained(place)
            made[family] = place
        return made[family]

    return folder


def made(model_class, folder, **settings):
    torch.manual_seed(1)
    return model_class.from_pretrained(folder, **(CPU | settings))


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("model_class", [BiEncoder, PolyEncoder, CrossEncoder])
def test_scores_are_those_of_the_same_values_in_float32(family, model_class, half):
    reduction = {} if model_class is PolyEncoder else {"reduction": "mean"}
    kept = made(model_class, half(family), weights_dtype="auto", **reduction)
    wide = made(model_class, half(family), **reduction)
    wide.load_state_dict(kept.state_dict())
    assert kept.towers[0].encoder.dtype == torch.bfloat16
    assert wide.towers[0].encoder.dtype == torch.float32
    difference = kept.score(SOME, SOME[:3]) - wide.score(SOME, SOME[:3])
    assert difference.abs().max() < 1e-4 * wide.score(SOME, SOME[:3]).abs().max()
    assert kept.fingerprint() == wide.fingerprint()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_inference_has_no_second_copy(dtype, half):
    model = made(BiEncoder, half("qwen3"), weights_dtype="auto", dtype=dtype)
    model.score(SOME, SOME)
    stored = {p.data_ptr() for p in model.parameters()}
    assert model.candidate_tower is model.context_tower, "two towers that start alike are one"
    assert len(model._copies) == 1
    ((_, copied),) = model._copies.values()
    extra = sum(p.numel() for p in copied.parameters() if p.data_ptr() not in stored)
    assert extra < 0.02 * sum(p.numel() for p in model.parameters())  # norms and biases


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("trainable", [True, False])
def test_a_saved_model_keeps_its_dtype_and_its_fingerprint(family, trainable, half, tmp_path):
    model = made(BiEncoder, half(family), weights_dtype="auto", projection=8)
    model.save_pretrained(tmp_path / "model")
    stored = load_file(tmp_path / "model/model.safetensors")
    kinds = {name.partition(".")[0]: tensor.dtype for name, tensor in stored.items()}
    assert kinds["context_tower"] == kinds["candidate_tower"] == torch.bfloat16
    assert kinds["context_projection"] == torch.float32
    assert fingerprint_of(tmp_path / "model") == model.fingerprint()
    again = load_model(tmp_path / "model", weights_dtype="auto", trainable=trainable, **CPU)
    assert {p.dtype for p in again.context_tower.parameters()} == {torch.bfloat16}
    assert again.fingerprint() == model.fingerprint()
    assert torch.allclose(again.score(SOME, SOME), model.score(SOME, SOME), atol=1e-5)
    wide = load_model(tmp_path / "model", **CPU)
    assert {p.dtype for p in wide.parameters()} == {torch.float32}
    assert wide.fingerprint() == model.fingerprint(), "the values are the same"
    again.save_pretrained(tmp_path / "again")
    assert load_file(tmp_path / "again/model.safetensors").keys() == stored.keys()


def test_other_architectures_and_two_bases_keep_it(half, bert, tmp_path):
    made(BiEncoder, half("bert"), weights_dtype="auto").save_pretrained(tmp_path / "bi")
    for model_class in (PolyEncoder, CrossEncoder):
        derived = made(model_class, tmp_path / "bi", weights_dtype="auto")
        assert {p.dtype for p in derived.towers[0].parameters()} == {torch.bfloat16}
        wide = made(model_class, tmp_path / "bi")
        wide.load_state_dict(derived.state_dict())
        scores = derived.score(SOME, SOME[:2])
        assert torch.allclose(scores, wide.score(SOME, SOME[:2]), rtol=1e-4, atol=1e-4)
    for source in (half("bert"), tmp_path / "bi"):
        two = made(BiEncoder, source, candidate_base=half("qwen3"), weights_dtype="auto")
        assert {p.dtype for p in two.parameters()} == {torch.bfloat16}
        assert two.candidate_tower is not two.context_tower
    rounded = made(BiEncoder, bert, weights_dtype="bfloat16", projection=8)
    assert {p.dtype for p in rounded.context_tower.parameters()} == {torch.bfloat16}
    assert made(BiEncoder, bert, weights_dtype="auto").context_tower.encoder.dtype == torch.float32


def test_an_index_is_built_and_opened(half, tmp_path):
    model = made(BiEncoder, half("qwen3"), weights_dtype="auto")
    index = Index.build(model, SOME, tmp_path / "index")
    found = index.search("how do i read a file", top_k=1)
    opened = Index.open(tmp_path / "index").search("how do i read a file", top_k=1)
    assert found[0].id == opened[0].id == "0"


def test_float16_is_kept_too(half, tmp_path):
    load_encoder(half("bert")).to(torch.float16).save_pretrained(tmp_path)
    from polyrank.models.backbone import load_tokenizer

    load_tokenizer(half("bert")).save_pretrained(tmp_path)
    model = made(BiEncoder, tmp_path, weights_dtype="auto")
    assert model.context_tower.encoder.dtype == torch.float16
    assert torch.allclose(model.score(SOME, SOME), made(BiEncoder, tmp_path).score(SOME, SOME))
    model.save_pretrained(tmp_path / "model")
    assert fingerprint_of(tmp_path / "model") == model.fingerprint()


def test_it_is_not_trained(half, tmp_path):
    model = made(BiEncoder, half("bert"), weights_dtype="auto")
    rows = [{"question": f"what is file {row}", "answer": f"a list {row}"} for row in range(8)]
    with pytest.raises(UsageError, match="kept in bfloat16"):
        polyrank.train(model, rows, tmp_path / "out", max_steps=1, show_progress_bar=False)
    assert not (tmp_path / "out").exists()


def test_an_unknown_dtype_is_refused(bert):
    with pytest.raises(UsageError, match="weights_dtype must be one of"):
        made(BiEncoder, bert, weights_dtype="bf16")
