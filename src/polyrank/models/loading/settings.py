"""The settings of a model: those given, those of its source, the defaults; lengths that fit.

Knows what a folder says of itself, and no weights.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from polyrank.config import from_mapping
from polyrank.errors import UsageError
from polyrank.models.adapters.folders import described_in
from polyrank.models.backbone import Backbone
from polyrank.models.config import CONFIGS
from polyrank.models.default_head import reading_of
from polyrank.models.description import read_description
from polyrank.models.foreign.sentence_transformers import read_folder
from polyrank.models.static.embeddings import is_static, require_average, static_settings

SHAPING = (
    "num_codes",
    "context_vectors",
    "code_recency",
    "dense",
    "projection",
    "shared_towers",
    "task",
    "head",
    "head_activation",
    "head_norm",
    "num_labels",
    "reading",
)
"""Settings that a saved model's weights were made for."""
LENGTHS = ("max_context_length", "max_candidate_length")
PROMPTS = ("context_prompt", "candidate_prompt")
JOINING = ("turn_separator", "max_turns", "cut_candidate_end")
READING = (*LENGTHS, "context_truncation", "candidate_truncation", *PROMPTS, *JOINING)
"""Settings that mean the same to a cross-encoder and to the others."""


def needs_new_head(saved: Mapping[str, Any], settings: Mapping[str, Any]) -> bool:
    """Whether a saved cross-encoder is asked for another task, or for another number of classes.

    Each task has a head of its own. That of `interaction` only ranks, and stays.
    """
    if saved.get("head") == "interaction" or "task" not in saved:
        return False
    task = settings.get("task", saved["task"])
    counts = settings.get("num_labels", saved["num_labels"]) != saved["num_labels"]
    return bool(task != saved["task"] or (task == "classify" and counts))


def require_architecture(architecture: str, source: str | Path) -> None:
    """Raise UsageError, before loading, for an architecture that cannot be built on a source.

    Only looks at what is on this machine.
    """
    if Path(source).exists() and is_static(Path(source)):
        require_average(architecture, {}, Path(source))


def inherit(architecture: str, folder: Path, defaults: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that a model of an architecture has from its source and from `defaults`.

    `defaults` replace what the source brings, except settings that a saved model's weights need.
    """
    description = read_description(folder)
    if description is None and is_static(folder):
        brought = static_settings(folder)
    elif description is None:
        taken = read_folder(described_in(folder))
        brought = {} if taken is None else taken.settings
        if architecture == "cross":  # the pooling of single texts is not that of pairs
            brought = {name: brought[name] for name in PROMPTS if name in brought}
            brought |= reading_of(folder)
    else:
        brought = description.settings
        defaults = {name: value for name, value in defaults.items() if name not in SHAPING}
        both = {description.architecture, architecture}
        if len(both) == 2 and "cross" in both:
            brought = {name: brought[name] for name in READING if name in brought}
    known = {field.name for field in fields(CONFIGS[architecture])}
    return {name: value for name, value in brought.items() if name in known} | dict(defaults)


def require_same_shape(folder: Path, saved: Mapping[str, Any], settings: Mapping[str, Any]) -> None:
    """Raise UsageError for a setting that a saved model's weights were not made for."""
    for name, value in settings.items():
        if name in SHAPING and value != saved.get(name, value):
            raise UsageError(
                f"The model in {folder} was made with {name} = {saved[name]}, not {value}.",
                f"Leave {name} out, or train a model with the value that you want.",
            )


def settle(
    model_class: Any,
    inherited: Mapping[str, Any],
    settings: Mapping[str, Any],
    backbone: Backbone,
    candidate: Backbone | None = None,
) -> Any:
    """The configuration of a model: given values, then inherited ones, then defaults.

    Lengths that were not given are cut to the limit of the encoder that reads them; the candidates
    may have another, `candidate`. Raises UsageError for given lengths above it.
    """
    name = model_class.architecture
    config = from_mapping(CONFIGS[name], {**inherited, **settings}, where=f"The {name} model")
    config = fit_reduction(config, backbone, candidate or backbone, {**inherited, **settings})
    limits = (backbone.max_length, (candidate or backbone).max_length)
    rooms = {length: room for length, room in zip(LENGTHS, limits, strict=True) if room is not None}
    for length, room in rooms.items():
        asked = settings.get(length)
        if asked is not None and asked > room:
            raise UsageError(
                f"{length} is {asked}, but the encoder takes at most {room} tokens.",
                "Choose a smaller length or another encoder.",
            )
    if rooms and name == "cross" and getattr(config, "head", None) != "interaction":  # read apart
        return fit_pair(config, settings, rooms["max_context_length"])
    cut = {length: min(getattr(config, length), room) for length, room in rooms.items()}
    return replace(config, **cut)


def fit_reduction(
    config: Any, backbone: Backbone, candidate: Backbone, chosen: Mapping[str, Any]
) -> Any:
    """The settings with a reduction that suits encoders which read forwards only.

    There, the first output knows nothing of the text. Raises UsageError if it was `chosen`.
    """
    if config.architecture == "cross" and backbone.is_causal and "reduction" not in chosen:
        return replace(config, reduction="last")
    sides = {"reduction": backbone}
    if config.architecture != "cross":
        sides["candidate_reduction"] = candidate
    for name, tower in sides.items():
        if tower.is_causal and (getattr(config, name) or config.reduction) == "first":
            raise UsageError(
                f"{name} is first, but the encoder reads forwards only, so that its first output "
                "is the same for every text.",
                f"Choose {name}=last, or mean.",
            )
    return config


def fit_pair(config: Any, settings: Mapping[str, Any], room: int) -> Any:
    """Lengths of a cross-encoder whose pair, with special tokens, must fit into `room`."""
    context, candidate = config.max_context_length, config.max_candidate_length
    room -= 4  # the most special tokens that a known encoder puts around a pair
    if context + candidate <= room:
        return config
    if all(length in settings for length in LENGTHS):
        raise UsageError(
            f"max_context_length and max_candidate_length add up to {context + candidate}, but "
            f"the encoder has room for {room} tokens beside the special ones.",
            "Choose smaller lengths or another encoder.",
        )
    context = max(round(room * context / (context + candidate)), 1)
    return replace(config, max_context_length=context, max_candidate_length=room - context)
