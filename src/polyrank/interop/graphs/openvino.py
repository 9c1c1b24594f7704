"""A model as OpenVINO graphs, in float32 or with encoders that multiply in 8 bits.

Knows OpenVINO's converter and files; knows no architecture.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn

from polyrank.errors import ModelError
from polyrank.export_targets import GraphExport
from polyrank.interop.export import Written
from polyrank.interop.graphs.agreement import HeldTexts
from polyrank.interop.graphs.calibration import calibration_inputs, feeds_of
from polyrank.interop.graphs.folder import versions_of, write_checked
from polyrank.interop.graphs.onnx import dynamic_shapes
from polyrank.interop.graphs.outliers import outliers_apart
from polyrank.interop.graphs.quantisation import import_nncf, quantised
from polyrank.interop.graphs.tracing import GraphFile
from polyrank.models.backbone import Backbone
from polyrank.models.base import Model
from polyrank.models.engines.openvino import import_openvino

ENDING = ".xml"
PACKAGES = ("torch", "openvino")


def write(model: Model, folder: Path, config: GraphExport, path: Path) -> Written:
    """Write a model as OpenVINO graphs into `folder`, which becomes `path`, and check them.

    Args:
        model: The model; it is not changed.
        folder: An empty folder.
        config: Whether to quantise, on which texts, and how good the result must be.
        path: Where the folder will be.

    Returns:
        How to load it, and how far it is from torch.

    Raises:
        UsageError: The model cannot become a graph.
        ModelError: OpenVINO cannot express it, the graphs give other results than torch, or the
            quantised ones rank too differently.
        DataError: There are too few texts to calibrate on.
        MissingExtraError: A package is not installed.
    """
    import_openvino()
    if config.quantise is not None:
        import_nncf()
    ways, noted = (write_graph, write_quantised), versions_of(PACKAGES, config)
    return write_checked(model, folder, "openvino", *ways, config, noted, path)


def write_graph(graph: GraphFile, folder: Path) -> tuple[str, list[str]]:
    """Write a graph with its weights in float32, for any number of texts and tokens.

    Returns the name of the graph's file, and of all files. Raises ModelError.
    """
    return save(converted(graph), graph.name, folder)


def write_quantised(
    graph: GraphFile, folder: Path, *, model: Model, texts: HeldTexts
) -> tuple[str, list[str]]:
    """Write a graph whose encoder multiplies in 8 bits; a classifier stays as it is.

    Returns the name of the graph's file, and of all files. Raises ModelError, MissingExtraError.
    """
    if not any(isinstance(module, Backbone) for module in graph.module.modules()):
        return write_graph(graph, folder)
    batches = calibration_inputs(model, graph, texts)
    with outliers_apart(graph.module, batches):
        found = converted(graph)
    return save(quantised(found, model.towers, feeds_of(graph, batches)), graph.name, folder)


def save(model: Any, name: str, folder: Path) -> tuple[str, list[str]]:
    """Write a converted graph: the operators in .xml, the weights in .bin."""
    file = folder / (name + ENDING)
    import_openvino().save_model(model, file, compress_to_fp16=False)
    return file.name, [file.name, file.with_suffix(".bin").name]


def converted(graph: GraphFile) -> Any:
    """A graph as OpenVINO's model. Raises MissingExtraError, ModelError."""
    openvino = import_openvino()
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")  # the tracers' are for those who write modules
        try:
            model = from_torch(openvino, graph)
        except Exception as error:  # its errors have no base class of their own
            reason = " ".join(str(error).split())[:500].rstrip(".")
            raise ModelError(
                f"OpenVINO {openvino.__version__} cannot express the model: {reason}.",
                "Use another encoder, or run the model with torch.",
            ) from error
    for ports, names in ((model.inputs, graph.inputs), (model.outputs, graph.outputs)):
        for port, name in zip(ports, names, strict=True):
            port.get_tensor().set_names({name})
    shapes = {
        port: openvino.PartialShape(
            [-1 if axis in axes else size for axis, size in enumerate(example.shape)]
        )
        for port, axes, example in zip(model.inputs, graph.dynamic_axes, graph.example, strict=True)
    }
    model.reshape(shapes)
    return model


def from_torch(openvino: Any, graph: GraphFile) -> Any:
    """What OpenVINO makes of a module.

    TorchScript's tracer is several times as fast as torch.export, but cannot trace the masks of
    some decoders.
    """
    try:
        return openvino.convert_model(graph.module, example_input=graph.example)
    except Exception:
        with plain_attention(graph.module):
            program = torch.export.export(
                graph.module, graph.example, dynamic_shapes=dynamic_shapes(graph), strict=False
            )
        return openvino.convert_model(program)


@contextlib.contextmanager
def plain_attention(module: nn.Module) -> Iterator[None]:
    """With attention as products and a softmax, whose masks are finite.

    OpenVINO's fused attention gives no numbers for padding that sees nothing through a window.
    """
    encoders: list[Any] = [
        each.encoder
        for each in module.modules()
        if isinstance(each, Backbone) and hasattr(each.encoder, "set_attn_implementation")
    ]
    kept = [encoder.config._attn_implementation for encoder in encoders]
    for encoder in encoders:
        encoder.set_attn_implementation("eager")
    try:
        yield
    finally:
        for encoder, implementation in zip(encoders, kept, strict=True):
            encoder.set_attn_implementation(implementation)
