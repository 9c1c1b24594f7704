"""Writes an exported model: its graphs by any runtime's exporter, its record, and the check.

Knows what all engines share; the modules of the runtimes know their formats.
"""

from __future__ import annotations

import importlib.metadata
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

import torch

from polyrank.errors import UsageError
from polyrank.export_targets import GraphExport
from polyrank.folder_files import file_records
from polyrank.interop.export import Written
from polyrank.interop.graphs.agreement import (
    Agreement,
    HeldTexts,
    agreement,
    held_texts,
    require_equal,
    require_overlap,
)
from polyrank.interop.graphs.calibration import fewer, read_texts
from polyrank.interop.graphs.tracing import GraphFile, encoder_shapes, graph_files
from polyrank.models.adapters.layers import is_adapted
from polyrank.models.base import Model
from polyrank.models.checkpoint import load_model
from polyrank.models.engines.record import (
    ExportRecord,
    Graph,
    export_fingerprint,
    read_record,
    write_record,
)

WriteGraph = Callable[[GraphFile, Path], tuple[str, list[str]]]
"""Writes a graph into a folder, and names its file and all files."""
WriteQuantised = Callable[..., tuple[str, list[str]]]
"""The same, given the `model`, and the `texts` to calibrate on."""


def write_graphs(
    model: Model,
    folder: Path,
    engine: str,
    write: WriteGraph,
    *,
    versions: Mapping[str, str],
    precision: str = "float32",
) -> ExportRecord:
    """Write a model as graphs into an empty folder.

    Args:
        model: A model as `prepared` gives it.
        folder: The folder.
        engine: The engine that runs the graphs.
        write: Writes one graph.
        versions: The versions of what writes the graphs.
        precision: That of the weights in the graphs.

    Returns:
        What `export.json` says, without a check yet.
    """
    model.save_description(folder)
    graphs, names = {}, []
    for each in graph_files(model):
        file, written = write(each, folder)
        names += written
        for output in each.outputs:
            graphs[output] = Graph(
                file=file, inputs=each.inputs, output=output, vocab_size=each.vocab_size
            )
    record = ExportRecord(
        engine=engine,
        precision=precision,
        graphs=graphs,
        files=file_records(folder, [folder / name for name in names]),
        encoders=encoder_shapes(model),
        fingerprint="",
        source={"fingerprint": model.fingerprint(), "architecture": model.architecture},
        versions=dict(versions),
        num_parameters=model.num_parameters(),
    )
    record = replace(record, fingerprint=export_fingerprint(model.identity(), record))
    write_record(folder, record)
    return record


def write_checked(
    model: Model,
    folder: Path,
    engine: str,
    write: WriteGraph,
    write_int8: WriteQuantised,
    config: GraphExport,
    versions: dict[str, str],
    path: Path,
) -> Written:
    """Write a model as graphs into an empty folder, and check them.

    Args:
        model: The model; it is not changed.
        folder: The folder.
        engine: The engine that runs the graphs.
        write: Writes one graph.
        write_int8: Writes one graph with an encoder that multiplies in 8 bits.
        config: Whether to quantise, on which texts, and how good the result must be.
        versions: The versions of what writes the graphs.
        path: Where the folder will be.

    Returns:
        How to load it, and how far it is from torch.

    Raises:
        UsageError: The model cannot become a graph.
        ModelError: The graphs give other results than torch, or quantised ones rank too
            differently.
        DataError: There are too few texts to calibrate on.
    """
    plain = prepared(model)
    if config.calibration is not None and getattr(model.config, "reading", "pairs") == "once":
        raise UsageError(
            "A cross-encoder with reading = once cannot be quantised.", "Leave out quantise."
        )
    if config.calibration is None:
        write_graphs(plain, folder, engine, write, versions=versions)
        found = checked(plain, folder, held_texts(plain), dtype="float32")
        require_equal(found)
    else:
        calibrated, held = read_texts(config.calibration)
        quantise = partial(write_int8, model=plain, texts=calibrated)
        write_graphs(plain, folder, engine, quantise, versions=versions, precision="int8")
        found = checked(plain, folder, fewer(held, plain))
        require_overlap(found, config.min_overlap)
    return Written(
        load=f'polyrank.load_model("{path}", engine="{engine}")',
        notes=tuple(found.lines()),
        report=asdict(found),
    )


def versions_of(packages: Sequence[str], config: GraphExport) -> dict[str, str]:
    """The versions of what writes and reads the graphs, by the names of the packages."""
    used = packages if config.quantise is None else (*packages, "nncf")
    return {name: importlib.metadata.version(name) for name in used}


def checked(model: Model, folder: Path, texts: HeldTexts, dtype: str = "auto") -> Agreement:
    """Compare the export in a folder with its model, and write the result into its record."""
    exported = load_model(folder, device="cpu", dtype=dtype)
    found = agreement(model, exported, texts)
    write_record(folder, replace(read_record(folder), check=asdict(found)))
    return found


def prepared(model: Model) -> Model:
    """The model itself if it can be exported as it is, or its copy on the CPU in float32.

    Raises UsageError for a model that cannot become a graph.
    """
    require_exportable(model)
    is_plain = all(
        each.device.type == "cpu" and each.dtype == torch.float32 for each in model.parameters()
    )
    is_plain = is_plain and not any(is_adapted(tower) for tower in model.towers)
    if is_plain and model.compute_dtype == torch.float32:
        return model
    with tempfile.TemporaryDirectory() as place:
        model.save_copy(Path(place) / "model")
        copied = load_model(Path(place) / "model", device="cpu", dtype="float32")
        copied.path, copied.batch_tokens = model.path, model.batch_tokens
        return copied


def require_exportable(model: Model) -> None:
    """Raise UsageError for a model that cannot become a graph."""
    model.require_weights("be exported")
    if model.training:
        raise UsageError(
            "The model is in training mode, so its results are not those of inference.",
            "Call model.eval() when the training is done, then export it.",
        )
    if any(tower.is_static for tower in model.towers):
        raise UsageError(
            "The model has static embeddings, which look up one vector per token: a graph would "
            "make them no faster.",
            "Run it with torch, or export it to another format.",
        )
    if getattr(model.config, "context_sees_candidates", False):
        raise UsageError(
            "The model has context_sees_candidates, so a context must be read with all of its "
            "candidates, and the graphs read it once for any number of them.",
            "Run it with torch, or train one with reading = once alone.",
        )
