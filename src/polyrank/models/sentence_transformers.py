"""Reads a folder saved by sentence-transformers: where its encoder is and how it pools.

Reads the formats of versions 5.x and 6.x. Of our models it knows only the names of their settings.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from polyrank.errors import ModelError
from polyrank.storage import read_object

REDUCTIONS = {"cls": "first", "mean": "mean", "max": "max"}
LEGACY_REDUCTIONS = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
COSINE = {"similarity": "cosine"}
DOT = {"similarity": "dot", "temperature": 1.0}


class Taken(NamedTuple):
    """Where the encoder is, the settings that its score needs, and a dense layer's weights."""

    encoder: Path
    settings: dict[str, Any]
    projection: Path | None


def read_folder(folder: Path) -> Taken | None:
    """What a sentence-transformers folder says, or None if `folder` is not one.

    Raises ModelError for modules whose arithmetic polyrank does not have.
    """
    if not (folder / "modules.json").is_file():
        return None
    encoder, projection = folder, None
    settings: dict[str, Any] = {}
    modules = read_modules(folder / "modules.json")
    if is_cross_encoder(folder):  # its other modules are not of single texts
        return Taken(folder / str(modules[0]["path"]), {}, None)
    for module in modules:
        kind = str(module["type"]).rsplit(".", 1)[-1]
        place = folder / str(module["path"])
        if kind == "Transformer":
            encoder = place
        elif kind == "Pooling":
            settings["reduction"] = read_pooling(place / "config.json")
        elif kind == "Normalize":
            settings |= COSINE
        elif kind == "Dense":
            projection = place
            settings["projection"] = read_dense(place / "config.json")
        elif kind != "Dropout":
            raise ModelError(
                f"The sentence-transformers folder {folder} has a module {kind}, which polyrank "
                "cannot take over.",
                f"Give the folder of its encoder alone, {encoder}.",
            )
    if "similarity" not in settings:
        settings |= read_similarity(folder / "config_sentence_transformers.json")
    length = read_length(encoder)
    if length is not None:
        settings |= {"max_context_length": length, "max_candidate_length": length}
    return Taken(encoder, settings, projection)


def is_cross_encoder(folder: Path) -> bool:
    """Whether a folder says that it is a cross-encoder's."""
    kind = read_object(folder / "config_sentence_transformers.json").get("model_type")
    return kind == "CrossEncoder"


def read_json(path: Path) -> Any:
    """A JSON file of the folder; raises ModelError if it is missing or broken."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(
            f"{path} cannot be read: {error}.", "The folder is incomplete; download it again."
        ) from error


def read_modules(path: Path) -> list[dict[str, Any]]:
    """The modules of the folder, in their order."""
    modules = read_json(path)
    if isinstance(modules, list) and all(
        isinstance(module, dict) and {"type", "path"} <= module.keys() for module in modules
    ):
        return modules
    raise ModelError(
        f"{path} is not a list of modules with a type and a path.",
        "The folder is damaged; download it again.",
    )


def read_similarity(path: Path) -> dict[str, Any]:
    """How unnormalised vectors are compared: by cosine, unless the folder says otherwise."""
    name = read_json(path).get("similarity_fn_name") if path.is_file() else None
    return DOT if name in ("dot", "dot_score") else COSINE


def read_pooling(path: Path) -> str:
    """The reduction that a pooling module's description names."""
    described = read_json(path)
    mode = described.get("pooling_mode")
    modes = (
        [mode]
        if isinstance(mode, str)
        else [name for key, name in LEGACY_REDUCTIONS.items() if described.get(key)]
    )
    if len(modes) != 1 or modes[0] not in REDUCTIONS:
        raise ModelError(
            f"{path} pools by {' and '.join(modes) or 'nothing'}; polyrank takes over one of "
            f"{', '.join(REDUCTIONS)}.",
            "Give the folder of the encoder alone and choose a reduction.",
        )
    return REDUCTIONS[modes[0]]


def read_dense(path: Path) -> int:
    """The output dimension of a linear dense module without bias."""
    described = read_json(path)
    activation = str(described.get("activation_function", ""))
    if described.get("bias", True) or not activation.endswith("Identity"):
        raise ModelError(
            f"{path} describes a dense layer with a bias or an activation ({activation}), which "
            "polyrank's projection does not have.",
            "Give the folder of the encoder alone and train a projection.",
        )
    return int(described["out_features"])


def read_length(encoder: Path) -> int | None:
    """The maximum number of tokens, if stated."""
    for name, key in (
        ("sentence_bert_config.json", "max_seq_length"),
        ("tokenizer_config.json", "model_max_length"),
    ):
        path = encoder / name
        value = read_json(path).get(key) if path.is_file() else None
        if isinstance(value, int) and value < 1_000_000:
            return value
    return None
