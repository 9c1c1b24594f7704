"""Writes a model in the format of another project.

Knows what all targets share: which models can be exported, what may be replaced, and what an export
says of its origin. The writers know the formats.
"""

from __future__ import annotations

import importlib
import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from polyrank._version import __version__
from polyrank.config import from_mapping, require_choice, to_mapping
from polyrank.errors import ModelError
from polyrank.export_targets import EXPORTED, TARGETS
from polyrank.jobs import is_work, work_beside
from polyrank.storage import replaced_folder, require_replaceable

if TYPE_CHECKING:
    from polyrank.models.base import Model


@dataclass(frozen=True, kw_only=True)
class Written:
    """What a target's writer says of the folder that it wrote."""

    load: str
    """The Python code that loads the folder, with its path."""
    notes: tuple[str, ...] = ()
    """Where the export differs from the model, one sentence or two each."""
    report: dict[str, Any] = field(default_factory=dict)
    """Figures of a check, as JSON."""


@dataclass(frozen=True, kw_only=True)
class ExportResult(Written):
    """What `polyrank.export` made."""

    path: Path
    """The folder."""
    target: str
    """Its format."""


def export(
    model: Model | str | Path,
    path: str | Path,
    to: str,
    *,
    revision: str | None = None,
    **settings: Any,
) -> ExportResult:
    """Write a model as a folder that another project loads.

    The folder is written beside `path` and renamed into place. An earlier export is replaced,
    anything else is not.

    Args:
        model: A model, or the folder or hub id of a saved one.
        path: The new folder.
        to: The format: `sentence-transformers`, `onnx` or `openvino`.
        revision: The branch, tag or commit of a model that is given by its id on the hub.
        **settings: The settings of the format, such as `only_candidates=True`.

    Returns:
        The code that loads the folder, where it differs from the model, and the figures of a check.

    Raises:
        UsageError: There is no such format or setting, something else is at `path`, or the format
            cannot express the model.
        ModelError: There is no model, or it is still in training.
        StorageError: The folder cannot be written.
    """
    require_choice("target", to, TARGETS)
    target, path = TARGETS[to], Path(path)
    config = from_mapping(target.config, settings, where=f"Export to {to}")
    require_replaceable(path, EXPORTED, "an export")
    notes: tuple[str, ...] = ()
    if isinstance(model, (str, os.PathLike)):
        notes = notes_on_training(Path(model))
        model = opened(model, revision)
    writer = importlib.import_module(target.home)
    with replaced_folder(path) as fresh:
        written: Written = writer.write(model, fresh, config, path)
        described = {
            "target": to,
            "settings": to_mapping(config),
            "polyrank_version": __version__,
            "fingerprint": model.fingerprint(),
            "architecture": model.architecture,
            "notes": written.notes,
            "report": written.report,
        }
        (fresh / EXPORTED).write_text(json.dumps(described, indent=2) + "\n", encoding="utf-8")
    return ExportResult(
        path=path,
        target=to,
        load=written.load,
        notes=notes + written.notes,
        report=written.report,
    )


def opened(source: str | Path | os.PathLike[str], revision: str | None) -> Model:
    """The saved model of a folder or hub id, on the CPU, with its weights as they are."""
    from polyrank.models.checkpoint import load_model

    place = Path(source)
    return load_model(place, device="cpu", dtype="float32", revision=revision, weights_dtype="auto")


def notes_on_training(source: Path) -> tuple[str, ...]:
    """What to say of a training run whose output is the folder `source`.

    Raises ModelError if there is nothing else yet.
    """
    inside = next((each for each in (source, *source.absolute().parents) if is_work(each)), None)
    work = inside or work_beside(source)
    if work is None:
        return ()
    if inside is None and source.exists():
        return (f"Unfinished training, in {work}, will replace {source} when it is done.",)
    raise ModelError(
        f"{source} is still in training, or its training was interrupted: {work} holds unfinished "
        "work, not a model.",
        "Wait until it is done, or run the same command again to resume it; then export the model.",
    )
