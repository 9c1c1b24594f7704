"""Which head a new cross-encoder gets where `head` is `auto`, and the head that a reranker brings.

A reranker is a `…ForSequenceClassification` with one label, as cross-encoders are published. Knows
how `transformers` names its settings and tensors; knows nothing of training.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from polyrank.models.backbone import BACKBONE_FOLDER
from polyrank.models.bert import BERTS, ROBERTAS
from polyrank.models.description import DESCRIPTION
from polyrank.models.folder import fit_weights, read_tensors
from polyrank.models.heads import PoolerHead
from polyrank.models.sentence_transformers import read_folder
from polyrank.storage import read_object

AUTO = "auto"
WEIGHTS = "model.safetensors"
LAYERS = {
    "bert": {"bert.pooler.dense": "dense", "classifier": "out"},
    **{kind: {"classifier.dense": "dense", "classifier.out_proj": "out"} for kind in ROBERTAS},
}
"""By kind of encoder, the layers of a reranker's head and their names in a `PoolerHead`."""


def with_head(
    folder: Path, inherited: Mapping[str, Any], settings: Mapping[str, Any]
) -> dict[str, Any]:
    """The settings of a cross-encoder on the base in `folder`, with the head that they stand for.

    A saved cross-encoder keeps its head, which is in `inherited`.
    """
    chosen = {name: value for name, value in settings.items() if (name, value) != ("head", AUTO)}
    if "head" in chosen or "head" in inherited:
        return chosen
    return {**chosen, "head": default_head(folder, chosen.get("task", "rank"))}


def default_head(folder: Path, task: str) -> str:
    """The head that learns a task from the base in `folder`.

    To rank, a reranker keeps the head that it was trained with. An encoder that can read two texts
    apart compares them token by token, so that it begins where the base is; a new linear head would
    begin at chance (decision 8). Classes, values and other encoders get a linear head.
    """
    if task != "rank":
        return "linear"
    if is_reranker(folder):
        return "pooler"
    return "interaction" if kind_of(folder) in BERTS else "linear"


def kind_of(folder: Path) -> str | None:
    """The kind of the encoder of a base, `bert` for instance; None where nothing says it."""
    if (folder / DESCRIPTION).is_file():
        folder = folder / BACKBONE_FOLDER
    else:
        taken = read_folder(folder)
        folder = folder if taken is None else taken.encoder
    kind = read_config(folder).get("model_type")
    return kind if isinstance(kind, str) else None


def is_reranker(folder: Path) -> bool:
    """Whether a folder holds a reranker whose head polyrank can take over."""
    config = read_config(folder)
    architectures = config.get("architectures") or [""]
    return (
        str(architectures[0]).endswith("ForSequenceClassification")
        and len(config.get("id2label") or ()) == 1
        and config.get("model_type") in LAYERS
        and (folder / WEIGHTS).is_file()
        and not (folder / DESCRIPTION).exists()
    )


def take_head(head: PoolerHead, folder: Path) -> None:
    """Put the weights of a reranker's head into a new one. Raises ModelError where they lack."""
    weights = read_tensors(folder / WEIGHTS, "weights", "fetch the model again")
    layers = LAYERS[read_config(folder)["model_type"]]
    taken = {
        f"{name}.{part}": weights[f"{origin}.{part}"]
        for origin, name in layers.items()
        for part in ("weight", "bias")
        if f"{origin}.{part}" in weights
    }
    fit_weights(head, taken, folder)


def read_config(folder: Path) -> dict[str, Any]:
    """The description that `transformers` wrote; empty if none can be read."""
    return read_object(folder / "config.json")
