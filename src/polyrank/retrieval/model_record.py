"""The model of an index, as its manifest records it: where it is, and whether a model is that one.

Vectors mean nothing to another model, so an index is never opened with one.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from polyrank.errors import IndexFolderError, ModelError, UsageError
from polyrank.folder_files import FileRecord
from polyrank.models.checkpoint import load_model
from polyrank.retrieval.store.manifest import ModelRecord, check_sizes, of_model
from polyrank.retrieval.vector_model import VectorModel, require_vectors

REMEDY = "Give the model that made the index (--model), or build the index again."


def model_folder(model: VectorModel, folder: Path) -> Path:
    """The folder the model was loaded from. Raises UsageError if it cannot be named."""
    path = None if model.path is None else Path(os.path.realpath(model.path))
    if path is None or not path.is_dir():
        raise UsageError(
            "The model was not loaded from a folder, so the index cannot refer to it.",
            "Save it with save_pretrained and load it from there, or let the index keep a copy.",
        )
    if path == folder or folder in path.parents:
        raise UsageError(
            f"The model lies in {path}, inside the index folder that is to be replaced.",
            "Let the index keep a copy of its model, or move the model elsewhere.",
        )
    return path


def recorded_model(
    folder: Path,
    record: ModelRecord,
    files: Mapping[str, FileRecord],
    model: VectorModel | None,
    **loading: Any,
) -> VectorModel:
    """The model of an index: `model` if it made the index, or else the index's own.

    `loading` are options of `load_model`: device, dtype, batch_tokens, engine.
    Raises UsageError for a model without vectors, and IndexFolderError for a model that did not
    make the index, or if the index's own is missing or damaged.
    """
    if model is None:
        model = load_recorded_model(folder, record, files, **loading)
    require_vectors(model)
    require_recorded_model(folder, record, model)
    return model


def load_recorded_model(
    folder: Path,
    record: ModelRecord,
    files: Mapping[str, FileRecord],
    **loading: Any,
) -> VectorModel:
    """Load the model of an index, whose copy consists of `files`.

    Raises IndexFolderError if it is missing or damaged.
    """
    places = [folder / record.folder]
    if record.absolute is not None:
        places.insert(0, Path(record.absolute))
    found = next((place for place in places if place.is_dir()), None)
    if found is None:
        raise IndexFolderError(f"The index {folder} misses its model {places[0]}.", REMEDY)
    check_sizes(folder, of_model(files))
    try:
        return cast("VectorModel", load_model(found, trainable=False, **loading))
    except ModelError as error:
        raise IndexFolderError(
            f"The model of the index {folder} cannot be loaded: {error.problem}", REMEDY
        ) from error


def require_recorded_model(folder: Path, record: ModelRecord, model: VectorModel) -> None:
    """Raise IndexFolderError if the vectors were made by another model."""
    if model.num_vectors != record.num_vectors:
        raise IndexFolderError(
            f"The index {folder} was made by a {record.architecture}-encoder with "
            f"m = {record.num_vectors} context vectors, the model has m = {model.num_vectors}.",
            REMEDY,
        )
    fingerprint = model.fingerprint()
    if fingerprint != record.fingerprint:
        raise IndexFolderError(
            f"The index {folder} was made by the model {record.fingerprint[:12]}, not by "
            f"{fingerprint[:12]}; its vectors mean nothing to another model.",
            REMEDY,
        )
