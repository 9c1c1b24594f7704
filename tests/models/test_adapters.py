"""LoRA: adapters in memory, on disk and of others; what peft and sentence-transformers read."""

import json
import shutil
import sys
import warnings

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch.nn import functional
from transformers import (
    AutoConfig,
    AutoModel,
    DebertaV2Config,
    Gemma3TextConfig,
    MistralConfig,
    MPNetConfig,
    Qwen3Config,
)

from polyrank import BiEncoder, CrossEncoder, PolyEncoder, load_model
from polyrank.errors import MissingExtraError, ModelError, UsageError
from polyrank.models.adapters import layers
from polyrank.models.adapters.folders import find_bases
from polyrank.models.adapters.layers import (
    TARGETS,
    adapter_parameters,
    attach,
    is_adapted,
    lora_layers,
    merge,
    merged_copy,
    merged_weight,
    targets_of,
)
from polyrank.models.backbone import Backbone
from polyrank.models.bert import VARIANT
from tiny_encoders import TEXTS, WIDTH, build_encoder_folder, config_of, load_variant

SIZES = {
    "vocab_size": 99,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "pad_token_id": 0,
}
DECODER = {**SIZES, "num_key_value_heads": 1, "head_dim": 8}
CONFIGS = {
    **{name: config_of(name, 99) for name in ("bert", "electra", "distilbert", "modernbert")},
    "roberta": config_of("roberta", 99),
    "mpnet": MPNetConfig(**SIZES),
    "deberta-v2": DebertaV2Config(**SIZES, pos_att_type=["c2p"], relative_attention=True),
    "qwen3": Qwen3Config(**DECODER),
    "mistral": MistralConfig(**DECODER),
    "gemma3_text": Gemma3TextConfig(**DECODER),
}
IN_A_LAYER = {"distilbert": 6, "modernbert": 4, "qwen3": 7, "mistral": 7, "gemma3_text": 7}


THEIRS = pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing:FutureWarning")
"""For tests that call peft, which has not followed transformers yet."""


def backbone_of(family):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return Backbone(AutoModel.from_config(CONFIGS[family]))


def adapted(folder, *, variant="bi", rank=3, alpha=6.0, seed=5, **settings):
    """A model with adapters whose weights are far from their start, and their bases."""
    model_class, own = {
        "bi": (BiEncoder, {}),
        "poly": (PolyEncoder, {"num_codes": 3}),
        "cross": (CrossEncoder, {"head": "linear"}),
        "pooler": (CrossEncoder, {"head": "pooler"}),
        "interaction": (CrossEncoder, {"head": "interaction"}),
    }[variant]
    torch.manual_seed(1)
    model = model_class.from_pretrained(folder, device="cpu", dtype="float32", **own, **settings)
    model.bases = find_bases(model)
    torch.manual_seed(seed)
    attach(model, rank=rank, alpha=alpha)
    with torch.no_grad():
        for tower in model.towers:
            for parameter in adapter_parameters(tower):
                parameter.normal_(std=0.2)
    return model


@pytest.mark.parametrize("family", CONFIGS)
def test_adapters_are_on_all_linear_maps_of_the_layers_and_on_nothing_else(family):
    backbone = backbone_of(family)
    attach_to(backbone, targets_of(backbone))
    names = [name for name, _ in lora_layers(backbone)]
    assert len(names) == 2 * IN_A_LAYER.get(family, 6), names
    assert not [name for name in names if "embed" in name or "pooler" in name]


def attach_to(backbone, targets):
    import peft

    config = peft.LoraConfig(r=2, target_modules=targets)
    peft.inject_adapter_in_model(config, backbone.encoder)


def test_an_unknown_family_gets_adapters_on_all_linear_layers(monkeypatch):
    backbone = backbone_of("bert")
    monkeypatch.delitem(TARGETS, "bert")
    linear = [n for n, m in backbone.encoder.named_modules() if isinstance(m, torch.nn.Linear)]
    assert targets_of(backbone) == linear == targets_of(backbone, ("all-linear",))
    assert targets_of(backbone, ("query", "layer.1.output.dense")) == [
        "query",
        "layer.1.output.dense",
    ]
    with pytest.raises(UsageError, match=r"no linear layer of the bert encoder.*'query'"):
        targets_of(backbone, ("key", "querry"))


def test_all_linear_layers_stay_all_even_where_peft_shortens_their_list(bert, tmp_path):
    model = BiEncoder.from_pretrained(bert, device="cpu", dtype="float32", shared_towers=True)
    attach(model, rank=2, alpha=2, targets=("all-linear",))
    assert len(model.context_tower.encoder.peft_config["default"].target_modules) == 12


@pytest.mark.parametrize("variant", ["poly", "interaction"])
def test_two_towers_have_an_adapter_each_over_weights_that_are_there_once(variant, bert):
    plain = adapted_free(bert, variant)
    size = sum(p.numel() for p in plain.towers[0].parameters())
    above = sum(p.numel() for p in plain.parameters()) - 2 * size
    model = adapted(bert, variant=variant)
    first, second = model.towers
    others = dict(second.named_parameters())
    own = {id(p) for tower in model.towers for p in adapter_parameters(tower)}
    for name, parameter in first.named_parameters():
        if id(parameter) not in own:
            assert parameter.data_ptr() == others[name].data_ptr(), name
            assert not parameter.requires_grad
    adapters = sum(p.numel() for tower in model.towers for p in adapter_parameters(tower))
    assert sum(p.numel() for p in model.parameters()) == size + adapters + above
    assert adapters == 2 * 2 * 3 * (4 * 2 * WIDTH + 2 * (WIDTH + 48))
    assert {name for tower in model.towers for name in tower.encoder.peft_config} == {
        "context",
        "candidate",
    }


def adapted_free(folder, variant):
    model = adapted(folder, variant=variant)
    merge(model)
    return model


def test_weights_that_differ_between_towers_are_not_shared(bert, tmp_path):
    load_variant("bi", bert).save_pretrained(tmp_path / "apart")
    model = BiEncoder.from_pretrained(tmp_path / "apart", device="cpu", dtype="float32")
    before = model.score(TEXTS, TEXTS)
    attach(model, rank=2, alpha=2)
    assert torch.equal(model.score(TEXTS, TEXTS), before)


@pytest.mark.parametrize("variant", ["bi", "poly", "interaction"])
def test_a_new_adapter_changes_no_score_and_a_merged_one_keeps_them(variant, bert):
    model = adapted(bert, variant=variant)
    with torch.no_grad():
        for tower in model.towers:
            for _, layer in lora_layers(tower):
                for part in layer.lora_B.values():
                    part.weight.zero_()
    fresh = model.score(TEXTS, TEXTS)
    merge(model)
    assert torch.equal(model.score(TEXTS, TEXTS), fresh)
    model = adapted(bert, variant=variant)
    apart = model.score(TEXTS, TEXTS)
    fingerprint = model.fingerprint()
    assert (apart - fresh).abs().max() > 1e-2
    merge(model)
    assert not is_adapted(model)
    assert torch.equal(model.score(TEXTS, TEXTS), apart)
    assert model.fingerprint() == fingerprint
    pointers = [p.data_ptr() for p in model.parameters()]
    assert len(set(pointers)) == len(pointers), "each tower has weights of its own again"
    assert all(parameter.requires_grad for parameter in model.parameters())


@THEIRS
def test_values_and_gradients_are_those_of_peft(bert):
    import peft

    model = adapted(bert, shared_towers=True)
    theirs = peft.get_peft_model(
        AutoModel.from_pretrained(bert, add_pooling_layer=False),
        peft.LoraConfig(r=3, lora_alpha=6, target_modules=list(TARGETS["bert"])),
    )
    encoder = model.context_tower.encoder
    own = {f"base_model.model.{name}": one for name, one in encoder.named_parameters()}
    with torch.no_grad():
        for name, parameter in theirs.named_parameters():
            parameter.copy_(own[name])
    batch = {"input_ids": torch.tensor([[2, 40, 41, 42, 3], [2, 50, 51, 3, 0]])}
    batch["attention_mask"] = batch["input_ids"].ne(0).long()
    outputs = model.context_tower(batch)
    expected = theirs(**batch).last_hidden_state
    torch.testing.assert_close(outputs, expected, rtol=1e-5, atol=1e-5)
    outputs.pow(3).sum().backward()
    expected.pow(3).sum().backward()
    trained = {name: one for name, one in theirs.named_parameters() if one.requires_grad}
    assert len(trained) == 24
    for name, parameter in trained.items():
        assert parameter.grad.any()
        torch.testing.assert_close(own[name].grad, parameter.grad, rtol=1e-4, atol=1e-4)
    assert {name for name, one in own.items() if one.grad is not None} == set(trained)


def test_merged_weights_are_the_formula_and_the_same_with_any_number_of_threads():
    a, b, weight = torch.randn(8, 300), torch.randn(200, 8), torch.randn(200, 300)
    merged = merged_weight(weight, a, b, 0.37)
    exact = weight.double() + 0.37 * (b.double() @ a.double())
    torch.testing.assert_close(merged.double(), exact, rtol=1e-5, atol=1e-5)
    threads = torch.get_num_threads()
    try:
        for number in (1, 2, 3):
            torch.set_num_threads(number)
            assert torch.equal(merged_weight(weight, a, b, 0.37), merged)
    finally:
        torch.set_num_threads(threads)
    assert merged_weight(weight.bfloat16(), a, b, 0.37).dtype == torch.bfloat16


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_inference_runs_on_merged_layers(dtype, bert):
    model = adapted(bert)
    model.place("cpu", dtype)
    apart = model.encode_contexts(TEXTS)
    kinds = {type(one).__name__ for one in model.for_inference("context_tower").modules()}
    merge(model)
    plain = {type(one).__name__ for one in model.for_inference("context_tower").modules()}
    assert kinds == plain
    assert torch.equal(model.encode_contexts(TEXTS), apart)


def test_a_step_of_the_adapters_makes_a_new_copy_for_inference(bert):
    model = adapted(bert, shared_towers=True)
    before, state = model.encode_contexts(TEXTS), model.weights_state()
    parameters = adapter_parameters(model.context_tower)
    optimiser = torch.optim.AdamW(parameters, lr=0.1, fused=True)
    for parameter in parameters:
        parameter.grad = torch.ones_like(parameter)
    optimiser.step()
    assert model.weights_state() != state
    assert (model.encode_contexts(TEXTS) - before).abs().max() > 1e-3


def equal_to(model, folder, **settings):
    """Whether a folder opens as an ordinary model with the scores of another."""
    opened = load_model(folder, device="cpu", dtype="float32", **settings)
    assert not is_adapted(opened)
    same = torch.equal(opened.score(TEXTS, TEXTS), model.score(TEXTS, TEXTS))
    return same and opened.fingerprint() == model.fingerprint()


@pytest.mark.parametrize("variant", ["poly", "cross", "interaction"])
def test_an_adapter_folder_opens_as_the_model_that_was_saved(variant, bert, tmp_path):
    model = adapted(bert, variant=variant)
    model.save_pretrained(tmp_path / "saved")
    assert equal_to(model, tmp_path / "saved")
    assert equal_to(model, tmp_path / "saved", trainable=False)
    weights = load_file(tmp_path / "saved" / "model.safetensors")
    assert not [name for name in weights if "tower" in name], "the base is not in the folder"
    opened = load_model(tmp_path / "saved", device="cpu", dtype="float32")
    opened.save_pretrained(tmp_path / "full")
    assert equal_to(model, tmp_path / "full"), "which is the adapter merged"
    assert not (tmp_path / "full" / "adapter_config.json").exists()


def test_an_adapter_folder_is_a_base_for_other_architectures_and_adapters(bert, tmp_path):
    model = adapted(bert, projection=6)
    model.save_pretrained(tmp_path / "bi")
    poly = PolyEncoder.from_pretrained(tmp_path / "bi", device="cpu", dtype="float32", num_codes=2)
    assert torch.equal(poly.encode_candidates(TEXTS), model.encode_candidates(TEXTS))
    above = adapted(tmp_path / "bi", seed=6)
    above.save_pretrained(tmp_path / "above")
    assert equal_to(above, tmp_path / "above")
    assert not equal_to(model, tmp_path / "above")


def test_towers_that_differ_have_the_bases_that_they_had(bert, tmp_path):
    load_variant("bi", bert).save_pretrained(tmp_path / "apart")
    model = adapted(tmp_path / "apart")
    model.save_pretrained(tmp_path / "saved")
    assert equal_to(model, tmp_path / "saved")


@THEIRS
def test_peft_and_transformers_read_the_adapter(bert, tmp_path):
    import peft

    model = adapted(bert, shared_towers=True)
    model.save_pretrained(tmp_path / "one")
    batch = model.tokenizer.pretrained(TEXTS, return_tensors="pt", padding=True)
    inputs = {name: batch[name] for name in ("input_ids", "attention_mask")}
    expected = model.context_tower(inputs)
    for read in (
        peft.PeftModel.from_pretrained(AutoModel.from_pretrained(bert), tmp_path / "one"),
        AutoModel.from_pretrained(tmp_path / "one"),
    ):
        outputs = read.eval()(**inputs).last_hidden_state
        torch.testing.assert_close(outputs, expected, rtol=1e-5, atol=1e-5)


@THEIRS
def test_peft_reads_the_adapters_of_two_towers_over_one_base(bert, tmp_path):
    import peft

    model = adapted(bert)
    model.save_pretrained(tmp_path / "two")
    read = peft.PeftModel.from_pretrained(
        AutoModel.from_pretrained(bert), tmp_path / "two" / "context", adapter_name="context"
    )
    read.load_adapter(tmp_path / "two" / "candidate", adapter_name="candidate")
    inputs = {"input_ids": torch.tensor([[2, 40, 41, 42, 3]])}
    for name, tower in zip(("context", "candidate"), model.towers, strict=True):
        read.set_adapter(name)
        outputs = read.eval()(**inputs).last_hidden_state
        torch.testing.assert_close(outputs, tower(inputs), rtol=1e-5, atol=1e-5)
    assert not torch.allclose(model.towers[0](inputs), model.towers[1](inputs), atol=1e-2)


def sentence_folder(bert, folder):
    """A sentence-transformers folder that pools by its first token."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer

    inner = Transformer(str(bert))
    pooling = Pooling(inner.get_embedding_dimension(), pooling_mode="cls")
    SentenceTransformer(modules=[inner, pooling, Normalize()], device="cpu").save(str(folder))
    return folder


def test_sentence_transformers_reads_the_adapter(bert, tmp_path):
    from sentence_transformers import SentenceTransformer

    model = adapted(bert, shared_towers=True)
    model.save_pretrained(tmp_path / "one")
    vectors = SentenceTransformer(str(tmp_path / "one"), device="cpu").encode(
        TEXTS, convert_to_tensor=True
    )
    expected = model.encode_contexts(TEXTS)
    torch.testing.assert_close(functional.normalize(vectors), expected, rtol=0, atol=1e-5)
    model = adapted(sentence_folder(bert, tmp_path / "base"), shared_towers=True)
    assert model.config.reduction == "first"
    model.save_pretrained(tmp_path / "first")
    read = SentenceTransformer(str(tmp_path / "base"), device="cpu")
    read.load_adapter(str(tmp_path / "first"))
    vectors = read.encode(TEXTS, convert_to_tensor=True)
    torch.testing.assert_close(vectors, model.encode_contexts(TEXTS), rtol=0, atol=1e-5)


def foreign(bert, folder, **settings):
    """An adapter that a user of peft has trained, without a tokeniser; and its encoder."""
    import peft

    torch.manual_seed(3)
    config = peft.LoraConfig(**{"r": 4, "target_modules": ["query", "dense"], **settings})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # of transformers, from peft
        encoder = AutoModel.from_pretrained(bert, add_pooling_layer=False)
        model = peft.get_peft_model(encoder, config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_" in name:
                parameter.add_(torch.randn_like(parameter) * 0.1)
    model.save_pretrained(folder)
    return model.eval()


@pytest.mark.parametrize(
    "settings",
    [{}, {"use_rslora": True, "alpha_pattern": {"query": 3}}, {"use_dora": True}],
    ids=["plain", "patterns", "dora"],
)
def test_adapters_of_others_are_read_with_their_base(settings, bert, tmp_path):
    theirs = foreign(bert, tmp_path / "adapter", **settings)
    model = BiEncoder.from_pretrained(tmp_path / "adapter", device="cpu", dtype="float32")
    inputs = {"input_ids": torch.tensor([[2, 40, 41, 42, 3]])}
    expected = theirs(**inputs).last_hidden_state
    torch.testing.assert_close(model.context_tower(inputs), expected, rtol=1e-5, atol=1e-5)
    assert not is_adapted(model)
    assert all(parameter.requires_grad for parameter in model.parameters())
    base = BiEncoder.from_pretrained(bert, device="cpu", dtype="float32")
    assert (model.score(TEXTS, TEXTS) - base.score(TEXTS, TEXTS)).abs().max() > 1e-3
    above = adapted(tmp_path / "adapter")
    above.save_pretrained(tmp_path / "saved")
    assert equal_to(above, tmp_path / "saved"), "an adapter over an adapter"


def test_an_adapter_over_a_sentence_transformers_model_pools_as_that_does(bert, tmp_path):
    from sentence_transformers import SentenceTransformer

    base = sentence_folder(bert, tmp_path / "base")
    foreign(base, tmp_path / "adapter")
    read = SentenceTransformer(str(base), device="cpu")
    read.load_adapter(str(tmp_path / "adapter"))
    expected = read.encode(TEXTS, convert_to_tensor=True)
    for source in (tmp_path / "adapter", saved_with_adapter(read, tmp_path / "whole")):
        model = load_model(source, device="cpu", dtype="float32")
        assert (model.architecture, model.config.reduction) == ("bi", "first")
        vectors = model.encode_contexts(TEXTS)
        torch.testing.assert_close(vectors, expected, rtol=0, atol=1e-5)
    cross = CrossEncoder.from_pretrained(tmp_path / "adapter", device="cpu")
    assert cross.config.head == "interaction", "the base is a BERT"


def saved_with_adapter(model, folder):
    model.save(str(folder))
    assert (folder / "adapter_config.json").is_file()
    return folder


def refuse(folder, *patterns, error=ModelError):
    with pytest.raises(error) as caught:
        BiEncoder.from_pretrained(folder, device="cpu")
    for pattern in patterns:
        assert pattern in str(caught.value)
    assert caught.value.remedy
    return caught.value


def change(folder, **values):
    file = folder / "adapter_config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **values}))


def test_an_adapter_whose_base_is_missing_or_another_is_refused(own_bert, encoder_folder, tmp_path):
    adapted(own_bert, shared_towers=True).save_pretrained(tmp_path / "saved")
    foreign(own_bert, tmp_path / "foreign")
    for name in ("saved", "foreign"):
        folder = shutil.copytree(tmp_path / name, tmp_path / f"{name}-lost")
        change(folder, base_model_name_or_path=str(tmp_path / "nowhere"))
        error = refuse(folder, str(folder), f"needs its base {tmp_path / 'nowhere'}")
        assert error.problem.endswith(f"There is no model at {tmp_path / 'nowhere'}.")
        change(folder, base_model_name_or_path=None)
        refuse(folder, "It names none")
    other = build_encoder_folder("bert", tmp_path / "other", seed=9)
    change(tmp_path / "saved", base_model_name_or_path=str(other))
    refuse(tmp_path / "saved", f"The weights in {other} are not those that the adapter")
    wide = AutoModel.from_config(AutoConfig.from_pretrained(own_bert, intermediate_size=52))
    wide.save_pretrained(tmp_path / "wide")
    change(tmp_path / "foreign", base_model_name_or_path=str(tmp_path / "wide"))
    refuse(tmp_path / "foreign", "does not fit its base", "size mismatch")
    change(tmp_path / "foreign", base_model_name_or_path=str(encoder_folder("distilbert")))
    refuse(tmp_path / "foreign", "does not fit its base")


def test_an_adapter_of_another_kind_or_in_pickle_or_damaged_is_refused(bert, tmp_path):
    foreign(bert, tmp_path / "adapter")
    weights = tmp_path / "adapter" / "adapter_model.safetensors"
    tensors = load_file(weights)
    some = dict(list(tensors.items())[1:])
    save_file(some, weights)
    refuse(tmp_path / "adapter", "does not fit its base", "lora_")
    weights.write_bytes(b"no tensors")
    refuse(tmp_path / "adapter", "The adapter", "cannot be read")
    weights.rename(weights.with_name("adapter_model.bin"))
    refuse(tmp_path / "adapter", "which is pickle and can run code", "Convert it once with peft")
    weights.with_name("adapter_model.bin").unlink()
    refuse(tmp_path / "adapter", "has no adapter_model.safetensors")
    foreign(bert, tmp_path / "more", modules_to_save=["LayerNorm"])
    refuse(tmp_path / "more", "has modules_to_save; polyrank reads updates", "merge_and_unload")
    foreign(bert, tmp_path / "adapter")
    change(tmp_path / "adapter", peft_type="IA3")
    refuse(tmp_path / "adapter", "is of the kind IA3; polyrank reads LORA", "merge_and_unload")
    (tmp_path / "adapter" / "adapter_config.json").write_text("{")
    refuse(tmp_path / "adapter", "adapter_config.json cannot be read")


def test_a_saved_adapter_that_others_have_changed_is_refused(bert, tmp_path):
    adapted(bert, shared_towers=True).save_pretrained(tmp_path / "saved")
    change(tmp_path / "saved", use_dora=True)
    refuse(tmp_path / "saved", "does not describe the adapter that polyrank wrote", "use_dora")
    change(tmp_path / "saved", use_dora=False, r=0)
    refuse(tmp_path / "saved", "does not describe the adapter that polyrank wrote")


def test_without_peft_the_command_that_installs_it_is_named(bert, tmp_path, monkeypatch):
    model = adapted(bert, shared_towers=True)
    model.save_pretrained(tmp_path / "saved")
    foreign(bert, tmp_path / "foreign")
    monkeypatch.setitem(sys.modules, "peft", None)
    error = refuse(tmp_path / "foreign", error=MissingExtraError)
    assert error.remedy == 'Install it with: pip install "polyrank[lora]"'
    with pytest.raises(MissingExtraError, match=r'pip install "polyrank\[lora\]"'):
        attach(BiEncoder.from_pretrained(bert, device="cpu"), rank=2, alpha=2)
    assert equal_to(model, tmp_path / "saved"), "a model of polyrank's own does not need it"


def test_a_base_is_named_so_that_others_find_it(tmp_path, monkeypatch):
    from polyrank.models.adapters import folders

    cached = tmp_path / "models--some--encoder" / "snapshots" / "abc123"
    cached.mkdir(parents=True)
    assert folders.name_of(cached) == ("some/encoder", "abc123")
    assert folders.name_of(tmp_path) == (str(tmp_path), None)
    monkeypatch.setattr(folders, "installed_folder", lambda: tmp_path)
    assert folders.name_of(tmp_path) == ("sentence-transformers/all-MiniLM-L6-v2", None)


def test_a_merged_copy_has_the_other_weights_in_common(bert):
    model = adapted(bert, shared_towers=True)
    copy = merged_copy(model.context_tower)
    assert is_adapted(model)
    assert not is_adapted(copy)
    own = model.context_tower.encoder.embeddings.word_embeddings.weight
    assert copy.encoder.embeddings.word_embeddings.weight.data_ptr() == own.data_ptr()


def test_a_tower_that_is_not_its_base_any_more_is_refused(bert):
    model = load_variant("bi", bert)
    with pytest.raises(UsageError, match="encoder of the candidate_tower is not that of"):
        find_bases(model)
    model.origins = ()
    with pytest.raises(UsageError, match="was not loaded from a folder"):
        find_bases(model)


def test_the_table_of_targets_knows_types_of_transformers():
    theirs = layers.TARGETS.keys() - {VARIANT}
    assert all(AutoConfig.for_model(kind).model_type == kind for kind in theirs)


def test_an_index_keeps_the_merged_model(own_bert, tmp_path):
    from polyrank import Index

    model = adapted(own_bert)
    model.save_pretrained(tmp_path / "saved")
    opened = load_model(tmp_path / "saved", device="cpu", dtype="float32")
    Index.build(opened, TEXTS[:2] + TEXTS[3:], tmp_path / "index")
    shutil.rmtree(own_bert)
    hits = Index.open(tmp_path / "index").search(["how do i read a file"], top_k=2)
    expected = model.rank("how do i read a file", TEXTS[:2] + TEXTS[3:], top_k=2)
    assert [hit.text for hit in hits[0]] == [hit.text for hit in expected]


def test_info_tells_the_fingerprint_that_the_model_has(bert, tmp_path, capsys):
    from polyrank.cli.main import commands, run

    model = adapted(bert, shared_towers=True)
    model.save_pretrained(tmp_path / "saved")
    assert run(["info", str(tmp_path / "saved"), "--json"], commands()) == 0
    assert json.loads(capsys.readouterr().out)["fingerprint"] == model.fingerprint()


@pytest.mark.parametrize("towers", ["one", "two"])
def test_the_files_that_an_adapter_on_the_hub_needs(towers, bert, tmp_path):
    from polyrank.models.hub.files import needed

    adapted(bert, shared_towers=towers == "one").save_pretrained(tmp_path / "saved")
    folder = tmp_path / "saved"
    names = [path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()]
    found = needed(folder, names)
    assert "model.safetensors" in found
    adapters = {name for name in names if "adapter_" in name}
    assert len(adapters) == (2 if towers == "one" else 4)
    assert adapters <= set(found)


def test_two_encoders_of_different_kinds_have_a_base_each(bert, encoder_folder, tmp_path):
    other = encoder_folder("distilbert")
    model = adapted(bert, candidate_base=other, projection=6)
    model.save_pretrained(tmp_path / "saved")
    for name, base in (("context", bert), ("candidate", other)):
        described = json.loads((tmp_path / "saved" / name / "adapter_config.json").read_text())
        assert described["base_model_name_or_path"] == str(base)
    assert equal_to(model, tmp_path / "saved")


def test_adapters_over_weights_that_are_kept_in_16_bits(bert, tmp_path):
    kept = {"weights_dtype": "bfloat16"}
    model = adapted(bert, **kept)
    first, second = model.towers
    adapters = {id(p) for tower in model.towers for p in adapter_parameters(tower)}
    assert {p.dtype for p in model.parameters() if id(p) in adapters} == {torch.float32}
    base = {p.data_ptr() for p in first.parameters() if id(p) not in adapters}
    assert base == {p.data_ptr() for p in second.parameters() if id(p) not in adapters}
    model.save_pretrained(tmp_path / "saved")
    apart = model.score(TEXTS, TEXTS)
    opened = BiEncoder.from_pretrained(tmp_path / "saved", device="cpu", dtype="float32", **kept)
    assert torch.equal(opened.score(TEXTS, TEXTS), apart)
    assert opened.fingerprint() == model.fingerprint()
    merge(model)
    assert torch.equal(model.score(TEXTS, TEXTS), apart)
    assert {p.dtype for p in model.parameters()} == {torch.bfloat16}
