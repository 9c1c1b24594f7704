"""What an exported model says of its graphs: `export.json`, and its fingerprint. Needs no torch.

    polyrank.json        architecture and settings, as in every model folder
    backbone/            config.json and the tokeniser
    NAME.onnx …          the graphs, with the weights in them
    export.json          which engine runs which graph, the checksums of the files, the check

A graph takes a batch of token ids and gives finished results, so that an engine needs no weights:

    context              (B, T) → (B, m, d)   vectors as an index and the formula take them
    candidate            (B, T) → (B, d)
    pair                 (B, T) → (B,), or (B, L) for classes
    kept                 (1, T) → (2 · layers + 1, T, h)   a context, for any number of candidates
    block                kept (2 · layers + 1, T, h), (C, U) → (C,)   candidates of that context
    context_projected    (B, T) → (B, m, d)   vectors before normalisation, which a classifier takes
    candidate_projected  (B, T) → (B, d)
    classifier           u (B, d), v (B, d) → (B, L)

Several graphs may be outputs of one file. Letters: B texts or pairs, T tokens, m vectors of a
context, d dimensions, L classes; C candidates of one context, U tokens of each, h width.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from polyrank.config import from_mapping
from polyrank.errors import ModelError, UsageError
from polyrank.folder_files import FileRecord, read_json, sha256_of

EXPORT = "export.json"
FORMAT = 2
AGAIN = "Export the model again."


@dataclass(frozen=True, kw_only=True)
class Graph:
    """Where one graph is, and what it takes and gives."""

    file: str
    inputs: tuple[str, ...]
    output: str
    vocab_size: int | None = None
    """How many ids its encoder has embeddings for; None if it takes no ids."""


@dataclass(frozen=True, kw_only=True)
class EncoderShape:
    """What a model needs to know of an encoder that is inside a graph."""

    width: int
    max_length: int | None
    has_segments: bool
    first_place: int = 0
    is_causal: bool = False


@dataclass(frozen=True, kw_only=True)
class ExportRecord:
    """The content of `export.json`."""

    engine: str
    """The engine that runs the graphs."""
    precision: str
    """The precision of the weights in the graphs: float32 or int8."""
    graphs: dict[str, Graph]
    files: dict[str, FileRecord]
    encoders: dict[str, EncoderShape]
    """By the name of the folder that describes the encoder."""
    fingerprint: str
    """That of the model that the export is (see `export_fingerprint`)."""
    source: dict[str, Any]
    """The model that was exported: its fingerprint, and where it was."""
    versions: dict[str, str]
    """The versions of what wrote the graphs, and of their operators (`opset`)."""
    num_parameters: int = 0
    """The parameters of that model; a graph has its weights in other shapes."""
    check: dict[str, Any] = field(default_factory=dict)
    """How far the results are from torch's on held texts."""


def is_export(folder: Path) -> bool:
    """Whether a folder holds an exported model."""
    return (folder / EXPORT).is_file()


def read_record(folder: Path) -> ExportRecord:
    """The record of an exported model. Raises ModelError where it is missing or damaged."""
    file = folder / EXPORT
    try:
        found = read_json(file)
        form = found.pop("format")
        for name, kind in (("graphs", Graph), ("files", FileRecord), ("encoders", EncoderShape)):
            found[name] = {
                key: from_mapping(kind, each, where=f"{file}, {name}")
                for key, each in found[name].items()
            }
        if form != FORMAT:
            raise ModelError(
                f"{file} has format {form}; this version of polyrank reads format {FORMAT}.",
                f"Install the version of polyrank that wrote it, or: {AGAIN.lower()}",
            )
        record = ExportRecord(**found)
        if any(Path(name).name != name for name in record.files):
            raise ValueError("a graph lies in another folder")
        return record
    except (OSError, ValueError, KeyError, TypeError, AttributeError, UsageError) as error:
        raise ModelError(
            f"{file} does not describe an exported model: {type(error).__name__}: {error}.", AGAIN
        ) from error


def write_record(folder: Path, record: ExportRecord) -> None:
    """Write `export.json`."""
    text = json.dumps({"format": FORMAT, **asdict(record)}, indent=2) + "\n"
    (folder / EXPORT).write_text(text, encoding="utf-8")


def export_fingerprint(identity: Mapping[str, Any], record: ExportRecord) -> str:
    """The SHA-256 of everything that defines the scores of an exported model.

    These are the settings, `identity`, the engine, the bytes of the graphs, and what `export.json`
    says of them and of the encoders. So graphs are another model than the weights that they were
    made of, and than any other graphs (decision 16).
    """
    files = {name: each.sha256 for name, each in record.files.items()}
    described = {**identity, "engine": record.engine, "files": files}
    described["graphs"] = {name: asdict(each) for name, each in record.graphs.items()}
    described["encoders"] = {name: asdict(each) for name, each in record.encoders.items()}
    return hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()


def require_files(folder: Path, record: ExportRecord, identity: Mapping[str, Any]) -> None:
    """Raise ModelError unless the files and the settings are those that were exported together."""
    for name, expected in record.files.items():
        file = folder / name
        if not file.is_file():
            raise ModelError(f"The exported model {folder} lacks its graph {name}.", AGAIN)
        size = file.stat().st_size
        if size != expected.bytes:
            raise ModelError(
                f"The graph {file} has {size:,} bytes, expected {expected.bytes:,}.",
                f"It is incomplete or another model's. {AGAIN}",
            )
        if sha256_of(file) != expected.sha256:
            raise ModelError(
                f"The graph {file} is not the one that was exported to this folder: its SHA-256 "
                f"differs from that in {EXPORT}.",
                f"It is damaged or another model's. {AGAIN}",
            )
    if export_fingerprint(identity, record) != record.fingerprint:
        raise ModelError(
            f"The settings of the exported model {folder} are not those that its graphs were "
            "made for.",
            f"polyrank.json or {EXPORT} was changed or is another model's. {AGAIN}",
        )
