"""Which head a cross-encoder gets where `head` is `auto`: that of its base, or a new one.

Knows the kinds of base; `reranker` reads the heads of other projects. Knows nothing of training.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from polyrank.errors import ModelError
from polyrank.models.adapters.folders import described_in
from polyrank.models.backbone import BACKBONE_FOLDER
from polyrank.models.bert import BERTS
from polyrank.models.description import DESCRIPTION
from polyrank.models.foreign.reranker import Reranker, read_config, read_reranker
from polyrank.models.foreign.sentence_transformers import read_folder
from polyrank.models.layers import STEPWISE

AUTO = "auto"


def with_head(
    folder: Path, inherited: Mapping[str, Any], settings: Mapping[str, Any]
) -> dict[str, Any]:
    """The settings of a cross-encoder on the base in `folder`, with the head that they stand for.

    A saved cross-encoder keeps its head, which is in `inherited`; a reranker keeps its own, with
    its task.
    """
    chosen = without_auto(settings)
    if "head" in inherited:
        return chosen
    found = head_of(folder, chosen)
    if found is not None:
        return {**found.settings, **chosen}
    asked = chosen.get("task", "rank"), chosen.get("reading", AUTO)
    return {"head": default_head(folder, *asked), **chosen}


def without_auto(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings without those that leave the head or the reading to the base."""
    left_open = ("head", AUTO), ("reading", AUTO)  # compared, not hashed: a value may be a list
    return {name: value for name, value in settings.items() if (name, value) not in left_open}


def head_of(folder: Path, settings: Mapping[str, Any]) -> Reranker | None:
    """The reranker in `folder` whose head a cross-encoder with these settings keeps, if any.

    Raises ModelError for one with a head that polyrank does not have.
    """
    if settings.get("head", "pooler") == "interaction":
        return None
    try:
        found = read_reranker(folder)
    except ModelError:
        if "head" in settings:  # a new one was asked for
            return None
        raise
    if found is None:
        return None
    known = {"task": "rank", **found.settings}
    decisive = {name: known[name] for name in ("task", "head", "num_labels") if name in known}
    same = all(settings.get(name, value) == value for name, value in decisive.items())
    return found if same else None


def reading_of(folder: Path) -> dict[str, Any]:
    """The settings of its texts that the reranker in a folder brings, if there is one."""
    try:
        found = read_reranker(folder)
    except ModelError:  # said where its head is needed
        return {}
    return {} if found is None else found.reading


def default_head(folder: Path, task: str, reading: str) -> str:
    """The head that learns a task from the base in `folder`.

    To rank, a reranker keeps the head that it was trained with. An encoder that can read two texts
    apart compares them token by token, so that it begins where the base is; a new linear head would
    begin at chance (decision 8). Classes, values and other encoders get a linear head.
    """
    if task != "rank":
        return "linear"
    found = ranker_of(folder)
    if found is not None:
        return str(found.settings["head"])
    known = BERTS if reading == "pairs" else STEPWISE
    return "interaction" if kind_of(folder) in known else "linear"


def kind_of(folder: Path) -> str | None:
    """The kind of the encoder of a base, `bert` for instance; None where nothing says it."""
    folder = described_in(folder)
    if (folder / DESCRIPTION).is_file():
        folder = folder / BACKBONE_FOLDER
    else:
        taken = read_folder(folder)
        folder = folder if taken is None else taken.encoder
    kind = read_config(folder).get("model_type")
    return kind if isinstance(kind, str) else None


def ranker_of(folder: Path) -> Reranker | None:
    """The reranker in a folder, if it gives one score by a head that polyrank has."""
    try:
        found = read_reranker(folder)
    except ModelError:
        return None
    return found if found is not None and len(found.labels) == 1 else None
