"""The protocol of engines, and which engine runs the model in a folder.

Knows no runtime; each has its module, which is imported when it is used.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol, get_args

import torch
from torch import Tensor

from polyrank.errors import ModelError, UsageError
from polyrank.models.backbone import unknown_ids
from polyrank.models.config import EngineName
from polyrank.models.description import DESCRIPTION, WEIGHTS
from polyrank.models.engines.record import (
    AGAIN,
    EXPORT,
    ExportRecord,
    Graph,
    is_export,
    read_record,
)

RUNTIMES = {"onnx": "polyrank.models.engines.onnx", "openvino": "polyrank.models.engines.openvino"}
"""The module of each engine that runs graphs, with `open_engine(folder, record, device, dtype)`."""


class Engine(Protocol):
    """Runs the graphs of one exported model."""

    name: str
    """`onnx` or `openvino`."""
    folder: Path
    """The folder of the export."""
    record: ExportRecord
    """What `export.json` says."""
    device: torch.device
    """Where the tensors of a batch must be."""
    dtype: torch.dtype
    """The precision in which it computes, as far as torch has a name for it."""

    def run(self, graph: str, batch: Mapping[str, Tensor]) -> Tensor:
        """The results of a graph, float32, of a batch (see `record` for names and shapes).

        A batch without `attention_mask` has no padding.
        """


def choose_engine(folder: Path, engine: str) -> str:
    """The engine for the model in a folder: `torch`, or one that runs the graphs there.

    Raises UsageError for an unknown engine, and ModelError if the folder is not for it.
    """
    if engine not in get_args(EngineName):
        known = ", ".join(get_args(EngineName))
        raise UsageError(f"The engine {engine!r} is unknown.", f"Use one of {known}.")
    has_weights = (folder / WEIGHTS).is_file() or not (folder / DESCRIPTION).is_file()
    if engine == "auto":
        engine = "torch" if has_weights or not is_export(folder) else read_record(folder).engine
    if engine == "torch":
        if not has_weights and is_export(folder):
            raise ModelError(
                f"{folder} is a model exported to {read_record(folder).engine}, so it has no "
                "weights for torch.",
                "Give the folder of the model that it was exported from.",
            )
        return engine
    if not is_export(folder):
        raise ModelError(
            f"{folder} has no graphs for the engine {engine}: there is no {EXPORT}.",
            f"Write them with: polyrank export {folder} --to {engine} --output FOLDER",
        )
    made_for = read_record(folder).engine
    if made_for != engine:
        raise ModelError(
            f"The graphs in {folder} are for the engine {made_for}, not for {engine}.",
            f"Load it with engine = {made_for}, or export the model again with --to {engine}.",
        )
    return engine


def open_engine(
    folder: Path,
    record: ExportRecord,
    device: str | torch.device = "auto",
    dtype: str | torch.dtype = "auto",
) -> Engine:
    """Open the graphs of an exported model, whose files have been checked.

    Raises:
        MissingExtraError: The runtime is not installed.
        ModelError: The runtime cannot read a graph.
        UsageError: The engine does not know the device or the precision.
    """
    if record.engine not in RUNTIMES:
        raise ModelError(
            f"The graphs in {folder} are for the unknown engine {record.engine!r}.",
            f"Known are: {', '.join(RUNTIMES)}.",
        )
    module: Any = importlib.import_module(RUNTIMES[record.engine])
    engine: Engine = module.open_engine(folder, record, device, dtype)
    return engine


def require_ends(folder: Path, graph: Graph, inputs: set[str], outputs: set[str]) -> None:
    """Raise ModelError unless a file takes and gives what the record says of its graph."""
    if inputs != set(graph.inputs) or graph.output not in outputs:
        raise ModelError(
            f"The graph {folder / graph.file} takes {', '.join(sorted(inputs))} and gives "
            f"{', '.join(sorted(outputs))}, expected {', '.join(graph.inputs)} and "
            f"{graph.output}.",
            f"The file is another model's. {AGAIN}",
        )


def inputs_of(graph: Graph, batch: Mapping[str, Tensor]) -> dict[str, Any]:
    """The inputs of a graph as arrays. Raises ModelError for an id that its encoder does not have.

    ONNX Runtime would fail at one, and OpenVINO would read another token.
    """
    ids = batch.get("input_ids")
    if graph.vocab_size is not None and ids is not None and ids.numel():
        highest = int(ids.max())
        if highest >= graph.vocab_size:
            raise unknown_ids(highest)
    return {name: input_of(batch, name).numpy() for name in graph.inputs}


def input_of(batch: Mapping[str, Tensor], name: str) -> Tensor:
    """An input of a graph; a mask or segments that a batch does not need are made."""
    found = batch.get(name)
    if found is None:
        ids = batch["input_ids"]
        found = torch.ones_like(ids) if name == "attention_mask" else torch.zeros_like(ids)
    return found.detach().cpu().contiguous()
