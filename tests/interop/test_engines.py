"""Exported models, run by ONNX Runtime behind the same calls as torch's."""

import asyncio
import json
import shutil
import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from exported_models import CASES, reseal

import polyrank
from polyrank import BiEncoder, Index, PolyEncoder, load_model
from polyrank.cli.main import commands, run
from polyrank.errors import (
    IndexFolderError,
    MissingExtraError,
    ModelError,
    OutOfMemoryError,
    UsageError,
    is_out_of_memory,
)
from polyrank.interop.graphs.folder import prepared
from polyrank.models.adapters.layers import adapter_parameters, attach, is_adapted
from polyrank.models.attention import attention_map
from polyrank.models.description import fingerprint_of
from polyrank.models.static.distilled import distil_static
from polyrank.serving.attention import described
from polyrank.serving.config import PipelineConfig, ServerConfig
from polyrank.serving.pipeline import load_pipeline
from polyrank.serving.runtime import Runtime
from polyrank.serving.scheduling.flow import Flow
from tiny_encoders import LONG, TEXTS, load_variant

CONTEXTS = [*TEXTS, ["hello", "how do i boot", "with the old kernel"], LONG]


ONNX_CASES = [
    name for name in CASES if name not in ("distilbert", "xlm-roberta", "mpnet", "gemma3")
]
"""The encoders of the other families are exported to OpenVINO, which takes a fraction of the time
(test_openvino.py)."""


@pytest.fixture
def poly(exported, tmp_path):
    """A copy of an export that a test may damage."""
    return shutil.copytree(exported("poly")[1], tmp_path / "poly")


@pytest.mark.parametrize("case", ONNX_CASES)
def test_scores_are_those_of_torch(case, exported):
    model, folder = exported(case)
    run = load_model(folder, device="cpu")
    assert type(run) is type(model)
    assert not list(run.parameters())
    found, expected = run.score(CONTEXTS, TEXTS), model.score(CONTEXTS, TEXTS)
    torch.testing.assert_close(found, expected, atol=2e-5, rtol=1e-5)
    assert expected.std() > 0.01
    assert [hit.id for hit in run.rank("a file", TEXTS)] == [
        hit.id for hit in model.rank("a file", TEXTS)
    ]


def test_vectors_are_those_of_torch(exported):
    model, folder = exported("poly")
    run = load_model(folder, device="cpu")
    torch.testing.assert_close(run.encode_contexts(CONTEXTS), model.encode_contexts(CONTEXTS))
    torch.testing.assert_close(run.encode_candidates(TEXTS), model.encode_candidates(TEXTS))


def test_classes_are_those_of_torch(exported):
    model, folder = exported("classes of two towers")
    run = load_model(folder, device="cpu")
    pairs = [(context, text) for context in CONTEXTS for text in TEXTS]
    assert run.classes == ("no", "maybe", "yes")
    torch.testing.assert_close(run.class_logits(pairs), model.class_logits(pairs))
    assert run.classify(pairs) == model.classify(pairs)


def test_neither_batches_nor_padding_change_a_score(exported):
    run = load_model(exported("cross")[1], device="cpu")
    together = run.score(CONTEXTS, TEXTS)
    alone = torch.cat([run.score([context], TEXTS) for context in CONTEXTS])
    torch.testing.assert_close(together, alone, atol=1e-5, rtol=1e-5)
    one_by_one = run.score(CONTEXTS, TEXTS, batch_size=1)
    torch.testing.assert_close(together, one_by_one, atol=1e-5, rtol=1e-5)


def test_attention_inside_a_graph_cannot_be_read(exported):
    torch_model, folder = exported("poly")
    model = load_model(folder)
    vectors = model.encode_candidates_for_scoring(TEXTS)
    found = attention_map(model, CONTEXTS[0], vectors)
    expected = attention_map(torch_model, CONTEXTS[0], vectors)
    assert found.tokens is None
    torch.testing.assert_close(found.weights, expected.weights, atol=1e-4, rtol=1e-3)
    torch.testing.assert_close(found.scores, model.score([CONTEXTS[0]], TEXTS)[0])
    answer = described(model, CONTEXTS[0], TEXTS, found)
    assert answer["codes"] is None
    assert "The engine onnx runs this model" in answer["note"]


def test_an_engine_keeps_no_weights_and_trains_nothing(exported, tmp_path):
    run = PolyEncoder.from_pretrained(exported("poly")[1], engine="onnx")
    assert not list(run.parameters())
    assert not list(run.modules())[1:]
    assert run.num_parameters() == exported("poly")[0].num_parameters() > 0
    for action in (
        run.train,
        lambda: run.save_pretrained(tmp_path / "saved"),
        lambda: run.push_to_hub("me/mine"),
        lambda: run.place("cpu", "bfloat16"),
    ):
        with pytest.raises(UsageError, match=r"run by the engine onnx.* exported from\."):
            action()
    assert not (tmp_path / "saved").exists()


def test_an_export_loads_by_its_id_on_the_hub(exported, hub):
    _, folder = exported("poly")
    hub.add("some/export", folder)
    found, expected = load_model("some/export"), load_model(folder)
    assert torch.equal(found.score(CONTEXTS, TEXTS), expected.score(CONTEXTS, TEXTS))
    assert found.fingerprint() == expected.fingerprint()
    assert not [file for file in hub.fetched() if file.endswith((".safetensors", ".bin", ".py"))]


def test_an_index_of_an_engine_finds_what_torch_finds(exported, tmp_path):
    model, folder = exported("poly")
    run = load_model(folder)
    texts = [f"{first} {second}" for first in TEXTS for second in TEXTS]
    Index.build(run, texts, tmp_path / "run")
    Index.build(model, texts, tmp_path / "torch")
    opened = Index.open(tmp_path / "run")
    assert opened.model.engine is not None
    found = opened.search(CONTEXTS, 5)
    expected = Index.open(tmp_path / "torch", model).search(CONTEXTS, 5)
    for one, other in zip(found, expected, strict=True):
        assert [hit.id for hit in one] == [hit.id for hit in other]
    with pytest.raises(IndexFolderError, match="made by the model"):
        Index.open(tmp_path / "torch", run)
    with pytest.raises(IndexFolderError, match="made by the model"):
        Index.open(tmp_path / "run", model)


def test_the_fingerprint_is_of_graphs_and_settings(exported):
    model, folder = exported("poly")
    run = load_model(folder)
    assert run.fingerprint() == fingerprint_of(folder) != model.fingerprint()
    shorter = load_model(folder, max_context_length=9)
    assert shorter.fingerprint() != run.fingerprint()
    assert shorter.context_ids([LONG]) == [[*run.context_ids([LONG])[0][:8], 3]]


def test_a_copy_has_the_settings_it_was_opened_with(exported, tmp_path):
    shorter = load_model(exported("poly")[1], max_context_length=9)
    shorter.save_copy(tmp_path / "copy")
    copied = load_model(tmp_path / "copy")
    assert copied.config.max_context_length == 9
    assert copied.fingerprint() == shorter.fingerprint()


def test_what_is_built_into_the_graphs_cannot_be_set(exported):
    with pytest.raises(UsageError, match=r"made with temperature = 1\.0, not 2\.0"):
        load_model(exported("poly")[1], temperature=2.0)


def test_the_engine_must_be_that_of_the_folder(exported, bert, tmp_path):
    model, folder = exported("poly")
    with pytest.raises(ModelError, match="exported to onnx, so it has no weights"):
        load_model(folder, engine="torch")
    with pytest.raises(ModelError, match="are for the engine onnx, not for openvino"):
        load_model(folder, engine="openvino")
    with pytest.raises(UsageError, match="engine 'tensorrt' is unknown"):
        load_model(folder, engine="tensorrt")
    with pytest.raises(ModelError, match="poly-encoder, and without weights"):
        BiEncoder.from_pretrained(folder)
    model.save_copy(tmp_path / "weights")
    with pytest.raises(ModelError, match=r"polyrank export .* --to onnx"):
        load_model(tmp_path / "weights", engine="onnx")
    assert load_model(tmp_path / "weights", engine="torch").engine is None


def test_devices_and_precisions_that_it_does_not_have(exported):
    folder = exported("poly")[1]
    with pytest.raises(UsageError, match="cannot compute on the device 'mps'"):
        load_model(folder, device="mps")
    with pytest.raises(UsageError, match="not in bfloat16"):
        load_model(folder, dtype="bfloat16")
    assert load_model(folder, dtype="float32").compute_dtype == torch.float32


def damage_length(folder):
    graph = folder / "encoder.onnx"
    graph.write_bytes(graph.read_bytes()[:-100])


def damage_byte(folder):
    graph = folder / "encoder.onnx"
    content = bytearray(graph.read_bytes())
    content[-10] ^= 1
    graph.write_bytes(content)


def remove_graph(folder):
    (folder / "encoder.onnx").unlink()


def other_settings(folder):
    described = json.loads((folder / "polyrank.json").read_text())
    described["settings"]["temperature"] = 3.0
    (folder / "polyrank.json").write_text(json.dumps(described))


def half_a_record(folder):
    record = folder / "export.json"
    record.write_text(record.read_text()[:200])


def outside(folder):
    record = json.loads((folder / "export.json").read_text())
    record["files"]["../encoder.onnx"] = record["files"].pop("encoder.onnx")
    (folder / "export.json").write_text(json.dumps(record))


def unknown_special_token(folder):
    file = folder / "backbone" / "tokenizer.json"
    tokenizer = json.loads(file.read_text())
    tokenizer["post_processor"]["pair"][-1]["SpecialToken"]["id"] = "[NONE]"
    file.write_text(json.dumps(tokenizer))


def other_width(folder):
    record = json.loads((folder / "export.json").read_text())
    record["encoders"]["backbone"]["width"] = 2**31
    (folder / "export.json").write_text(json.dumps(record))


def without_a_name(folder):
    def without(record):
        graphs = {name: each for name, each in record.graphs.items() if name != "candidate"}
        return replace(record, graphs=graphs)

    reseal(folder, without)


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (damage_length, r"has [\d,]+ bytes, expected"),
        (damage_byte, "is not the one that was exported to this folder"),
        (remove_graph, "lacks its graph encoder.onnx"),
        (other_settings, "not those that its graphs were made for"),
        (half_a_record, "does not describe an exported model"),
        (outside, "a graph lies in another folder"),
        (unknown_special_token, "could not be loaded: no entry found"),
        (other_width, "not those that its graphs were made for"),
        (without_a_name, "does not say where the graph candidate is"),
    ],
)
def test_a_damaged_export_is_refused(damage, words, poly):
    damage(poly)
    with pytest.raises(ModelError, match=words):
        load_model(poly)


def test_ids_that_the_graph_has_no_embedding_for(poly):
    file = poly / "backbone" / "tokenizer.json"
    tokenizer = json.loads(file.read_text())
    tokenizer["model"]["vocab"]["file"] = 5_000
    file.write_text(json.dumps(tokenizer))
    model = load_model(poly)
    with pytest.raises(ModelError, match="gives ids up to 5,000, for which"):
        model.rank("how do I read a file", ["with open"])


def test_an_export_says_how_far_it_is_from_torch(exported):
    record = json.loads((exported("poly")[1] / "export.json").read_text())
    check = record["check"]
    assert check["worst_cosine"] > 0.99999
    assert check["overlap"] == 1
    assert 0 < check["largest_difference"] < 1e-5
    assert check["longest"] == 64  # the encoder's limit
    assert record["versions"].keys() == {"torch", "onnx", "onnxscript", "onnxruntime", "opset"}
    assert record["source"]["fingerprint"] == exported("poly")[0].fingerprint()


def test_weights_of_a_shared_encoder_are_written_once(exported):
    model, folder = exported("poly")
    weights = sum(each.numel() * 4 for each in model.parameters())
    assert [each.name for each in folder.glob("*.onnx")] == ["encoder.onnx"]
    assert weights < (folder / "encoder.onnx").stat().st_size < 1.7 * weights


def test_a_graph_names_no_place_of_this_machine(exported, tmp_path):
    content = (exported("poly")[1] / "encoder.onnx").read_bytes()
    assert b".py" not in content
    assert str(tmp_path.parent).encode() not in content


def test_an_export_that_differs_is_not_written(exported, monkeypatch, tmp_path):
    from polyrank.interop.graphs import folder as writing

    model, folder = exported("poly")

    def write_other_graphs(model, into, *_, **__):
        shutil.copytree(folder, into, dirs_exist_ok=True)

    monkeypatch.setattr(writing, "write_graphs", write_other_graphs)
    polyrank.export(model, tmp_path / "same", to="onnx")
    model.save_copy(tmp_path / "model")
    other = load_model(tmp_path / "model", device="cpu", dtype="float32")
    with torch.no_grad():
        other.context_projection.weight[3] *= 1.01
    with pytest.raises(ModelError, match=r"give other results than torch.*Nothing was written"):
        polyrank.export(other, tmp_path / "output", to="onnx")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["model", "same"]


def test_what_cannot_be_exported(exported, bert, tmp_path):
    model, folder = exported("poly")
    with pytest.raises(UsageError, match="run by the engine onnx"):
        polyrank.export(folder, tmp_path / "output", to="onnx")
    model.train()
    try:
        with pytest.raises(UsageError, match="in training mode"):
            polyrank.export(model, tmp_path / "output", to="onnx")
    finally:
        model.eval()
    sees = load_variant("cross", bert, reading="once", context_sees_candidates=True)
    with pytest.raises(UsageError, match="a context must be read with all of its candidates"):
        polyrank.export(sees, tmp_path / "output", to="onnx")
    once = load_variant("cross", bert, reading="once")
    int8 = {"quantise": "int8", "calibration": str(tmp_path / "texts.jsonl")}
    with pytest.raises(UsageError, match="reading = once cannot be quantised"):
        polyrank.export(once, tmp_path / "output", to="onnx", **int8)
    words = distil_static(bert)
    with pytest.raises(UsageError, match="static embeddings"):
        polyrank.export(words, tmp_path / "output", to="onnx")
    assert not list(tmp_path.iterdir())


def test_a_missing_exporter_is_named(exported, monkeypatch, tmp_path):
    from importlib import util

    monkeypatch.setattr(util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r'onnx, which .* pip install "polyrank\[onnx\]"'):
        polyrank.export(exported("poly")[0], tmp_path / "output", to="onnx")
    assert not list(tmp_path.iterdir())


def test_a_model_in_bfloat16_is_exported_in_float32(exported, monkeypatch, tmp_path):
    model, _ = exported("poly")
    model.save_copy(tmp_path / "model")
    rounded = load_model(tmp_path / "model", device="cpu", dtype="bfloat16")
    plain = prepared(rounded)
    assert plain.compute_dtype == torch.float32
    assert plain.fingerprint() == model.fingerprint()
    assert rounded.compute_dtype == torch.bfloat16
    kept = load_model(tmp_path / "model", device="cpu", weights_dtype="bfloat16")
    assert next(prepared(kept).parameters()).dtype == torch.float32


def test_adapters_are_merged_before_an_export(bert):
    model = load_variant("poly-learnt", bert, shared_towers=True).eval()
    attach(model, rank=2, alpha=4, dropout=0.1)
    with torch.no_grad():
        for parameter in adapter_parameters(model):
            parameter.normal_(std=0.1)
    plain = prepared(model.eval())
    assert not is_adapted(plain)
    assert plain.fingerprint() == model.fingerprint()
    torch.testing.assert_close(plain.score(CONTEXTS, TEXTS), model.score(CONTEXTS, TEXTS))


def test_an_engine_has_as_many_threads_as_torch(exported):
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        run = load_model(exported("poly")[1], device="cpu")
    finally:
        torch.set_num_threads(before)
    options = run.engine.sessions["encoder.onnx"].get_session_options()
    assert options.intra_op_num_threads == 2


def test_info_and_commands_know_an_export(exported, tmp_path, capsys):
    folder = exported("poly")[1]

    def call(*arguments):
        code = run([*map(str, arguments), "--json"], commands())
        return code, json.loads(capsys.readouterr().out)

    code, found = call("info", folder)
    assert code == 0
    assert found["is"] == "a poly-encoder with 5 codes, exported for the engine onnx"
    assert found["check"]["overlap"] == 1
    assert found["fingerprint"] == load_model(folder).fingerprint()
    (tmp_path / "texts.txt").write_text("\n".join(filter(None, TEXTS)))
    given = ("--candidates", tmp_path / "texts.txt", "--output", tmp_path / "index")
    code, _ = call("index", "build", folder, *given, "--engine", "onnx")
    assert code == 0
    code, found = call("search", tmp_path / "index", "wifi", "--top-k", "1", "--engine", "onnx")
    expected = load_model(folder).rank("wifi", list(filter(None, TEXTS)))[0].text
    assert found["results"][0]["hits"][0]["text"] == expected
    assert run(["search", str(tmp_path / "index"), "wifi", "--engine", "torch"], commands()) == 2
    assert "has no weights for torch" in " ".join(capsys.readouterr().err.split())


def test_training_refuses_an_export(exported, tmp_path, capsys):
    folder = exported("poly")[1]
    examples = [{"context": text, "response": text} for text in TEXTS if text]
    (tmp_path / "train.jsonl").write_text("\n".join(map(json.dumps, examples)))
    with pytest.raises(UsageError, match=r"run by the engine onnx.* cannot be trained"):
        polyrank.train(load_model(folder), examples, tmp_path / "trained", max_steps=1)
    given = ["--train", tmp_path / "train.jsonl", "--output", tmp_path / "trained"]
    given += ["--arch", "poly", "--base", folder, "--max-steps", "1"]
    assert run(["train", *map(str, given)], commands()) == 2
    assert "cannot be trained" in " ".join(capsys.readouterr().err.split())
    assert [each.name for each in tmp_path.iterdir()] == ["train.jsonl"]


def test_the_graph_of_another_kind_of_model_is_refused(poly, exported):
    shutil.copy(exported("electra")[1] / "pair.onnx", poly / "encoder.onnx")
    reseal(poly)
    with pytest.raises(ModelError, match="takes attention_mask, input_ids, token_type_ids"):
        load_model(poly)


def test_an_opset_that_the_runtime_lacks_is_refused(poly):
    import onnx

    graph = onnx.load(poly / "encoder.onnx")
    graph.opset_import[0].version = 999
    onnx.save(graph, poly / "encoder.onnx")
    reseal(poly)
    with pytest.raises(ModelError, match=r"ONNX Runtime .* cannot read the graph .*opset"):
        load_model(poly)


def test_too_little_memory_for_a_graph_is_no_damage(poly, monkeypatch):
    import onnxruntime
    from onnxruntime.capi.onnxruntime_pybind11_state import Fail

    def refuse(*_, **__):
        raise Fail("[ONNXRuntimeError] : 1 : FAIL : Load model failed:std::bad_alloc")

    monkeypatch.setattr(onnxruntime, "InferenceSession", refuse)
    with pytest.raises(OutOfMemoryError, match="Load model failed"):
        load_model(poly)
    assert not is_out_of_memory(ModelError("The text 'out of memory' is empty.", ""))


def test_no_graph_at_all_is_refused(poly):
    (poly / "encoder.onnx").write_bytes(b"no graph")
    reseal(poly)
    with pytest.raises(ModelError, match="cannot read the graph"):
        load_model(poly)


@pytest.mark.parametrize("case", ["poly", "once"])
def test_a_server_runs_an_export(case, exported):
    model, folder = exported(case)
    pipeline = load_pipeline(PipelineConfig(models=(f"graph={folder}",)), device="cpu")
    served = pipeline.models["graph"]
    assert served.model.engine is not None

    async def scores():
        runtime = Runtime(pipeline, ServerConfig())
        try:
            await runtime.start()
            return await runtime.score(served, CONTEXTS[0], TEXTS, Flow.lasting(60))
        finally:
            runtime.close()

    expected = model.score([CONTEXTS[0]], TEXTS)[0]
    found = torch.tensor(asyncio.run(scores()).scores)
    torch.testing.assert_close(found, expected, atol=2e-5, rtol=1e-5)


def test_a_missing_runtime_is_named(poly, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(MissingExtraError, match=r'pip install "polyrank\[onnx\]"'):
        load_model(poly)


def test_no_transformers_is_needed(exported):
    """Nor is the rest of torch's exporter: an engine starts as fast as its runtime."""
    code = (
        "import sys; from polyrank import load_model\n"
        f"load_model({str(exported('poly')[1])!r}).score('a', ['b'])\n"
        "assert 'transformers' not in sys.modules and 'onnxscript' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_an_export_loads_by_its_hub_id(exported, hub):
    folder = exported("poly")[1]
    hub.add("some/export", folder)
    run = load_model("some/export")
    assert run.engine.name == "onnx"
    assert run.fingerprint() == fingerprint_of(folder)
