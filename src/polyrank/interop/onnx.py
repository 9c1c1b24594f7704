"""A model as ONNX graphs. Knows torch's exporter and ONNX's files; knows no architecture."""

from __future__ import annotations

import contextlib
import importlib.metadata
import io
import logging
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from polyrank.errors import MissingExtraError, ModelError
from polyrank.interop.graphs import GraphFile

ENDING = ".onnx"
PACKAGES = ("torch", "onnx", "onnxscript", "onnxruntime")
LARGEST_FILE = 1_500_000_000
"""The most bytes of weights in the graph's own file, since ONNX's format ends at 2 GB; more lie
beside it."""


def write_graph(graph: GraphFile, folder: Path) -> tuple[str, list[str]]:
    """Write a graph with its weights, of any number of texts and tokens.

    Args:
        graph: The graph.
        folder: Where to write.

    Returns:
        The name of the graph's file, and of all files.

    Raises:
        MissingExtraError: A package that the exporter needs is not installed.
        ModelError: torch cannot express the encoder in ONNX.
    """
    require_exporter()
    name = graph.name + ENDING
    size = sum(each.numel() * each.element_size() for each in graph.module.parameters())
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
        program.save(folder / name, external_data=size > LARGEST_FILE)
    return name, [each.name for each in folder.glob(f"{name}*")]


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


def versions() -> dict[str, str]:
    """The versions of what writes and reads the graphs."""
    return {name: importlib.metadata.version(name) for name in PACKAGES}


def require_exporter() -> None:
    """Raise MissingExtraError unless all packages are installed."""
    for name in PACKAGES[1:]:
        if importlib.util.find_spec(name) is None:
            raise MissingExtraError(name, "onnx", "An export to ONNX")


@contextlib.contextmanager
def silenced() -> Iterator[None]:
    """Without the exporter's warnings, which are for those who write it."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
