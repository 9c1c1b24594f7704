"""Folders of sentence-transformers: written by hand in both forms, and by the package itself."""

import json
import shutil
import warnings

import pytest
import torch
from safetensors.torch import save_file

from polyrank.errors import ModelError
from polyrank.models.bi_encoder import BiEncoder
from polyrank.models.checkpoint import load_model
from polyrank.models.cross_encoder import CrossEncoder
from polyrank.models.poly_encoder import PolyEncoder
from polyrank.models.source import default_base
from tiny_encoders import TEXTS, load_variant

CPU = {"device": "cpu", "dtype": "float32"}
LEGACY = "sentence_transformers.models"
NEW = {
    "Transformer": "sentence_transformers.base.modules.transformer.Transformer",
    "Pooling": "sentence_transformers.sentence_transformer.modules.pooling.Pooling",
    "Normalize": "sentence_transformers.base.modules.normalize.Normalize",
    "Dense": "sentence_transformers.base.modules.dense.Dense",
}


def write_json(path, value):
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(value))


def write_modules(folder, *kinds, legacy):
    """`modules.json`, the first module in the folder itself, the others below it."""
    modules = []
    for number, kind in enumerate(kinds):
        path = f"{number}_{kind}" if number else ""
        name = f"{LEGACY}.{kind}" if legacy else NEW.get(kind, f"elsewhere.{kind}")
        modules.append({"idx": number, "name": str(number), "path": path, "type": name})
        (folder / path).mkdir(exist_ok=True)
    write_json(folder / "modules.json", modules)


@pytest.fixture(params=["legacy", "new"])
def legacy(request):
    return request.param == "legacy"


@pytest.fixture
def folder(own_bert):
    return own_bert


def write_pooling(folder, mode, legacy):
    if legacy:
        keys = ("cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens", "lasttoken")
        named = {"cls": "cls_token", "mean": "mean_tokens", "max": "max_tokens"}.get(mode, mode)
        described = {f"pooling_mode_{key}": key == named for key in keys}
        write_json(
            folder / "1_Pooling" / "config.json", {"word_embedding_dimension": 32} | described
        )
        write_json(folder / "sentence_bert_config.json", {"max_seq_length": 17})
    else:
        described = {"embedding_dimension": 32, "pooling_mode": mode, "include_prompt": True}
        write_json(folder / "1_Pooling" / "config.json", described)
        task = {"transformer_task": "feature-extraction", "module_output_name": "token_embeddings"}
        write_json(folder / "sentence_bert_config.json", task)
        path = folder / "tokenizer_config.json"
        write_json(path, json.loads(path.read_text()) | {"model_max_length": 17})


def write_dense(folder, place, weight, **described):
    identity = "torch.nn.modules.linear.Identity"
    features = {"in_features": 32, "out_features": len(weight), "bias": False}
    write_json(place / "config.json", {**features, "activation_function": identity, **described})
    save_file({"linear.weight": weight}, place / "model.safetensors")


@pytest.mark.parametrize(
    ("mode", "reduction"), [("cls", "first"), ("mean", "mean"), ("max", "max")]
)
def test_pooling_and_length_are_taken_over(folder, legacy, mode, reduction):
    write_modules(folder, "Transformer", "Pooling", "Normalize", legacy=legacy)
    write_pooling(folder, mode, legacy)
    for model in (BiEncoder.from_pretrained(folder, **CPU), load_model(folder, **CPU)):
        assert model.config.reduction == reduction
        assert model.config.similarity == "cosine"
        assert (model.config.max_context_length, model.config.max_candidate_length) == (17, 17)
    plain = load_variant("bi", folder.parent / "own_bert", reduction=reduction)
    plain.candidate_tower.load_state_dict(plain.context_tower.state_dict())
    if mode == "mean":
        torch.testing.assert_close(
            model.encode_candidates(TEXTS[:4]), plain.encode_candidates(TEXTS[:4])
        )


def test_what_is_asked_for_goes_before_what_is_taken_over(folder, legacy):
    write_modules(folder, "Transformer", "Pooling", legacy=legacy)
    write_pooling(folder, "mean", legacy)
    model = BiEncoder.from_pretrained(folder, reduction="first", max_context_length=9)
    assert (model.config.reduction, model.config.max_context_length) == ("first", 9)


@pytest.mark.parametrize(
    ("kinds", "name", "similarity", "temperature"),
    [
        (["Normalize"], None, "cosine", 0.05),
        (["Normalize"], "dot", "cosine", 0.05),
        ([], None, "cosine", 0.05),
        ([], "cosine", "cosine", 0.05),
        ([], "dot", "dot", 1.0),
    ],
)
def test_the_similarity_is_taken_over(folder, kinds, name, similarity, temperature):
    write_modules(folder, "Transformer", "Pooling", *kinds, legacy=True)
    write_pooling(folder, "mean", True)
    write_json(folder / "config_sentence_transformers.json", {"similarity_fn_name": name})
    config = BiEncoder.from_pretrained(folder, **CPU).config
    assert (config.similarity, config.temperature) == (similarity, temperature)


def test_a_dense_layer_is_taken_over(folder, legacy):
    weight = torch.randn(6, 32, generator=torch.Generator().manual_seed(0))
    write_modules(folder, "Transformer", "Pooling", "Dense", "Normalize", legacy=legacy)
    write_pooling(folder, "mean", legacy)
    write_dense(folder, folder / "2_Dense", weight)
    for model_class in (BiEncoder, PolyEncoder):
        model = model_class.from_pretrained(folder, **CPU)
        assert torch.equal(model.context_dense[0].linear.weight, weight)
        assert torch.equal(model.candidate_dense[0].linear.weight, weight)
        assert model.dimension == 6
    above = BiEncoder.from_pretrained(folder, projection=5, **CPU)
    assert torch.equal(above.context_dense[0].linear.weight, weight)
    assert above.encode_candidates(["yes"]).shape == (1, 5)
    assert BiEncoder.from_pretrained(folder, dense=(), **CPU).dimension == 32
    assert CrossEncoder.from_pretrained(folder, **CPU).score("a", ["b"]).shape == (1,)


def test_a_transformer_in_a_folder_of_its_own(folder, tmp_path):
    outer = tmp_path / "outer"
    outer.mkdir()
    write_modules(outer, "Transformer", "Pooling", legacy=True)
    write_pooling(outer, "max", True)
    modules = json.loads((outer / "modules.json").read_text())
    modules[0]["path"] = "0_Transformer"
    write_json(outer / "modules.json", modules)
    shutil.copytree(folder, outer / "0_Transformer")
    assert load_model(outer, **CPU).config.reduction == "max"


@pytest.mark.parametrize(
    ("described", "words"),
    [
        ({"activation_function": "torch.nn.modules.activation.GLU"}, "the activation torch.*GLU"),
        ({"activation_function": "os.system"}, "the activation os.system, which"),
        ({"use_residual": True}, "a residual connection, which"),
        ({"module_input_name": "token_embeddings"}, "turns token_embeddings into"),
    ],
)
def test_a_dense_layer_of_another_kind_is_refused(folder, described, words):
    write_modules(folder, "Transformer", "Pooling", "Dense", legacy=True)
    write_pooling(folder, "mean", True)
    write_dense(folder, folder / "2_Dense", torch.zeros(6, 32), **described)
    with pytest.raises(ModelError, match=words):
        BiEncoder.from_pretrained(folder)


def test_a_dense_layer_without_weights_or_with_others_is_refused(folder):
    write_modules(folder, "Transformer", "Pooling", "Dense", legacy=True)
    write_pooling(folder, "mean", True)
    write_dense(folder, folder / "2_Dense", torch.zeros(6, 31))
    with pytest.raises(ModelError, match=r"misshapen: linear\.weight"):
        BiEncoder.from_pretrained(folder)
    (folder / "2_Dense" / "model.safetensors").unlink()
    with pytest.raises(ModelError, match="cannot be read"):
        BiEncoder.from_pretrained(folder)
    (folder / "2_Dense" / "pytorch_model.bin").write_bytes(b"pickle")
    with pytest.raises(ModelError, match="only there as pytorch_model"):
        BiEncoder.from_pretrained(folder)


def test_a_pooling_that_is_not_known_is_refused(folder, legacy):
    write_modules(folder, "Transformer", "Pooling", legacy=legacy)
    write_json(folder / "1_Pooling" / "config.json", {"pooling_mode": "median"})
    with pytest.raises(ModelError, match=r"pools by median, which polyrank does not support\."):
        load_model(folder)


def test_several_poolings_at_once_are_refused(folder):
    write_modules(folder, "Transformer", "Pooling", legacy=True)
    for described in (
        {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": True},
        {"pooling_mode": ["cls", "mean"]},
    ):
        write_json(folder / "1_Pooling" / "config.json", described)
        with pytest.raises(ModelError, match="joins 2 poolings to one vector, cls and mean"):
            load_model(folder)


@pytest.mark.parametrize(
    "kinds",
    [
        ["Transformer", "LSTM"],
        ["Transformer", "Pooling", "LayerNorm"],
        ["WordEmbeddings", "Pooling"],
        ["CLIPModel"],
        ["Transformer", "WeightedLayerPooling", "Pooling"],
        ["Transformer", "SpladePooling"],
    ],
)
def test_other_modules_are_refused(folder, kinds):
    write_modules(folder, *kinds, legacy=True)
    write_pooling(folder, "mean", True)
    known = {"Transformer", "Pooling"}
    (other,) = (kind for kind in kinds if kind not in known)
    with pytest.raises(ModelError, match=f"has a module {other}, which polyrank does not"):
        load_model(folder)


@pytest.mark.parametrize(
    "kinds",
    [
        ["Transformer"],
        ["Transformer", "Normalize"],
        ["Transformer", "Pooling", "Normalize", "Dense"],
        ["Transformer", "Dense", "Pooling"],
        ["Pooling", "Transformer"],
    ],
)
def test_modules_in_another_order_are_refused(folder, kinds):
    write_modules(folder, *kinds, legacy=True)
    with pytest.raises(ModelError, match=f"has the modules {', '.join(kinds)} in this order"):
        load_model(folder)


def test_code_of_others_is_not_run(folder):
    write_modules(folder, "Transformer", "Pooling", legacy=True)
    modules = json.loads((folder / "modules.json").read_text())
    modules[0]["type"] = "custom_st.Transformer"
    write_json(folder / "modules.json", modules)
    with pytest.raises(ModelError, match=r"needs the code of a module custom_st\.Transformer"):
        load_model(folder)


@pytest.mark.parametrize("path", ["../elsewhere", "/etc"])
def test_a_module_outside_of_the_folder_is_refused(folder, path):
    write_modules(folder, "Transformer", "Pooling", legacy=True)
    modules = json.loads((folder / "modules.json").read_text())
    modules[1]["path"] = path
    write_json(folder / "modules.json", modules)
    with pytest.raises(ModelError, match="outside of the folder"):
        load_model(folder)


@pytest.mark.parametrize(
    ("described", "words"),
    [
        ({"transformer_task": "fill-mask"}, "is loaded for fill-mask"),
        ({"modality_config": {"message": {}}}, "reads texts as"),
        ({"module_output_name": "sentence_embedding"}, "gives its sentence_embedding"),
        ({"query_expansion": {"length": 32}}, "has query_expansion"),
        ({"config_args": {"num_hidden_layers": 1}}, "config in .* with num_hidden_layers"),
        ({"tokenizer_args": {"add_eos_token": True}}, "processor in .* with add_eos_token"),
        ({"processing_kwargs": {"common": {"a": 1}}}, "has processing_kwargs"),
    ],
)
def test_an_encoder_used_in_another_way_is_refused(folder, described, words):
    write_modules(folder, "Transformer", "Pooling", legacy=False)
    write_pooling(folder, "mean", False)
    write_json(folder / "sentence_bert_config.json", described)
    with pytest.raises(ModelError, match=f"{words}.*, which polyrank does not support"):
        load_model(folder)


@pytest.mark.parametrize("distance", ["euclidean", "manhattan"])
def test_distances_are_refused(folder, distance):
    write_modules(folder, "Transformer", "Pooling", legacy=True)
    write_pooling(folder, "mean", True)
    write_json(folder / "config_sentence_transformers.json", {"similarity_fn_name": distance})
    with pytest.raises(ModelError, match=f"by their {distance} distance"):
        load_model(folder)


@pytest.mark.parametrize("kind", ["SparseEncoder", "MultiVectorEncoder"])
def test_models_of_other_kinds_are_refused(folder, kind):
    write_modules(folder, "Transformer", "Pooling", legacy=True)
    write_pooling(folder, "mean", True)
    write_json(folder / "config_sentence_transformers.json", {"model_type": kind})
    with pytest.raises(ModelError, match=f"holds a {kind} of sentence-transformers"):
        load_model(folder)


@pytest.mark.parametrize("name", ["config_sentence_transformers.json", "sentence_bert_config.json"])
@pytest.mark.parametrize("text", ["{", "[]"])
def test_a_broken_description(folder, name, text):
    write_modules(folder, "Transformer", "Pooling", legacy=True)
    write_pooling(folder, "mean", True)
    (folder / name).write_text(text)
    with pytest.raises(ModelError, match=name):
        load_model(folder)


@pytest.mark.parametrize("text", ["{", "{}", "[7]", '[{"type": "x"}]'])
def test_a_broken_list_of_modules(folder, text):
    (folder / "modules.json").write_text(text)
    with pytest.raises(ModelError, match=r"modules\.json"):
        load_model(folder)


@pytest.mark.parametrize("mode", ["mean", "cls", "max"])
@pytest.mark.parametrize("end", ["", "normalize", "dense"])
def test_the_package_encodes_alike(bert, tmp_path, mode, end):
    pytest.importorskip("sentence_transformers")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        from sentence_transformers import SentenceTransformer
        from sentence_transformers.models import Dense, Normalize, Pooling, Transformer
    modules = [Transformer(str(bert)), Pooling(32, mode)]
    if end == "dense":
        identity = torch.nn.Identity()
        modules.append(Dense(32, 6, bias=False, activation_function=identity))
    if end:
        modules.append(Normalize())
    theirs = SentenceTransformer(modules=modules, device="cpu")
    theirs.save(str(tmp_path / "saved"))
    ours = load_model(tmp_path / "saved", **CPU)
    expected = torch.from_numpy(theirs.encode(TEXTS))
    for encode in (ours.encode_candidates, ours.encode_contexts):
        require_alike(encode(TEXTS), expected)
        require_alike(encode(TEXTS[2]), expected[2])
    similarities = theirs.similarity(expected, expected)
    torch.testing.assert_close(ours.score(TEXTS, TEXTS), similarities, atol=1e-5, rtol=0)
    pairs = list(zip(TEXTS, reversed(TEXTS), strict=True))
    torch.testing.assert_close(
        ours.score_pairs(pairs),
        theirs.similarity_pairwise(expected, expected.flip(0)),
        atol=1e-5,
        rtol=0,
    )


def require_alike(ours, theirs):
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)


def test_minilm_encodes_as_sentence_transformers_does():
    package = pytest.importorskip("sentence_transformers")
    try:
        folder = default_base()
    except ModelError as missing:
        pytest.skip(missing.problem)
    theirs = package.SentenceTransformer(str(folder), device="cpu", local_files_only=True)
    ours = load_model(folder, **CPU)
    expected = torch.from_numpy(theirs.encode(TEXTS))
    for encode in (ours.encode_candidates, ours.encode_contexts):
        require_alike(encode(TEXTS), expected)
        require_alike(encode(TEXTS[0]), torch.from_numpy(theirs.encode(TEXTS[0])))


def cached(monkeypatch, cache, folder, name):
    """Put a folder into a cache of the hub, as if it had been fetched, and switch the hub off."""
    from huggingface_hub import constants

    kept = cache / f"models--{name.replace('/', '--')}"
    (kept / "refs").mkdir(parents=True)
    (kept / "refs" / "main").write_text("0" * 40)
    shutil.copytree(folder, kept / "snapshots" / ("0" * 40))
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(cache))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)


def test_a_hub_id_brings_its_pooling_like_a_folder(folder, tmp_path, monkeypatch, legacy):
    write_modules(folder, "Transformer", "Pooling", legacy=legacy)
    write_pooling(folder, "cls", legacy)
    cached(monkeypatch, tmp_path / "cache", folder, "some/encoder")
    expected = BiEncoder.from_pretrained(folder, **CPU).encode_candidates(TEXTS)
    for model in (
        BiEncoder.from_pretrained("some/encoder", **CPU),
        load_model("some/encoder", **CPU),
    ):
        assert model.config.reduction == "first"
        assert model.path is None
        assert torch.equal(model.encode_candidates(TEXTS), expected)


def test_a_hub_id_of_a_saved_model_is_that_model(bert, tmp_path, monkeypatch):
    made = PolyEncoder.from_pretrained(bert, num_codes=4, **CPU)
    made.save_pretrained(tmp_path / "model")
    cached(monkeypatch, tmp_path / "cache", tmp_path / "model", "some/model")
    model = load_model("some/model", **CPU)
    assert isinstance(model, PolyEncoder)
    assert model.fingerprint() == made.fingerprint()
