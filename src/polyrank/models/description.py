"""What a saved model says of itself: `polyrank.json`, and its fingerprint. Needs no torch."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from polyrank.config import field_types, from_mapping, to_mapping
from polyrank.errors import ModelError, UsageError, nearest
from polyrank.folder_files import leaves, read_json, read_object, require_own_files
from polyrank.json_text import parse_json
from polyrank.models.config import CONFIGS, UNSTATED, ClassifierConfig
from polyrank.models.engines.record import export_fingerprint, is_export, read_record

DESCRIPTION = "polyrank.json"
WEIGHTS = "model.safetensors"
SHARDS = "model.safetensors.index.json"
CLASSIFIER = "classifier"
"""The first part of the names of a classifier's weights, which have no part in a score."""
FORMAT = 1
Shapes = Mapping[str, Sequence[int]]
"""The shapes of weights by their names."""


class Description(NamedTuple):
    """The content of `polyrank.json`."""

    architecture: str
    settings: dict[str, Any]
    classifier: dict[str, Any] | None = None
    """The fields of `ClassifierConfig`, for a model that tells classes."""
    adapters: dict[str, dict[str, str]] | None = None
    """Where each tower's adapter lies and what it is for, for a model without its bases."""


def read_description(path: Path) -> Description | None:
    """The description of a saved model, or None if `path` is not a polyrank folder.

    Raises ModelError if it is damaged, in a newer format or of an unknown architecture.
    """
    file = path / DESCRIPTION
    if not file.is_file():
        return None
    try:
        described = read_json(file)
        form, architecture = described["format"], described["architecture"]
        settings = dict(described["settings"])
        classifier = dict(described["classifier"]) if "classifier" in described else None
        adapters = read_adapters(described["adapters"]) if "adapters" in described else None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ModelError(
            f"{file} is not a description of a model: {type(error).__name__}: {error}.",
            "Save the model again.",
        ) from error
    if form != FORMAT:
        raise ModelError(
            f"{file} has format {form}; this version of polyrank reads format {FORMAT}.",
            "Install the version of polyrank that wrote it, "
            f"{described.get('polyrank_version', 'a newer one')}.",
        )
    if not isinstance(architecture, str) or architecture not in CONFIGS:
        raise ModelError(
            f"{file} names the unknown architecture {architecture!r}.",
            nearest(str(architecture), CONFIGS),
        )
    known = field_types(CONFIGS[architecture])
    unstated = {name: value for name, value in UNSTATED.items() if name in known}
    settings = {**unstated, **settings}
    try:
        from_mapping(CONFIGS[architecture], settings, where=str(file))
        if classifier is not None:
            from_mapping(ClassifierConfig, classifier, where=f"{file}, classifier")
    except UsageError as error:
        raise ModelError(error.problem, error.remedy) from error
    return Description(architecture, settings, classifier, adapters)


def read_adapters(described: Mapping[str, Mapping[str, str]]) -> dict[str, dict[str, str]]:
    """What a description says of adapters.

    Raises KeyError or TypeError for anything else, ValueError for a folder elsewhere.
    """
    known = ("folder", "base_sha256", "dtype")
    found = {
        tower: {name: str(adapter[name]) for name in known} for tower, adapter in described.items()
    }
    for adapter in found.values():
        if leaves(adapter["folder"]):
            raise ValueError(
                f"the adapter in {adapter['folder']} is said to lie outside of the folder"
            )
    return found


def identity_of(config: Any) -> dict[str, Any]:
    """The settings that define a score, as plain values.

    Settings that a saved model may leave unstated are left out where they have the value that it
    then has, so that its fingerprint stays what it was.
    """
    stated = dict(one for one in to_mapping(config).items() if one not in UNSTATED.items())
    return {"architecture": config.architecture, **stated}


def digest_of(identity: Mapping[str, Any], weights: Iterable[tuple[str, Any]]) -> str:
    """The SHA-256 of settings and of weights: NumPy arrays by their names, in that order."""
    digest = hashlib.sha256(json.dumps(identity, sort_keys=True).encode())
    for name, array in weights:
        digest.update(f"{name}{tuple(array.shape)}".encode())
        digest.update(array.reshape(-1).view("uint8").data)
    return digest.hexdigest()


def fingerprint_of(path: Path) -> str:
    """The fingerprint of a saved model, which is that of the loaded one.

    Raises ModelError where it cannot be read.
    """
    from safetensors import SafetensorError, safe_open

    require_own_files(path, ModelError)
    described = read_description(path)
    assert described is not None
    config = from_mapping(CONFIGS[described.architecture], described.settings, where=str(path))
    if is_export(path):
        return export_fingerprint(identity_of(config), read_record(path))
    try:
        with safe_open(path / WEIGHTS, framework="numpy") as file:
            names = sorted(name for name in file.keys() if not name.startswith(f"{CLASSIFIER}."))  # noqa: SIM118
            halves = half_floats(path / WEIGHTS)
            values = ((n, halves[n]() if n in halves else file.get_tensor(n)) for n in names)
            return digest_of(identity_of(config), values)
    except (OSError, SafetensorError) as error:
        raise ModelError(
            f"The weights {path / WEIGHTS} cannot be read: {error}.",
            "The folder is incomplete or damaged; fetch or train the model again.",
        ) from error


def shards_of(folder: Path) -> dict[str, str]:
    """The file that has each tensor of weights in several files, by the index of `transformers`.

    Empty without an index. Raises ModelError where it names a file outside of the folder.
    """
    listed = read_object(folder / SHARDS).get("weight_map")
    if listed is None:
        return {}
    is_index = isinstance(listed, dict) and all(isinstance(file, str) for file in listed.values())
    outside = [file for file in listed.values() if leaves(file)] if is_index else []
    if outside or not is_index:
        fault = f"{outside[0]!r} lies outside of the folder" if outside else "it names no files"
        raise ModelError(
            f"The index of weights {folder / SHARDS} is damaged: {fault}.",
            "Download the model again, from where you trust it.",
        )
    return dict(listed)


def shapes_in(file: Path) -> Shapes:
    """The shapes of the tensors in a file of safetensors; none where it cannot be read."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(file, framework="numpy") as tensors:
            return {name: tensors.get_slice(name).get_shape() for name in tensors.keys()}  # noqa: SIM118
    except (OSError, SafetensorError):
        return {}


def half_floats(path: Path) -> dict[str, Callable[[], Any]]:
    """What reads each tensor of 16 bits in a file of safetensors, as float32.

    NumPy has no bfloat16: its numbers are the upper halves of float32's.
    """
    import numpy as np

    with path.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        header: dict[str, Any] = parse_json(file.read(size))
    data = np.memmap(path, np.uint8, "r", offset=8 + size)

    def read(kind: str, ends: list[int], shape: list[int]) -> Any:
        raw = data[slice(*ends)]
        if kind == "F16":
            return raw.view(np.float16).astype(np.float32).reshape(shape)
        upper = raw.view(np.uint16).astype(np.uint32) << 16
        return upper.view(np.float32).reshape(shape)

    return {
        name: partial(read, each["dtype"], each["data_offsets"], each["shape"])
        for name, each in header.items()
        if each.get("dtype") in ("BF16", "F16")
    }
