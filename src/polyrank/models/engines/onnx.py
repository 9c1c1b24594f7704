"""ONNX Runtime as an engine. Knows sessions, threads and providers; knows nothing of models."""

from __future__ import annotations

import os
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

CUDA, CPU = "CUDAExecutionProvider", "CPUExecutionProvider"


class OnnxEngine:
    """Runs graphs with ONNX Runtime; batches and results are on the CPU."""

    name = "onnx"

    def __init__(self, folder: Path, record: ExportRecord, device: str | torch.device) -> None:
        """Open one session per file. Raises MissingExtraError, ModelError, UsageError."""
        runtime = import_runtime()
        self.folder = folder
        self.record = record
        self.device = torch.device("cpu")
        self.dtype = torch.float32
        self.run_options = runtime.RunOptions()
        # The outputs of one file share the encoder; only what leads to the wanted one is computed.
        self.run_options.only_execute_path_to_fetches = True
        providers = providers_for(runtime, device)
        self.sessions = {
            name: open_session(runtime, folder / name, providers)
            for name in {graph.file for graph in record.graphs.values()}
        }
        self.require_graphs(folder)

    def require_graphs(self, folder: Path) -> None:
        """Raise ModelError unless each graph takes and gives what the record says."""
        for graph in self.record.graphs.values():
            session = self.sessions[graph.file]
            inputs = {each.name for each in session.get_inputs()}
            outputs = {each.name for each in session.get_outputs()}
            require_ends(folder, graph, inputs, outputs)

    def run(self, graph: str, batch: Mapping[str, Tensor]) -> Tensor:
        """The results of a graph, float32, of a batch."""
        wanted = self.record.graphs[graph]
        feeds = inputs_of(wanted, batch)
        results = self.sessions[wanted.file].run([wanted.output], feeds, self.run_options)
        return torch.from_numpy(results[0])


def open_engine(
    folder: Path, record: ExportRecord, device: str | torch.device, dtype: str | torch.dtype
) -> OnnxEngine:
    """Open the graphs of a folder. Raises MissingExtraError, ModelError, UsageError."""
    if dtype != "auto" and resolve_dtype(dtype, torch.device("cpu")) != torch.float32:
        raise UsageError(
            f"The engine onnx computes as its graphs say, which have {record.precision}, not in "
            f"{str(dtype).removeprefix('torch.')}.",
            "Leave out dtype, or load the model that was exported, with torch.",
        )
    return OnnxEngine(folder, record, device)


def import_runtime() -> Any:
    """ONNX Runtime. Raises MissingExtraError."""
    try:
        import onnxruntime
    except ImportError:
        raise MissingExtraError("onnxruntime", "onnx", "The engine onnx") from None
    onnxruntime.disable_telemetry_events()
    onnxruntime.set_default_logger_severity(3)  # its warnings are for those who write graphs
    return onnxruntime


def providers_for(runtime: Any, device: str | torch.device) -> list[Any]:
    """The execution providers for a device. Raises UsageError for one that it does not have."""
    name = str(device)
    has_cuda = CUDA in runtime.get_available_providers()
    kind, _, number = name.partition(":")
    if name == "auto":
        kind = "cuda" if has_cuda and torch.cuda.is_available() else "cpu"
    if kind == "cpu":
        return [CPU]
    if kind == "cuda" and has_cuda:
        return [(CUDA, {"device_id": int(number or 0)}), CPU]
    raise UsageError(
        f"The engine onnx cannot compute on the device {name!r}: ONNX Runtime has "
        f"{', '.join(runtime.get_available_providers())}.",
        "Use cpu; for an NVIDIA GPU, install onnxruntime-gpu instead of onnxruntime."
        if kind == "cuda"
        else "Use cpu.",
    )


def open_session(runtime: Any, file: Path, providers: list[Any]) -> Any:
    """A session that uses as many threads as torch. Raises ModelError."""
    options = runtime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.inter_op_num_threads = 1
    if os.environ.get("OMP_WAIT_POLICY", "").lower() == "passive":  # as torch's threads wait
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.log_severity_level = 3
    try:
        return runtime.InferenceSession(str(file), options, providers=providers)
    except Exception as error:  # its errors have no base class of their own
        if is_out_of_memory(error):
            raise OutOfMemoryError(error) from error
        reason = " ".join(str(error).split())
        raise ModelError(
            f"ONNX Runtime {runtime.__version__} cannot read the graph {file}: {reason}.",
            "Install a newer onnxruntime if it lacks an opset or an operator; otherwise export the "
            "model again.",
        ) from error
