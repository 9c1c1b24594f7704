"""Models from the hub: a stand-in on this machine answers huggingface_hub's own client."""

import json
import os
import shutil
import threading

import pytest
import torch
from huggingface_hub import constants, file_download
from safetensors.torch import load_file, save_file

from hub_server import connect
from polyrank.errors import ModelError, StorageError, UsageError
from polyrank.folder_files import FileRecord
from polyrank.models.bi_encoder import BiEncoder
from polyrank.models.checkpoint import load_model
from polyrank.models.cross_encoder import CrossEncoder
from polyrank.models.engines.record import ExportRecord, write_record
from polyrank.models.hub import download
from polyrank.models.source import hub_id, local_folder
from tiny_encoders import TEXTS, VARIANTS, load_variant

CPU = {"device": "cpu", "dtype": "float32"}
NOT_WANTED = {
    "pytorch_model.bin": b"a pickle",
    "modeling_custom.py": b"raise SystemExit",
    "README.md": b"# A model",
    "onnx/model.onnx": b"a graph",
    "openvino/openvino_model.xml": b"a graph",
    "tf_model.h5": b"other weights",
    "training.json": b"{}",
    "vocab.txt": b"the words, which tokenizer.json has too",
}


def modules(folder, kinds, pooling=None):
    """Write the description of modules, as sentence-transformers does."""
    listed = [
        {"idx": n, "name": str(n), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for n, (path, kind) in enumerate(kinds.items())
    ]
    (folder / "modules.json").write_text(json.dumps(listed), encoding="utf-8")
    for path, kind in kinds.items():
        (folder / path).mkdir(exist_ok=True)
        if kind == "Pooling":
            described = {"word_embedding_dimension": 32, **(pooling or {})}
            (folder / path / "config.json").write_text(json.dumps(described), encoding="utf-8")


@pytest.fixture
def first_token_pooled(own_bert):
    """A sentence-transformers folder whose pooling takes the first token, with a dense layer."""
    kinds = {"": "Transformer", "1_Pooling": "Pooling", "2_Dense": "Dense"}
    modules(own_bert, kinds, {"pooling_mode_cls_token": True})
    activation = "torch.nn.modules.linear.Identity"
    described = {"in_features": 32, "out_features": 16, "bias": False}
    described["activation_function"] = activation
    (own_bert / "2_Dense" / "config.json").write_text(json.dumps(described), encoding="utf-8")
    weight = torch.randn(16, 32, generator=torch.Generator().manual_seed(3))
    save_file({"linear.weight": weight}, own_bert / "2_Dense" / "model.safetensors")
    return own_bert


def add_unwanted(folder):
    for name, content in NOT_WANTED.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(content)


def test_only_the_files_that_are_needed_are_fetched_and_by_name(hub, first_token_pooled):
    add_unwanted(first_token_pooled)
    expected = BiEncoder.from_pretrained(first_token_pooled, **CPU)
    hub.add("some/model", first_token_pooled)
    model = BiEncoder.from_pretrained("some/model", **CPU)
    assert model.config == expected.config
    assert model.config.reduction == "first"
    assert torch.equal(model.encode_candidates(TEXTS), expected.encode_candidates(TEXTS))
    assert set(hub.fetched()) == {
        "config.json",
        "modules.json",
        "1_Pooling/config.json",
        "2_Dense/config.json",
        "2_Dense/model.safetensors",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    }
    assert model.path is None  # nothing is written into the cache


def test_nothing_is_told_about_what_runs_here(hub, bert):
    hub.add("some/model", bert)
    local_folder("some/model")
    assert not [line for line in hub.log if "harness" in line or "telemetry" in line]
    assert all(agent.startswith("polyrank/") for agent in hub.agents)
    assert not any("torch" in agent for agent in hub.agents)


@pytest.mark.parametrize("variant", ["bi", "poly-learnt", "cross-interaction"])
def test_a_saved_model_loads_by_its_id(hub, bert, tmp_path, variant):
    made = load_variant(variant, bert)
    made.save_pretrained(tmp_path / "model")
    add_unwanted(tmp_path / "model")
    hub.add("me/model", tmp_path / "model")
    model = load_model("me/model", **CPU)
    assert type(model) is VARIANTS[variant][0]
    assert model.fingerprint() == made.fingerprint()
    assert torch.equal(model.score(TEXTS, TEXTS), made.score(TEXTS, TEXTS))
    assert set(hub.fetched()) == {
        "polyrank.json",
        "model.safetensors",
        "backbone/config.json",
        "backbone/tokenizer.json",
        "backbone/tokenizer_config.json",
    }


def test_a_model_is_asked_for_once_and_then_not_fetched_again(hub, bert, tmp_path):
    load_variant("bi", bert).save_pretrained(tmp_path / "model")
    hub.add("me/model", tmp_path / "model")
    local_folder("me/model")
    hub.log.clear()
    local_folder("me/model")
    assert hub.fetched() == []
    assert len(hub.log) == 2  # the commit of main, and one file by that name
    assert sum("/api/" in line for line in hub.log) == 1


def test_revisions(hub, bert, tmp_path):
    folder = tmp_path / "model"
    first = load_variant("bi", bert)
    first.save_pretrained(folder)
    commit = hub.add("me/model", folder)
    second = load_variant("bi", bert, temperature=2.0)
    second.save_pretrained(folder)
    hub.add("me/model", folder, branch="second")
    assert load_model("me/model", **CPU).fingerprint() == first.fingerprint()
    found = load_model("me/model", revision="second", **CPU)
    assert found.fingerprint() == second.fingerprint()
    found = BiEncoder.from_pretrained("me/model", revision="second", **CPU)
    assert found.fingerprint() == second.fingerprint()
    hub.log.clear()
    assert load_model("me/model", revision=commit, **CPU).fingerprint() == first.fingerprint()
    assert hub.log == []  # a commit never changes
    with pytest.raises(ModelError, match=r"has no revision 'third'\. Give a branch, a tag or a"):
        load_model("me/model", revision="third")
    with pytest.raises(UsageError, match="is on this machine, so it has no revision 'second'"):
        load_model(folder, revision="second")


def test_the_cache_of_ones_own_and_without_the_hub(hub, bert, tmp_path, monkeypatch):
    hub.add("some/model", bert)
    with pytest.raises(ModelError, match="no whole model of that name, and local_files_only forb"):
        local_folder("some/model", local_files_only=True)
    assert hub.log == []
    folder = local_folder("some/model", cache_dir=tmp_path / "mine")
    assert folder.is_relative_to(tmp_path / "mine")
    hub.log.clear()
    again = local_folder("some/model", cache_dir=tmp_path / "mine", local_files_only=True)
    assert again == folder
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert local_folder("some/model", cache_dir=tmp_path / "mine") == folder
    with pytest.raises(ModelError, match="of that name at revision 'v1', and HF_HUB_OFFLINE forb"):
        local_folder("some/model", revision="v1", cache_dir=tmp_path / "mine")
    assert hub.log == []
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    hub.status = 503
    assert local_folder("some/model", cache_dir=tmp_path / "mine") == folder


def test_an_interrupted_download_is_not_taken_for_a_model(hub, first_token_pooled, monkeypatch):
    hub.add("some/model", first_token_pooled)
    fetch = download.get_file

    def interrupted(name, file, *arguments):
        if file == "2_Dense/model.safetensors":
            raise KeyboardInterrupt
        return fetch(name, file, *arguments)

    monkeypatch.setattr(download, "get_file", interrupted)
    with pytest.raises(KeyboardInterrupt):
        local_folder("some/model")
    with pytest.raises(ModelError, match="no whole model of that name"):
        local_folder("some/model", local_files_only=True)
    monkeypatch.undo()


def test_an_encoder_that_another_program_fetched_without_its_modules_is_not_averaged(
    hub, first_token_pooled
):
    """Which is what transformers leaves in the cache of a first-token-pooled model."""
    hub.add("some/model", first_token_pooled)
    for file in ("config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors"):
        file_download.hf_hub_download("some/model", file)
    with pytest.raises(ModelError, match="no whole model of that name"):
        BiEncoder.from_pretrained("some/model", local_files_only=True)
    assert BiEncoder.from_pretrained("some/model", **CPU).config.reduction == "first"


def test_two_towers_of_a_router(hub, encoder_folder, tmp_path):
    """Its files are found; models.foreign says what becomes of them."""
    folder = tmp_path / "router"
    shutil.copytree(encoder_folder("bert"), folder / "query_0_Transformer")
    shutil.copytree(encoder_folder("electra"), folder / "document_0_Transformer")
    modules(folder, {"": "Router"})
    types = {f"{side}_0_Transformer": "x.Transformer" for side in ("query", "document")}
    types["query_1_Pooling"] = "x.Pooling"
    (folder / "query_1_Pooling").mkdir()
    (folder / "query_1_Pooling" / "config.json").write_text("{}")
    (folder / "router_config.json").write_text(json.dumps({"types": types}))
    hub.add("some/router", folder)
    found = local_folder("some/router")
    assert {each.relative_to(found).as_posix() for each in found.glob("*/*")} == {
        f"{side}_0_Transformer/{file}"
        for side in ("query", "document")
        for file in (
            "config.json",
            "model.safetensors",
            "tokenizer.json",
            "tokenizer_config.json",
        )
    } | {"query_1_Pooling/config.json"}


def test_shards_and_adapters(hub, own_bert, tmp_path):
    weights = load_file(own_bert / "model.safetensors")
    (own_bert / "model.safetensors").unlink()
    names = sorted(weights)
    parts = {"model-1-of-2.safetensors": names[:9], "model-2-of-2.safetensors": names[9:]}
    for file, part in parts.items():
        save_file({name: weights[name] for name in part}, own_bert / file, {"format": "pt"})
    mapped = {name: file for file, part in parts.items() for name in part}
    index = {"metadata": {}, "weight_map": mapped}
    (own_bert / "model.safetensors.index.json").write_text(json.dumps(index))
    hub.add("some/sharded", own_bert)
    folder = local_folder("some/sharded")
    assert {each.name for each in folder.glob("*.safetensors")} == parts.keys()
    (own_bert / "model-2-of-2.safetensors").unlink()
    hub.repositories.clear()
    hub.add("some/broken", own_bert)
    with pytest.raises(ModelError, match=r"1 of 2 files of weights are missing, model-2-of-2\."):
        local_folder("some/broken")

    adapter = tmp_path / "adapter"
    adapter.mkdir()
    (adapter / "adapter_config.json").write_text("{}")
    save_file({"a": torch.zeros(1)}, adapter / "adapter_model.safetensors")
    (adapter / "adapter_model.bin").write_bytes(b"a pickle")
    hub.add("some/adapter", adapter)
    folder = local_folder("some/adapter")
    assert sorted(os.listdir(folder)) == ["adapter_config.json", "adapter_model.safetensors"]


def test_an_export(hub, bert, tmp_path):
    """Its graphs are named in export.json; polyrank.models.engines says what becomes of them."""
    load_variant("bi", bert).save_pretrained(tmp_path / "export")
    (tmp_path / "export" / "model.safetensors").unlink()
    add_unwanted(tmp_path / "export")
    for file in ("context.onnx", "context.onnx.data"):
        (tmp_path / "export" / file).write_bytes(b"a graph of ours")
    files = {
        name: FileRecord(bytes=15, sha256="") for name in ("context.onnx", "context.onnx.data")
    }
    described = {"engine": "onnx", "precision": "float32", "graphs": {}, "encoders": {}}
    described |= {"fingerprint": "", "source": {}, "versions": {}}
    write_record(tmp_path / "export", ExportRecord(**described, files=files))
    hub.add("some/export", tmp_path / "export")
    folder = local_folder("some/export")
    assert {each.name for each in folder.iterdir()} == {
        "polyrank.json",
        "export.json",
        "context.onnx",
        "context.onnx.data",
        "backbone",
    }
    assert local_folder("some/export", local_files_only=True) == folder
    del hub.repositories["some/export"].commits[folder.name]["context.onnx.data"]
    with pytest.raises(
        ModelError, match=r"1 of 2 files of weights are missing, context\.onnx\.data"
    ):
        local_folder("some/export", cache_dir=tmp_path / "other")


def test_a_reranker(hub, tmp_path, monkeypatch):
    from docs.hub_stand_ins import write_reranker

    write_reranker(tmp_path / "reranker")
    hub.add("some/reranker", tmp_path / "reranker")
    model = load_model("some/reranker", **CPU)
    assert isinstance(model, CrossEncoder)
    assert model.config.head == "pooler"
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert load_model("some/reranker", **CPU).fingerprint() == model.fingerprint()


def test_a_download_is_announced_with_its_size(hub, bert):
    said = []
    hub.add("some/model", bert)
    local_folder("some/model", say=said.append)
    size = (bert / "model.safetensors").stat().st_size / 1e6
    assert said == [f"Downloading some/model from the hub: {size:,.0f} MB."]
    local_folder("some/model", say=said.append)
    assert len(said) == 1


def test_a_token_reaches_the_hub(hub, bert):
    hub.add("some/model", bert)
    hub.private.add("some/model")
    with pytest.raises(
        ModelError, match=r"no model of that name on the hub\. Check the name; for a"
    ):
        local_folder("some/model")
    local_folder("some/model", token="secret")
    assert set(hub.tokens[-3:]) == {"Bearer secret"}


def test_a_download_that_breaks_off_or_has_another_size(hub, bert, monkeypatch, tmp_path):
    monkeypatch.setattr(file_download.time, "sleep", lambda seconds: None)
    hub.add("some/model", bert)
    size = (bert / "model.safetensors").stat().st_size
    hub.broken.add("model.safetensors")
    with pytest.raises(ModelError, match=r"the hub breaks off the download\. Check the name and"):
        local_folder("some/model")
    hub.broken.clear()
    hub.damage["model.safetensors"] = lambda content: content[:-7]
    words = f"is damaged: .* of size {size} but has size {size - 7} .*\\. Try again, or give"
    with pytest.raises(ModelError, match=words):
        local_folder("some/model")
    assert not list((tmp_path / "hub-cache").rglob("model.safetensors"))
    hub.damage.clear()
    assert load_variant("bi", "some/model")


def test_damaged_weights_do_not_stay_in_the_cache(hub, bert, tmp_path):
    folder = shutil.copytree(bert, tmp_path / "damaged")
    whole = (bert / "model.safetensors").read_bytes()
    hub.add("some/model", folder)
    hub.damage["model.safetensors"] = lambda content: b"\xff" * len(content)
    with pytest.raises(ModelError, match=r"is damaged: model\.safetensors: .*\. Try again, or"):
        local_folder("some/model")
    with pytest.raises(ModelError, match="no whole model of that name"):
        local_folder("some/model", local_files_only=True)
    hub.damage.clear()
    assert (local_folder("some/model") / "model.safetensors").read_bytes() == whole


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt"])
def test_a_model_that_could_only_be_unpickled(hub, own_bert, name):
    (own_bert / "model.safetensors").rename(own_bert / name)
    hub.add("some/model", own_bert)
    with pytest.raises(ModelError, match=rf"only in {name}, which is a pickle .* convert it once"):
        local_folder("some/model")
    assert name not in hub.fetched()


def test_what_is_not_a_model(hub, tmp_path):
    (tmp_path / "readme").mkdir()
    (tmp_path / "readme" / "README.md").write_text("# Words")
    hub.add("some/words", tmp_path / "readme")
    with pytest.raises(ModelError, match=r"not a model that polyrank reads: it has no config\."):
        local_folder("some/words")
    (tmp_path / "readme" / "config.json").write_text("{}")
    hub.add("some/empty", tmp_path / "readme")
    with pytest.raises(ModelError, match="the model has no weights that polyrank reads"):
        local_folder("some/empty")


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (401, "no model of that name on the hub. Check the name; for a private model, log in"),
        (403, "does not let you read nobody/nothing: it answers with 403. Log in with `hf auth"),
        (404, "the hub answers with 404. Check the name and the connection"),
        (503, "the hub answers with 503. Check the name and the connection"),
    ],
)
def test_what_the_hub_answers_is_told_apart(hub, status, words):
    hub.status = status
    if status == 401:  # as the hub answers about what is not there
        hub.status = None
    with pytest.raises(ModelError, match=words):
        load_model("nobody/nothing")


def test_a_gated_model(hub, bert):
    hub.add("some/model", bert)
    hub.gated.add("some/model")
    with pytest.raises(ModelError, match=r"only to those whom its authors have let in\. Ask for"):
        local_folder("some/model")
    assert local_folder("some/model", token="secret")


def test_a_hub_that_does_not_answer(hub, bert, monkeypatch, tmp_path):
    hub.add("some/model", bert)
    hub.silence = threading.Event()
    monkeypatch.setattr(download, "TIMEOUT", 0.2)
    with pytest.raises(ModelError, match=r"the hub does not answer within 0\.2 seconds\. Check"):
        local_folder("some/model")
    hub.silence.set()


def test_no_network(hub, monkeypatch, tmp_path):
    hub.address = "http://127.0.0.1:9"  # discard: nothing listens there
    connect(hub, tmp_path / "cache", monkeypatch)
    with pytest.raises(ModelError, match=r"the hub cannot be reached\. Check the name and the"):
        local_folder("some/model")


def test_a_cache_that_cannot_be_written(hub, bert, tmp_path):
    hub.add("some/model", bert)
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="cannot be written to the cache: Not a directory"):
        local_folder("some/model", cache_dir=tmp_path / "file")


def test_ids_and_folders_are_told_apart(tmp_path):
    assert hub_id(tmp_path) is None
    assert hub_id("./model") is None
    assert hub_id("some/model") == "some/model"
    assert hub_id("all-MiniLM-L6-v2") == "sentence-transformers/all-MiniLM-L6-v2"
