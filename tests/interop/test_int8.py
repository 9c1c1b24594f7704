"""Exports whose encoders multiply in 8 bits: calibration, outliers, the gate."""

import json
import re
import sys
from itertools import permutations

import numpy as np
import pytest
import torch

import polyrank
from polyrank.cli.main import commands, run
from polyrank.errors import DataError, MissingExtraError, ModelError, UsageError
from polyrank.interop.graphs.calibration import calibration_inputs, read_texts
from polyrank.interop.graphs.outliers import SplitLinear, channel_maxima, outliers, outliers_apart
from polyrank.interop.graphs.tracing import graph_files
from tiny_encoders import WORDS, load_variant

SENTENCES = [" ".join(words) for words in permutations(WORDS[12:18], 4)]


@pytest.fixture(scope="module")
def model(encoder_folder):
    """A poly-encoder, whose encoder reads both sides."""
    return load_variant("poly-learnt", encoder_folder("bert"), shared_towers=True).eval()


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    """A file of candidates."""
    file = tmp_path_factory.mktemp("texts") / "texts.txt"
    file.write_text("\n".join(SENTENCES), encoding="utf-8")
    return file


@pytest.fixture(scope="module")
def made(model, texts, tmp_path_factory):
    """An export that any overlap satisfies, and what was said of it."""
    path = tmp_path_factory.mktemp("int8") / "export"
    return polyrank.export(
        model, path, to="openvino", quantise="int8", calibration=texts, min_overlap=0
    )


@pytest.fixture(scope="module")
def made_onnx(model, texts, tmp_path_factory):
    """The same for ONNX."""
    path = tmp_path_factory.mktemp("int8") / "onnx"
    return polyrank.export(
        model, path, to="onnx", quantise="int8", calibration=texts, min_overlap=0
    )


def test_the_encoders_multiply_in_8_bits_in_onnx(model, made_onnx):
    import onnx

    graph = onnx.load(made_onnx.path / "encoder.onnx").graph
    weights = [each for each in graph.initializer if each.data_type == 3 and len(each.dims) == 2]
    num_linear = sum(isinstance(each, torch.nn.Linear) for each in model.context_tower.modules())
    assert len(weights) == num_linear > 0
    run = polyrank.load_model(made_onnx.path)
    expected, found = (each.encode_candidates(SENTENCES[:20]) for each in (model, run))
    assert torch.nn.functional.cosine_similarity(expected, found).min() > 0.98
    assert not torch.equal(expected, found)
    record = json.loads((made_onnx.path / "export.json").read_text(encoding="utf-8"))
    assert record["precision"] == "int8"
    assert record["versions"]["nncf"]


def test_the_encoders_multiply_in_8_bits_and_nothing_else_does(model, made):
    graph = (made.path / "encoder.xml").read_text(encoding="utf-8")
    weights = re.findall(r'<data element_type="i8" shape="[0-9]+, ?[0-9]+"', graph)
    num_linear = sum(isinstance(each, torch.nn.Linear) for each in model.context_tower.modules())
    assert len(weights) == num_linear > 0
    assert (made.path / "encoder.bin").stat().st_size < 4 * sum(
        each.numel() for each in model.parameters()
    )


def test_an_int8_export_answers_almost_as_torch_does(model, made):
    run = polyrank.load_model(made.path)
    expected, found = (each.encode_candidates(SENTENCES[:20]) for each in (model, run))
    cosines = torch.nn.functional.cosine_similarity(expected, found)
    assert 0.98 < cosines.min() < 1
    assert not torch.equal(expected, found)


def test_the_report_has_the_figures(made):
    record = json.loads((made.path / "export.json").read_text(encoding="utf-8"))
    assert record["precision"] == "int8"
    assert record["check"] == made.report
    assert 0 < made.report["overlap"] <= 1
    assert made.report["mean_cosine"] < 1
    assert made.report["num_candidates"] > 100
    assert set(record["versions"]) == {"torch", "openvino", "nncf"}
    assert any("of the best 10" in note for note in made.notes)


def test_too_low_an_overlap_writes_nothing(model, texts, tmp_path, monkeypatch):
    from openvino import opset13

    from polyrank.interop.graphs import openvino

    spoilt_graphs = []

    def spoilt(graph, encoders, batches):
        """What 8 bits would do to an encoder that they do not suit."""
        spoilt_graphs.append(graph)
        for node in graph.get_ordered_ops():
            if node.get_type_name() == "MatMul":
                nothing = opset13.multiply(node.input_value(0), np.float32(0))
                node.input(0).replace_source_output(nothing.output(0))
        return graph

    monkeypatch.setattr(openvino, "quantised", spoilt)
    with pytest.raises(ModelError, match=r"keep 0\.\d+ of the best 10 .*expected at least 0\.95"):
        polyrank.export(
            model, tmp_path / "export", to="openvino", quantise="int8", calibration=texts
        )
    assert len(spoilt_graphs) == 1
    assert not list(tmp_path.iterdir())


def test_the_command_refuses_in_two_sentences(model, texts, tmp_path, capsys):
    model.save_copy(tmp_path / "model")
    start = ["export", str(tmp_path / "model"), "--to", "openvino", "--output"]
    start += [str(tmp_path / "export"), "--quantise", "int8"]
    assert run(start, commands()) == 2
    assert "quantise = int8 needs texts" in capsys.readouterr().err
    assert run([*start, "--calibration", str(tmp_path / "none.txt")], commands()) == 2
    assert "none.txt" in capsys.readouterr().err
    assert sorted(each.name for each in tmp_path.iterdir()) == ["model"]


def test_settings_that_do_not_fit_are_refused(model, texts, tmp_path):
    path = tmp_path / "export"
    with pytest.raises(UsageError, match="calibration is only used with quantise"):
        polyrank.export(model, path, to="openvino", calibration=texts)
    with pytest.raises(UsageError, match="min_overlap must be between 0 and 1"):
        polyrank.export(
            model, path, to="openvino", quantise="int8", calibration=texts, min_overlap=95
        )
    with pytest.raises(UsageError, match="quantise"):
        polyrank.export(model, path, to="openvino", quantise="int4", calibration=texts)
    assert not path.exists()


@pytest.mark.parametrize("target", ["onnx", "openvino"])
def test_a_missing_quantiser_is_named(target, model, texts, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "nncf", None)
    with pytest.raises(MissingExtraError, match=r'pip install "polyrank\[openvino\]"'):
        polyrank.export(model, tmp_path / "export", to=target, quantise="int8", calibration=texts)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("content", ["", "one\ntwo\n", "the same\n" * 100])
def test_too_few_texts_are_refused(content, model, tmp_path):
    file = tmp_path / "texts.txt"
    file.write_text(content, encoding="utf-8")
    with pytest.raises(DataError, match=r"texts\.txt"):
        polyrank.export(
            model, tmp_path / "export", to="openvino", quantise="int8", calibration=file
        )
    assert not (tmp_path / "export").exists()


def test_no_text_is_both_calibrated_on_and_checked(texts, tmp_path):
    examples = tmp_path / "examples.jsonl"
    with examples.open("w", encoding="utf-8") as lines:
        for first, second in zip(SENTENCES, SENTENCES[7:], strict=False):
            lines.write(json.dumps({"context": [first, "a"], "response": second}) + "\n")
    for file in (texts, examples):
        calibrated, held = read_texts(file)
        both = {*calibrated.contexts, *calibrated.candidates}
        assert not both & {*held.contexts, *held.candidates}
        assert len(calibrated.candidates) > 60
        assert len(held.contexts) > 20
        assert len(held.candidates) > 60
        assert read_texts(file) == (calibrated, held)
    assert isinstance(calibrated.contexts[0], tuple)


def test_the_largest_channels_of_a_layer_are_multiplied_apart(encoder_folder, texts):
    """The results stay the same, and the layer that is quantised does not see the outlier."""
    model = load_variant("poly-learnt", encoder_folder("bert"), shared_towers=True).eval()
    layer = model.context_tower.encoder.encoder.layer[0]
    with torch.no_grad():
        layer.intermediate.dense.bias[5] = 40
    (graph,) = graph_files(model)
    batches = calibration_inputs(model, graph, read_texts(texts)[0])
    linear = layer.output.dense
    with torch.no_grad():
        before = graph.module(*batches[0])
        with outliers_apart(graph.module, batches) as split:
            assert split[0] is layer.output.dense
            assert isinstance(split[0], SplitLinear)
            assert split[0].channels.tolist() == [5]
            (seen,) = channel_maxima(graph.module, [split[0].linear], batches)
            after = graph.module(*batches[0])
    assert seen[5] == 0
    assert 0 < seen.max() < 20
    assert layer.output.dense is linear
    assert not linear._forward_pre_hooks
    for one, other in zip(before, after, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)


def test_only_far_larger_channels_are_outliers():
    maxima = torch.ones(64)
    assert not len(outliers(maxima))
    maxima[[5, 40]] = torch.tensor([9.0, 4.0])
    assert outliers(maxima).tolist() == [5, 40]
    maxima[:30] = 9
    assert not len(outliers(maxima))
