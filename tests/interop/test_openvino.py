"""Models exported to OpenVINO, run behind the same calls as torch's."""

import os
import re
import shutil
import subprocess
import sys
from itertools import combinations
from threading import Thread

import numpy as np
import pytest
import torch
from exported_models import CASES, export_case, of, reseal

from polyrank import Index, load_model
from polyrank.errors import MissingExtraError, ModelError, UsageError
from polyrank.models.attention import attention_map
from tiny_encoders import LONG, TEXTS

CONTEXTS = [*TEXTS, ["hello", "how do i boot", "with the old kernel"], LONG]

MODELS = CASES | {
    "once of ModernBERT": of("modernbert", "cross", reading="once", reduction="mean"),
    "pooler": of("roberta", "cross", head="pooler"),
    "classes of pairs": of("bert", "cross", head="auto", task="classify", num_labels=3),
}
"""Every architecture, every kind of context vectors and every head, on some family."""


@pytest.fixture(scope="module")
def exported(encoder_folder, tmp_path_factory):
    """A function: the name of a model → (the model, the folder of its export to OpenVINO)."""
    made = {}

    def get(name):
        if name not in made:
            folder = tmp_path_factory.mktemp("exported") / "model"
            model = MODELS[name](encoder_folder)
            export_case(model, folder, to="openvino")
            made[name] = model, folder
        return made[name]

    return get


@pytest.fixture
def poly(exported, tmp_path):
    """A copy of an export that a test may damage."""
    return shutil.copytree(exported("poly")[1], tmp_path / "poly")


@pytest.mark.parametrize("name", MODELS)
def test_scores_are_those_of_torch(name, exported):
    model, folder = exported(name)
    run = load_model(folder, dtype="float32")
    assert type(run) is type(model)
    assert run.engine.name == "openvino"
    if name == "classes of pairs":
        pairs = [(context, text) for context in CONTEXTS for text in TEXTS]
        torch.testing.assert_close(
            run.class_logits(pairs), model.class_logits(pairs), atol=1e-4, rtol=0
        )
        return
    np.testing.assert_allclose(
        run.score(CONTEXTS, TEXTS), model.score(CONTEXTS, TEXTS), atol=1e-4, rtol=0
    )
    if model.classes is not None:
        pairs = [(context, text) for context in CONTEXTS for text in TEXTS]
        assert run.classify(pairs) == model.classify(pairs)


@pytest.mark.parametrize("name", ["once", "once of ModernBERT"])
def test_a_context_is_read_once(name, exported, monkeypatch):
    model, folder = exported(name)
    run = load_model(folder, dtype="float32")
    graphs = []
    plain = run.engine.run

    def counted(graph, batch):
        graphs.append(graph)
        return plain(graph, batch)

    monkeypatch.setattr(run.engine, "run", counted)
    run.batch_tokens = 40
    scores = run.score(["hello", LONG], TEXTS)
    assert graphs.count("kept") == 2
    assert graphs.count("block") > 2
    torch.testing.assert_close(scores, model.score(["hello", LONG], TEXTS), atol=1e-4, rtol=0)
    torch.testing.assert_close(run.score("hello", TEXTS, batch_size=3), scores[0])


def test_neither_batches_nor_padding_change_a_score(exported):
    run = load_model(exported("poly")[1], dtype="float32")
    together = run.score(CONTEXTS, TEXTS)
    alone = torch.cat([run.score([context], TEXTS) for context in CONTEXTS])
    torch.testing.assert_close(together, alone, atol=1e-5, rtol=1e-5)


def test_results_stay_when_the_next_batch_is_run(exported):
    run = load_model(exported("poly")[1], dtype="float32")
    batch = {"input_ids": torch.tensor([[2, 9, 8, 3]])}
    first = run.engine.run("candidate", batch)
    kept = first.clone()
    run.engine.run("candidate", {"input_ids": torch.tensor([[2, 7, 5, 3]])})
    assert torch.equal(first, kept)


def test_threads_do_not_mix_their_results(exported):
    model, folder = exported("poly")
    run, found = load_model(folder, dtype="float32"), {}

    def encode(text):
        for _ in range(20):
            found[text] = run.encode_candidates([text] * 3)

    threads = [Thread(target=encode, args=(text,)) for text in TEXTS[:4]]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for text in TEXTS[:4]:
        torch.testing.assert_close(found[text], model.encode_candidates([text] * 3))


def test_an_index_of_an_engine_finds_what_torch_finds(exported, tmp_path):
    model, folder = exported("poly")
    run = load_model(folder, dtype="float32")
    texts = [f"{first} {second}" for first, second in combinations(TEXTS, 2)]
    Index.build(run, texts, tmp_path / "run")
    Index.build(model, texts, tmp_path / "torch")
    assert Index.open(tmp_path / "run").model.engine.name == "openvino"
    found = Index.open(tmp_path / "run", run).search(CONTEXTS, 5)
    expected = Index.open(tmp_path / "torch", model).search(CONTEXTS, 5)
    for one, other in zip(found, expected, strict=True):
        assert [hit.id for hit in one] == [hit.id for hit in other]


def test_precision_and_device(exported):
    model, folder = exported("poly")
    expected = model.score(CONTEXTS, TEXTS)
    run = load_model(folder, dtype="bfloat16")
    assert run.engine.dtype == torch.bfloat16
    assert 0 < (run.score(CONTEXTS, TEXTS) - expected).abs().max() < 0.5
    with pytest.raises(UsageError, match=r"computes on the CPU, not on the device 'cuda'"):
        load_model(folder, device="cuda")
    with pytest.raises(UsageError, match=r"does not compute in float64"):
        load_model(folder, dtype=torch.float64)


def test_it_takes_as_many_threads_as_torch(exported):
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        run = load_model(exported("poly")[1])
        (compiled,) = run.engine.compiled.values()
        assert compiled.get_property("INFERENCE_NUM_THREADS") == 1
    finally:
        torch.set_num_threads(before)


def test_no_results_are_too_little_memory(exported, monkeypatch):
    """OpenVINO gives none, and no error, where it cannot allocate them."""
    import openvino

    class Empty:
        def infer(self, feeds, share_inputs): ...

        def get_tensor(self, name):
            return openvino.Tensor(np.zeros((0, 8), np.float32))

    run = load_model(exported("poly")[1])
    monkeypatch.setattr(run.engine, "request_for", lambda file: Empty())
    with pytest.raises(MemoryError):
        run.encode_candidates(["a text"])


def cut_graph(folder):
    graph = folder / "encoder.xml"
    graph.write_bytes(graph.read_bytes()[:-1000])


def cut_weights(folder):
    weights = folder / "encoder.bin"
    weights.write_bytes(weights.read_bytes()[:-1000])


def newer_graph(folder):
    graph = folder / "encoder.xml"
    text = graph.read_text(encoding="utf-8")
    graph.write_text(re.sub(r'version="11"', 'version="99"', text, count=1), encoding="utf-8")


def newer_operator(folder):
    graph = folder / "encoder.xml"
    text = graph.read_text(encoding="utf-8")
    graph.write_text(
        re.sub(r'type="MatMul" version="opset1"', 'type="MatMul" version="opset99"', text),
        encoding="utf-8",
    )


@pytest.mark.parametrize("damage", [cut_graph, cut_weights, newer_graph, newer_operator])
def test_what_the_runtime_cannot_read_is_refused(damage, poly):
    damage(poly)
    reseal(poly)
    with pytest.raises(ModelError, match=r"OpenVINO .* cannot read the graph .*encoder\.xml"):
        load_model(poly)


@pytest.mark.parametrize("damage", [cut_graph, cut_weights])
def test_a_damaged_file_is_refused_before_the_runtime_sees_it(damage, poly):
    damage(poly)
    with pytest.raises(ModelError, match=r"has [\d,]+ bytes, expected"):
        load_model(poly)


def test_the_graph_of_another_kind_of_model_is_refused(poly, exported):
    for ending in (".xml", ".bin"):
        shutil.copy(exported("electra")[1] / f"pair{ending}", poly / f"encoder{ending}")
    reseal(poly)
    with pytest.raises(ModelError, match="takes attention_mask, input_ids, token_type_ids"):
        load_model(poly)


def test_a_missing_runtime_is_named(poly, monkeypatch):
    monkeypatch.setitem(sys.modules, "openvino", None)
    with pytest.raises(MissingExtraError, match=r'pip install "polyrank\[openvino\]"'):
        load_model(poly)


QUIET = """
import sys
touched = []
def watch(event, arguments):
    if event in ("socket.connect", "socket.getaddrinfo", "subprocess.Popen", "os.fork"):
        touched.append((event, arguments))
sys.addaudithook(watch)
from polyrank import load_model
from polyrank.interop.graphs.quantisation import import_nncf
load_model({folder!r}).score("a", ["b"])
nncf = import_nncf()
nncf.telemetry.telemetry.send_event("nncf", "test", "test")
import openvino.tools.ovc
openvino.tools.ovc.telemetry.send_event("ov", "test", "test")
assert sys.modules.get("openvino_telemetry") is None
assert "transformers" not in sys.modules
assert not touched, touched
"""


def test_nothing_is_sent_and_nothing_is_written_unasked(exported, tmp_path):
    """OpenVINO and NNCF send events as soon as they are imported, unless they are kept from it."""
    environment = os.environ | {"HOME": str(tmp_path)}
    environment.pop("CI", None)
    code = QUIET.format(folder=str(exported("poly")[1]))
    subprocess.run([sys.executable, "-c", code], check=True, env=environment, cwd=tmp_path)
    assert not list(tmp_path.iterdir())


def test_the_files_do_not_name_this_machine(exported):
    text = (exported("poly")[1] / "encoder.xml").read_text(encoding="utf-8")
    assert os.path.expanduser("~") not in text
    assert os.getcwd() not in text


def test_which_token_a_vector_is_needs_no_weights(exported):
    torch_model, folder = exported("distilbert")
    model = load_model(folder)
    vectors = model.encode_candidates_for_scoring(TEXTS)
    for context in CONTEXTS:
        found = attention_map(model, context, vectors)
        expected = attention_map(torch_model, context, vectors)
        assert torch.equal(found.tokens, expected.tokens)
        torch.testing.assert_close(found.weights, expected.weights, atol=1e-3, rtol=1e-2)
