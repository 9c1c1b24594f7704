"""A model as ONNX graphs. Knows torch's exporter and ONNX's files; knows no architecture."""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import io
import logging
import warnings
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch

from polyrank.errors import MissingExtraError, ModelError, UsageError
from polyrank.export_targets import GraphExport
from polyrank.interop.export import Written
from polyrank.interop.graphs.agreement import HeldTexts
from polyrank.interop.graphs.calibration import calibration_inputs, feeds_of
from polyrank.interop.graphs.folder import versions_of, write_checked
from polyrank.interop.graphs.outliers import outliers_apart
from polyrank.interop.graphs.quantisation import import_nncf, quantised
from polyrank.interop.graphs.tracing import GraphFile
from polyrank.models.backbone import Backbone
from polyrank.models.base import Model
from polyrank.models.engines.onnx import import_runtime

ENDING = ".onnx"
PACKAGES = ("torch", "onnx", "onnxscript", "onnxruntime")
LOGGERS = ("torch.onnx", "onnxscript", "torch.__trace")
"""Those of the exporter; the last one writes a book if anybody listens to all loggers."""
LARGEST_FILE = 1_500_000_000
"""The most bytes of weights in the graph's own file, since ONNX's format ends at 2 GB; more lie
beside it."""


def write(model: Model, folder: Path, config: GraphExport, path: Path) -> Written:
    """Write a model as ONNX graphs into `folder`, which becomes `path`, and check them.

    Args:
        model: The model; it is not changed.
        folder: An empty folder.
        config: Whether to quantise, on which texts, and how good the result must be.
        path: Where the folder will be.

    Returns:
        How to load it, and how far it is from torch.

    Raises:
        UsageError: The model cannot become a graph.
        ModelError: ONNX cannot express it, or the graphs give other results than torch.
        MissingExtraError: A package is not installed.
    """
    require_exporter()
    if config.quantise is not None:
        import_nncf()
    noted = versions_of(PACKAGES, config)
    ways = partial(write_graph, noted=noted), partial(write_quantised, noted=noted)
    return write_checked(model, folder, "onnx", *ways, config, noted, path)


def write_quantised(
    graph: GraphFile, folder: Path, *, noted: dict[str, str], model: Model, texts: HeldTexts
) -> tuple[str, list[str]]:
    """Write a graph whose encoder multiplies in 8 bits; a classifier stays as it is.

    Returns the name of the graph's file, and of all files. Raises ModelError, UsageError,
    MissingExtraError.
    """
    if not any(isinstance(module, Backbone) for module in graph.module.modules()):
        return write_graph(graph, folder, noted=noted)
    if size_of(graph) > LARGEST_FILE:
        raise UsageError(
            f"The weights have {size_of(graph):,} bytes, and ONNX graphs of more than "
            f"{LARGEST_FILE:,} cannot be quantised.",
            "Export it to openvino, or leave out quantise.",
        )
    import onnx

    batches = calibration_inputs(model, graph, texts)
    with outliers_apart(graph.module, batches):
        name, files = write_graph(graph, folder, noted=noted)
    found = onnx.load(folder / name)
    onnx.save(quantised(found, model.towers, feeds_of(graph, batches)), folder / name)
    return name, files


def write_graph(graph: GraphFile, folder: Path, *, noted: dict[str, str]) -> tuple[str, list[str]]:
    """Write a graph with its weights, of any number of texts and tokens.

    Args:
        graph: The graph.
        folder: Where to write.
        noted: Gets the version of ONNX's operators, `opset`.

    Returns:
        The name of the graph's file, and of all files.

    Raises:
        ModelError: torch cannot express the encoder in ONNX.
    """
    name = graph.name + ENDING
    with silenced():
        try:
            program: Any = torch.onnx.export(
                graph.module,
                graph.example,
                dynamo=True,
                dynamic_shapes=dynamic_shapes(graph),
                input_names=list(graph.inputs),
                output_names=list(graph.outputs),
                verbose=False,
            )
        except (torch.onnx.errors.OnnxExporterError, RuntimeError) as error:
            reason = " ".join(str(error).split())[:500]
            raise ModelError(
                f"torch {torch.__version__} cannot express the model in ONNX: {reason}",
                "Use another encoder, or run the model with torch.",
            ) from error
        forget_origin(program.model)
        noted["opset"] = str(program.model.opset_imports[""])
        program.save(folder / name, external_data=size_of(graph) > LARGEST_FILE)
    return name, [each.name for each in folder.glob(f"{name}*")]


def size_of(graph: GraphFile) -> int:
    """The bytes of a graph's weights."""
    return sum(each.numel() * each.element_size() for each in graph.module.parameters())


def dynamic_shapes(graph: GraphFile) -> tuple[dict[int, Any], ...]:
    """Which axes of each input vary."""
    return tuple(dict.fromkeys(axes, torch.export.Dim.DYNAMIC) for axes in graph.dynamic_axes)


def forget_origin(model: Any) -> None:
    """Remove what the exporter notes of the source code, with its paths on this machine."""
    for node in model.graph.all_nodes():
        node.metadata_props.clear()
        node.doc_string = None
    for value in model.graph.initializers.values():
        value.metadata_props.clear()


def require_exporter() -> None:
    """Raise MissingExtraError unless all packages are installed."""
    if importlib.util.find_spec("onnx") is None:
        raise MissingExtraError("onnx", "onnx", "An export to ONNX")
    if importlib.util.find_spec("onnxscript") is None:
        raise MissingExtraError("onnxscript", "onnx", "An export to ONNX")
    import_runtime()


@contextlib.contextmanager
def silenced() -> Iterator[None]:
    """Without the exporter's warnings, which are for those who write it."""
    loggers = [logging.getLogger(name) for name in LOGGERS]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
