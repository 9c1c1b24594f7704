"""OpenVINO as an engine. Knows compiled models, threads and precision; knows nothing of models."""

from __future__ import annotations

import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from polyrank.errors import (
    MissingExtraError,
    ModelError,
    OutOfMemoryError,
    UsageError,
    is_out_of_memory,
)
from polyrank.models.engines.engine import inputs_of, require_ends
from polyrank.models.engines.record import ExportRecord
from polyrank.runtime import resolve_dtype

HINTS = {torch.float32: "f32", torch.bfloat16: "bf16"}
"""OpenVINO's names of the precisions. In a graph with weights of 8 bits, it is that of the rest."""


class OpenVinoEngine:
    """Runs graphs with OpenVINO; batches and results are on the CPU."""

    name = "openvino"

    def __init__(self, folder: Path, record: ExportRecord, dtype: torch.dtype) -> None:
        """Compile each file. Raises MissingExtraError, ModelError."""
        self.folder = folder
        self.record = record
        self.device = torch.device("cpu")
        self.dtype = dtype
        self.compiled = {
            name: compile_graph(folder / name, HINTS[dtype])
            for name in {graph.file for graph in record.graphs.values()}
        }
        self.requests = threading.local()
        self.require_graphs(folder)

    def require_graphs(self, folder: Path) -> None:
        """Raise ModelError unless each graph takes and gives what the record says."""
        for graph in self.record.graphs.values():
            compiled = self.compiled[graph.file]
            inputs = {each for port in compiled.inputs for each in port.get_names()}
            outputs = {each for port in compiled.outputs for each in port.get_names()}
            require_ends(folder, graph, inputs, outputs)

    def run(self, graph: str, batch: Mapping[str, Tensor]) -> Tensor:
        """The results of a graph, float32, of a batch. Raises MemoryError."""
        wanted = self.record.graphs[graph]
        request = self.request_for(wanted.file)
        feeds = inputs_of(wanted, batch)
        request.infer(feeds, share_inputs=True)
        found = request.get_tensor(wanted.output).data
        if not found.size and all(each.size for each in feeds.values()):
            raise MemoryError("OpenVINO gave no results")  # as it does where memory is short
        # the request writes its next results to the same memory
        return torch.from_numpy(found.copy())

    def request_for(self, file: str) -> Any:
        """The request of this thread: one cannot run in two threads at once."""
        known: dict[str, Any] = self.requests.__dict__
        if file not in known:
            known[file] = self.compiled[file].create_infer_request()
        return known[file]


def open_engine(
    folder: Path, record: ExportRecord, device: str | torch.device, dtype: str | torch.dtype
) -> OpenVinoEngine:
    """Open the graphs of a folder. Raises MissingExtraError, ModelError, UsageError."""
    if str(device) not in ("auto", "cpu"):
        raise UsageError(
            f"The engine openvino computes on the CPU, not on the device {str(device)!r}.",
            "Leave out the device, or load the model that was exported, with torch.",
        )
    precision = resolve_dtype(dtype, torch.device("cpu"))
    if precision not in HINTS:
        raise UsageError(
            f"The engine openvino does not compute in {str(dtype).removeprefix('torch.')}.",
            "Use auto, float32 or bfloat16.",
        )
    return OpenVinoEngine(folder, record, precision)


def import_openvino() -> Any:
    """OpenVINO, which then sends nothing anywhere. Raises MissingExtraError.

    Without `openvino_telemetry`, OpenVINO and NNCF take a stub of their own. With it, importing
    them already writes an id of the user to the home folder and sends an event to Google.
    """
    sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]
    try:
        import openvino
    except ImportError:
        raise MissingExtraError("openvino", "openvino", "The engine openvino") from None
    return openvino


def compile_graph(file: Path, hint: str) -> Any:
    """A compiled graph that uses as many threads as torch. Raises ModelError."""
    openvino = import_openvino()
    settings = {
        "INFERENCE_PRECISION_HINT": hint,
        "PERFORMANCE_HINT": "LATENCY",  # all threads work on one batch
        "NUM_STREAMS": 1,
        "INFERENCE_NUM_THREADS": torch.get_num_threads(),
        "ENABLE_CPU_PINNING": False,  # processes that work side by side would share cores
    }
    core = openvino.Core()
    try:
        return core.compile_model(core.read_model(file), "CPU", settings)
    except Exception as error:  # its errors have no base class of their own
        if is_out_of_memory(error):
            raise OutOfMemoryError(error) from error
        reason = " ".join(str(error).split())[:500].rstrip(".")
        raise ModelError(
            f"OpenVINO {openvino.__version__} cannot read the graph {file}: {reason}.",
            "Install a newer openvino if it lacks an operator or the version of the graph; "
            "otherwise export the model again.",
        ) from error
