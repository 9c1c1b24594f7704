"""Opens an exported model: a model of its class whose results come from an engine.

The model is built as described, on torch's meta device, and keeps none of its layers: its settings
and shapes stay, and all weights are in the graphs.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from polyrank.config import from_mapping
from polyrank.errors import ModelError, UsageError
from polyrank.models.backbone import Backbone
from polyrank.models.config import CONFIGS, NAMES
from polyrank.models.description import (
    DESCRIPTION,
    Description,
    identity_of,
    read_description,
)
from polyrank.models.engines.engine import open_engine
from polyrank.models.engines.record import (
    AGAIN,
    EXPORT,
    EncoderShape,
    ExportRecord,
    read_record,
    require_files,
    write_record,
)
from polyrank.models.folder import write_description
from polyrank.models.loading.load import empty_model, take_classifier
from polyrank.models.loading.settings import PROMPTS, READING
from polyrank.storage import replaced_folder, require_replaceable
from polyrank.tokens.batching import Batch


class GraphBackbone(Backbone):
    """The shape of an encoder that is inside a graph."""

    def __init__(self, shape: EncoderShape) -> None:
        torch.nn.Module.__init__(self)
        self.place = torch.nn.Parameter(torch.empty(0))  # says where other weights are made
        self.kind = None
        self.width = shape.width
        self.vocab_size = None  # the graphs say it
        self.has_segments = shape.has_segments
        self.max_length = shape.max_length
        self.first_place = shape.first_place
        self.is_causal = shape.is_causal

    def forward(self, batch: Batch) -> Tensor:
        """Its outputs are inside the graph."""
        raise TypeError("An encoder inside a graph has no outputs of its own.")


def open_export(
    model_class: Any,
    folder: Path,
    settings: Mapping[str, Any],
    *,
    device: str | torch.device,
    dtype: str | torch.dtype,
) -> Any:
    """The exported model in a folder, run by the engine that its graphs are for.

    Args:
        model_class: The class of its architecture.
        folder: The folder of the export.
        settings: Settings that replace saved ones; only those of how texts are read.
        device: As for `from_pretrained`.
        dtype: As for `from_pretrained`.

    Returns:
        A model without weights, for inference.

    Raises:
        MissingExtraError: The engine's runtime is not installed.
        ModelError: A graph is missing, damaged or another model's.
        UsageError: A setting is built into the graphs, or the engine does not know the device.
    """
    record, description = read_record(folder), read_description(folder)
    if description is None:
        raise ModelError(
            f"The exported model {folder} has no polyrank.json.", "Export the model again."
        )
    architecture, saved = description.architecture, description.settings
    if architecture != model_class.architecture:
        raise ModelError(
            f"{folder} is an exported {NAMES[architecture]}, and without weights it cannot become "
            f"a {NAMES[model_class.architecture]}.",
            "Give the folder of the model that it was exported from.",
        )
    config = from_mapping(CONFIGS[architecture], saved, where=str(folder))
    require_files(folder, record, identity_of(config))
    require_same(folder, saved, settings)
    with torch.device("meta"):
        model = empty_model(
            model_class,
            folder,
            saved,
            dict(settings),
            {},
            trainable=False,
            backbone_in=lambda place: backbone_of(record, place),
        )
        take_classifier(model, folder)
    require_graphs(folder, record, model.graph_names())
    drop_weights(model)
    model.engine = open_engine(folder, record, device, dtype)
    model.compute_dtype = model.engine.dtype
    return model


def require_graphs(folder: Path, record: ExportRecord, names: Sequence[str]) -> None:
    """Raise ModelError unless the record says where each of these graphs is."""
    missing = [name for name in names if name not in record.graphs]
    if missing:
        raise ModelError(
            f"{folder / EXPORT} does not say where the graph {' and the graph '.join(missing)} "
            f"{'is' if len(missing) == 1 else 'are'}.",
            AGAIN,
        )


def require_free(folder: Path, candidate_folder: Path | None) -> None:
    """Raise UsageError for a `candidate_folder`, whose encoder would need new graphs."""
    if candidate_folder is not None:
        raise UsageError(
            f"The exported model {folder} cannot get another encoder for its candidates "
            f"({candidate_folder}).",
            "Leave out candidate_base, or give the folder of an encoder.",
        )


def require_same(folder: Path, saved: Mapping[str, Any], settings: Mapping[str, Any]) -> None:
    """Raise UsageError for a setting that is built into the graphs.

    The length of a prompt that is left out of the reduction is.
    """
    free = READING if saved.get("pool_prompt", True) else set(READING) - set(PROMPTS)
    for name, value in settings.items():
        if name not in free and value != saved.get(name, value):
            raise UsageError(
                f"The graphs in {folder} were made with {name} = {saved[name]}, not {value}.",
                f"Leave {name} out, or load the model that was exported with {name} = {value} and "
                "export that.",
            )


def backbone_of(record: ExportRecord, place: Path) -> GraphBackbone:
    """The shape of the encoder that is described in a folder. Raises ModelError."""
    shape = record.encoders.get(place.name)
    if shape is None:
        raise ModelError(f"The export does not describe the encoder {place}.", "Export it again.")
    return GraphBackbone(shape)


def copy_export(source: Path, path: Path, description: Description, fingerprint: str) -> None:
    """Copy an exported model, with the settings that it was opened with.

    Raises StorageError, and UsageError if something other than a model is in the way.
    """
    require_replaceable(path, DESCRIPTION, "a model")
    with replaced_folder(path) as fresh:
        shutil.copytree(source, fresh, dirs_exist_ok=True)
        write_description(fresh, description)
        write_record(fresh, replace(read_record(source), fingerprint=fingerprint))


def drop_weights(model: Any) -> None:
    """Set everything that has weights to None."""
    for name in list(model._modules):
        setattr(model, name, None)
    for name in list(model._parameters):
        setattr(model, name, None)
