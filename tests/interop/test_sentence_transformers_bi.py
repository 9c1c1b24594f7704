"""Bi-encoders as SentenceTransformer loads them: the same vectors, and back again."""

import numpy as np
import pytest
import torch

import polyrank
from polyrank.errors import UsageError
from polyrank.models.adapters.folders import find_bases
from polyrank.models.adapters.layers import adapter_parameters, attach
from polyrank.models.bi_encoder import BiEncoder
from polyrank.models.checkpoint import load_model
from polyrank.models.config import DenseLayer
from polyrank.models.static.embeddings import from_words
from tiny_encoders import (
    DECODERS,
    FAMILIES,
    LONG,
    OTHER_FAMILIES,
    TEXTS,
    load_variant,
)

sentence_transformers = pytest.importorskip("sentence_transformers")
CPU = {"device": "cpu", "dtype": "float32"}
ALL = [*TEXTS, LONG]


UNPOOLED = {"shared_towers": True, "context_prompt": "what is ", "pool_prompt": False}


def require_back(path, model, texts=ALL):
    """The folder is the same model here."""
    again = load_model(path, **CPU)
    torch.testing.assert_close(again.encode_contexts(texts), model.encode_contexts(texts))
    torch.testing.assert_close(again.encode_candidates(texts), model.encode_candidates(texts))


def exported(model, path, **settings):
    """What their library loads, bare."""
    polyrank.export(model, path, to="sentence-transformers", **settings)
    return sentence_transformers.SentenceTransformer(str(path), device="cpu")


DENSE = (
    DenseLayer(dimension=12, activation="tanh"),
    DenseLayer(dimension=10, bias=False, activation="gelu"),
)


def require_equal(theirs, model, texts=ALL):
    for encode, expected in (
        (theirs.encode_query, model.encode_contexts(texts)),
        (theirs.encode_document, model.encode_candidates(texts)),
    ):
        np.testing.assert_allclose(encode(texts), expected.numpy(), atol=1e-5)


@pytest.mark.parametrize(
    ("family", "shared"),
    [
        *((family, False) for family in (*FAMILIES, *OTHER_FAMILIES)),
        ("bert", True),
        ("qwen3", True),
    ],
)
def test_vectors_are_equal(family, shared, encoder_folder, tmp_path):
    settings = {} if shared else {"max_context_length": 20}
    if family in DECODERS:
        settings |= {"reduction": "last", "context_prompt": "what is "}
    model = load_variant("bi", encoder_folder(family), shared_towers=shared, **settings)
    theirs = exported(model, tmp_path / "out")
    require_equal(theirs, model)
    require_back(tmp_path / "out", model)
    assert theirs.similarity_fn_name == "cosine"


@pytest.mark.parametrize(
    "settings",
    [
        {"reduction": "first"},
        {"reduction": "max", "projection": 7},
        {"similarity": "dot"},
        {"projection": 40, "similarity": "dot"},
        {"reduction": "last", "candidate_reduction": "weighted_mean"},
        {"reduction": "mean_sqrt", "similarity": "dot"},
        {"truncate_dim": 5},
        {"truncate_dim": 5, "projection": 9, "similarity": "dot"},
        {"dense": DENSE},
        {"dense": DENSE, "projection": 6, "truncate_dim": 4},
        {"context_prompt": "what is ", "candidate_prompt": "a sign of "},
        *(
            {**UNPOOLED, "reduction": reduction}
            for reduction in ("first", "mean", "last", "max", "mean_sqrt", "weighted_mean")
        ),
        {"context_truncation": "left", "candidate_truncation": "left", "max_context_length": 9},
    ],
)
def test_settings_are_kept(settings, bert, tmp_path):
    model = load_variant("bi", bert, **settings)
    theirs = exported(model, tmp_path / "out")
    require_equal(theirs, model)
    require_back(tmp_path / "out", model, TEXTS)
    assert theirs.similarity_fn_name == model.config.similarity
    assert theirs.get_embedding_dimension() == model.dimension


def test_weights_stay_in_bfloat16(bert, tmp_path):
    model = load_variant("bi", bert, weights_dtype="bfloat16", projection=6)
    made = polyrank.export(model, tmp_path / "out", to="sentence-transformers")
    assert "The encoder's weights are bfloat16" in made.notes[-1]
    size = (tmp_path / "out" / "query_0_Transformer" / "model.safetensors").stat().st_size
    numbers = sum(each.numel() for each in model.context_tower.parameters())
    assert size < 3 * numbers
    theirs = sentence_transformers.SentenceTransformer(
        str(tmp_path / "out"), device="cpu", model_kwargs={"dtype": torch.float32}
    )
    require_equal(theirs, model)
    model.save_pretrained(tmp_path / "model")
    polyrank.export(tmp_path / "model", tmp_path / "again", to="sentence-transformers")
    for file in (tmp_path / "out").rglob("*.safetensors"):
        again = tmp_path / "again" / file.relative_to(tmp_path / "out")
        assert again.read_bytes() == file.read_bytes()


@pytest.mark.parametrize("has_base", [False, True])
def test_adapters_are_merged(has_base, bert, tmp_path):
    pytest.importorskip("peft")
    model = BiEncoder.from_pretrained(bert, shared_towers=False, **CPU)
    bases = find_bases(model)
    attach(model, rank=2, alpha=2)
    with torch.no_grad():
        for parameter in adapter_parameters(model):
            parameter.normal_(std=0.3)
    if has_base:  # saved as adapters alone, of both sides
        model.bases = bases
        model.save_pretrained(tmp_path / "lora")
        polyrank.export(tmp_path / "lora", tmp_path / "out", to="sentence-transformers")
    else:
        polyrank.export(model, tmp_path / "out", to="sentence-transformers")
    theirs = sentence_transformers.SentenceTransformer(str(tmp_path / "out"), device="cpu")
    require_equal(theirs, model)
    plain = BiEncoder.from_pretrained(bert, **CPU)
    assert (plain.encode_contexts(TEXTS) - model.encode_contexts(TEXTS)).abs().max() > 0.01


def test_one_encoder_with_two_reductions_and_prompts(bert, tmp_path):
    settings = {"reduction": "first", "candidate_reduction": "max", "context_prompt": "what is "}
    model = load_variant("bi", bert, shared_towers=True, **settings)
    theirs = exported(model, tmp_path / "out")
    require_equal(theirs, model)
    require_back(tmp_path / "out", model)
    assert theirs.prompts["query"] == "what is "


def test_one_prompt_for_both_sides_is_the_default(bert, tmp_path):
    prompts = {"context_prompt": "what is ", "candidate_prompt": "what is "}
    model = load_variant("bi", bert, shared_towers=True, **prompts)
    theirs = exported(model, tmp_path / "out")
    require_equal(theirs, model)
    np.testing.assert_allclose(theirs.encode(ALL), model.encode_candidates(ALL), atol=1e-5)


def test_two_encoders_of_different_kinds(encoder_folder, tmp_path):
    model = BiEncoder.from_pretrained(
        encoder_folder("bert"), candidate_base=encoder_folder("roberta"), projection=6, **CPU
    )
    theirs = exported(model, tmp_path / "out")
    require_equal(theirs, model)
    require_back(tmp_path / "out", model)


def test_one_length_is_noted(bert, tmp_path):
    lengths = {"max_context_length": 30, "max_candidate_length": 12}
    model = load_variant("bi", bert, shared_towers=True, **lengths)
    made = polyrank.export(model, tmp_path / "out", to="sentence-transformers")
    assert any("cut at 30 tokens" in note for note in made.notes)
    assert all(note in (tmp_path / "out" / "README.md").read_text() for note in made.notes)
    theirs = sentence_transformers.SentenceTransformer(str(tmp_path / "out"), device="cpu")
    assert theirs.max_seq_length == 30
    np.testing.assert_allclose(theirs.encode(ALL), model.encode_contexts(ALL), atol=1e-5)


def test_the_candidates_alone(bert, tmp_path):
    for variant in ("bi", "poly-learnt"):
        model = load_variant(variant, bert, projection=6)
        theirs = exported(model, tmp_path / variant, only_candidates=True)
        np.testing.assert_allclose(theirs.encode(ALL), model.encode_candidates(ALL), atol=1e-5)


def test_a_reduction_that_they_do_not_have_is_refused(bert, tmp_path):
    model = load_variant("bi", bert, reduction="mean_first")
    with pytest.raises(UsageError, match="cannot express reduction = mean_first"):
        polyrank.export(model, tmp_path / "out", to="sentence-transformers")
    assert not (tmp_path / "out").exists()


def test_a_classifier_is_left_out_with_a_note(bert, tmp_path):
    model = load_variant("bi", bert)
    model.take_classifier(polyrank.models.config.ClassifierConfig(classes=("no", "yes")))
    made = polyrank.export(model, tmp_path / "out", to="sentence-transformers")
    assert any("classifier is not exported" in note for note in made.notes)


@pytest.mark.parametrize("shared", [True, False])
def test_static_embeddings(shared, tmp_path):
    words = ["how", "do", "i", "read", "a", "file", "the", "kernel"]
    backbone, tokenizer = from_words(words, np.random.default_rng(0).normal(size=(8, 5)))
    config = polyrank.BiEncoderConfig(shared_towers=shared, max_candidate_length=4)
    model = BiEncoder(backbone, tokenizer, config).eval()
    if not shared:
        with torch.no_grad():
            model.candidate_tower.encoder.embeddings.weight.mul_(torch.rand(9, 5))
    theirs = exported(model, tmp_path / "out")
    texts = ["how do i read a file", "unknown words", "the unknown kernel", ""]
    np.testing.assert_allclose(theirs.encode_query(texts), model.encode_contexts(texts), atol=1e-5)
    np.testing.assert_allclose(
        theirs.encode_document(texts[1:]), model.encode_candidates(texts[1:]), atol=1e-5
    )


def test_static_embeddings_whose_length_matters_are_refused(tmp_path):
    backbone, tokenizer = from_words(["a", "b"], np.ones((2, 3)))
    model = BiEncoder(
        backbone, tokenizer, polyrank.BiEncoderConfig(shared_towers=True, similarity="dot")
    )
    with pytest.raises(UsageError, match="averages unknown words too"):
        polyrank.export(model, tmp_path / "out", to="sentence-transformers")


def test_the_card_names_library_and_origin(bert, tmp_path):
    model = load_variant("bi", bert)
    card = "---\nbase_model: some/base\ndatasets: [one]\nlicense: mit\n---\n\n# A model\n"
    model.save_pretrained(tmp_path / "model", extra={"README.md": card})
    polyrank.export(model, tmp_path / "out", to="sentence-transformers")
    from huggingface_hub import ModelCard

    written = ModelCard((tmp_path / "out" / "README.md").read_text())
    said = written.data.to_dict()
    assert said["library_name"] == "sentence-transformers"
    assert (said["base_model"], said["datasets"], said["license"]) == ("some/base", ["one"], "mit")
    assert "model.encode_query(" in written.text
    assert 'SentenceTransformer("path/to/this/folder")' in written.text
