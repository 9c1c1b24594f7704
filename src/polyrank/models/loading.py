"""Loads a model of a given class from an encoder or from a saved model of any kind.

Knows the kinds of source, but no architecture by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import torch

from polyrank.config import from_mapping, to_mapping
from polyrank.errors import ModelError, UsageError
from polyrank.models.adapters.folders import (
    described_in,
    tokenizer_folder,
    weights_of,
)
from polyrank.models.backbone import (
    BACKBONE_FOLDER,
    CANDIDATE_FOLDER,
    Backbone,
    Tower,
    build_encoder,
    load_tokenizer,
)
from polyrank.models.config import CONFIGS, ClassifierConfig
from polyrank.models.default_head import head_of, reading_of, with_head
from polyrank.models.description import read_description
from polyrank.models.folder import (
    dtype_of,
    fit_weights,
)
from polyrank.models.reranker import take_head
from polyrank.models.sentence_transformers import read_folder
from polyrank.models.source import local_folder
from polyrank.models.static import (
    empty_static,
    is_static,
    load_static,
    load_word_tokenizer,
    require_average,
    static_settings,
)
from polyrank.models.taken_over import require_apart, take_over
from polyrank.models.two_bases import joined_settings, read_tower, require_bare, require_two
from polyrank.tokens.tokenizer import TextTokenizer

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
)
"""Settings that a saved model's weights were made for."""
LENGTHS = ("max_context_length", "max_candidate_length")
PROMPTS = ("context_prompt", "candidate_prompt")
JOINING = ("turn_separator", "max_turns", "cut_candidate_end")
READING = (*LENGTHS, "context_truncation", "candidate_truncation", *PROMPTS, *JOINING)
"""Settings that mean the same to a cross-encoder and to the others."""


def load(
    model_class: Any,
    folder: Path,
    settings: dict[str, Any],
    defaults: Mapping[str, Any],
    *,
    trainable: bool = True,
    candidate_folder: Path | None = None,
    weights_dtype: str = "float32",
) -> Any:
    """A model of `model_class` from any kind of folder. Raises ModelError, UsageError.

    With another `candidate_folder`, it is a new model around the encoders of both. Their weights
    stay in `weights_dtype`.
    """
    if candidate_folder is not None:
        require_two(model_class, settings)
        if candidate_folder.resolve() != folder.resolve():
            folders = folder, candidate_folder
            return from_two(model_class, folders, settings, defaults, weights_dtype)
    description = read_description(folder)
    if is_static(folder):
        require_average(model_class.architecture, settings, folder)
    inherited = inherit(model_class.architecture, folder, defaults)
    if model_class.architecture == "cross":
        settings = with_head(folder, inherited, settings)
    if description is None:
        return from_encoder(model_class, folder, inherited, settings, weights_dtype)
    same = description.architecture == model_class.architecture
    if same and not needs_new_head(inherited, settings):
        return reopen(
            model_class,
            folder,
            inherited,
            settings,
            trainable=trainable,
            weights_dtype=weights_dtype,
        )
    return derive(model_class, folder, inherited, settings, weights_dtype)


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


def from_encoder(
    model_class: Any,
    folder: Path,
    inherited: dict[str, Any],
    settings: dict[str, Any],
    weights_dtype: str,
) -> Any:
    """A new model around an encoder, that of a sentence-transformers folder for instance."""
    if is_static(folder):
        backbone, tokenizer = load_static(folder)
        config = settle(model_class, inherited, settings, backbone)
        return model_class(backbone, tokenizer, config)
    taken = read_folder(described_in(folder))
    is_cross = model_class.architecture == "cross"
    context = read_tower(folder, "context", weights_dtype)
    if taken is not None and taken.has_two_sides and not is_cross:
        require_apart(folder, settings)
        inherited = {**inherited, "shared_towers": False}
    if taken is not None and taken.candidate_encoder and not is_cross:
        candidate = read_tower(folder, "candidate", weights_dtype)
        model = from_towers(model_class, context, candidate, inherited, settings)
    else:
        model = model_class(*context, settle(model_class, inherited, settings, context.backbone))
        model.initialise()
    take_over(model, taken, settings)
    if is_cross:
        take_reranker(model, folder)
    return model


def from_two(
    model_class: Any,
    folders: tuple[Path, Path],
    settings: dict[str, Any],
    defaults: Mapping[str, Any],
    weights_dtype: str,
) -> Any:
    """A new model around the encoders of two folders, the second for the candidates."""
    contexts, candidates = (inherit(model_class.architecture, each, {}) for each in folders)
    require_bare(folders[0], contexts)
    require_bare(folders[1], candidates)
    inherited = joined_settings(contexts, candidates, defaults, settings)
    context = read_tower(folders[0], "context", weights_dtype)
    candidate = read_tower(folders[1], "candidate", weights_dtype)
    return from_towers(model_class, context, candidate, inherited, settings)


def from_towers(
    model_class: Any,
    context: Tower,
    candidate: Tower,
    inherited: Mapping[str, Any],
    settings: Mapping[str, Any],
) -> Any:
    """A new bi- or poly-encoder around an encoder for each side, each with its own tokeniser.

    The encoders may differ in size, kind and vocabulary; `read_tower` loads one from any folder.
    Their vectors must be equally long, or `projection` be set. `settings` were given and
    `inherited` come from the sources. What is above the encoders is new. Raises UsageError.
    """
    apart = {**inherited, "shared_towers": False}
    config = settle(model_class, apart, settings, context.backbone, candidate.backbone)
    model = model_class(*context, config, *candidate)
    model.initialise()
    return model


def take_reranker(model: Any, folder: Path) -> None:
    """Give a new cross-encoder the head of the reranker in `folder`, if its settings ask for it."""
    found = head_of(folder, to_mapping(model.config))
    if found is None or any(
        getattr(model.config, name) != value for name, value in found.settings.items()
    ):
        return
    take_head(model.head, found)
    if len(found.labels) > 1:
        model.take_classifier(ClassifierConfig(classes=found.labels))


def tokenizer_of(source: str | Path, revision: str | None = None) -> Any:
    """The tokeniser of `transformers` that a model from any kind of source would have.

    Raises ModelError if there is none.
    """
    folder = local_folder(source, revision=revision)
    static = is_static(folder)
    if read_description(folder) is not None:
        place = folder / BACKBONE_FOLDER
        return load_word_tokenizer(place) if static else load_tokenizer(place)
    if static:
        return load_static(folder)[1].pretrained
    return load_tokenizer(tokenizer_folder(folder))


def reopen(
    model_class: Any,
    folder: Path,
    inherited: dict[str, Any],
    settings: dict[str, Any],
    *,
    trainable: bool,
    weights_dtype: str,
) -> Any:
    """The saved model itself; settings that do not affect its weights may be changed.

    A shared encoder may become two, which start alike.
    """
    shared = inherited.get("shared_towers") is True
    separate = shared and settings.get("shared_towers") is False
    kept = {name: one for name, one in settings.items() if name != "shared_towers" or not separate}
    require_same_shape(folder, inherited, kept)
    weights = weights_of(folder)
    dtype = dtype_of(weights, weights_dtype)
    model = empty_model(model_class, folder, inherited, settings, trainable=trainable, dtype=dtype)
    take_classifier(model, folder)
    if separate:
        weights |= {
            name: weights[origin]
            for name in model.state_dict().keys() - weights.keys()
            for origin in origins_of(name)
            if origin in weights
        }
    fit_weights(model, weights, folder)
    return model


def require_same_shape(folder: Path, saved: Mapping[str, Any], settings: Mapping[str, Any]) -> None:
    """Raise UsageError for a setting that a saved model's weights were not made for."""
    for name, value in settings.items():
        if name in SHAPING and value != saved.get(name, value):
            raise UsageError(
                f"The model in {folder} was made with {name} = {saved[name]}, not {value}.",
                f"Leave {name} out, or train a model with the value that you want.",
            )


def take_classifier(model: Any, folder: Path) -> None:
    """Give a saved model the classifier that is described beside it. Raises ModelError."""
    description = read_description(folder)
    if description is None or description.classifier is None:
        return
    config = from_mapping(ClassifierConfig, description.classifier, where=f"{folder}, classifier")
    saved = description.settings.get("truncate_dim")
    if getattr(model.config, "truncate_dim", None) != saved:
        raise UsageError(
            f"The model in {folder} has a classifier of vectors with truncate_dim = {saved}, not "
            f"{model.config.truncate_dim}.",
            "Leave truncate_dim out.",
        )
    try:
        with torch.random.fork_rng(devices=[]):  # what is drawn here is overwritten
            model.take_classifier(config)
    except UsageError as error:
        raise ModelError(error.problem, "Save the model again.") from error


def origins_of(name: str) -> list[str]:
    """The weights of other models that these may start from, best first."""
    part, _, rest = name.partition(".")
    if part.endswith(("_projection", "_dense")):
        return [name, f"context_{part.partition('_')[2]}.{rest}"]
    return [name, f"context_tower.{rest}", f"tower.{rest}"] if part.endswith("tower") else [name]


def derive(
    model_class: Any,
    folder: Path,
    inherited: dict[str, Any],
    settings: dict[str, Any],
    weights_dtype: str,
) -> Any:
    """A new model that starts from the encoders of a saved one of another architecture or task."""
    two = has_two_bases(folder) and model_class.architecture != "cross"
    if two:
        require_two(model_class, settings)
    weights = weights_of(folder)
    dtype = dtype_of(weights, weights_dtype)
    model = empty_model(model_class, folder, inherited, settings, dtype=dtype)
    if has_two_bases(folder) and not two:  # a cross-encoder has the contexts' encoder
        weights = {k: v for k, v in weights.items() if not k.startswith("candidate_")}
    taken = model.state_dict()
    for name in list(taken):
        part = name.partition(".")[0]
        if part.endswith("_projection"):
            if model.config.projection != inherited.get("projection"):
                continue
        elif not part.endswith(("tower", "_dense")):
            continue
        found = next((origin for origin in origins_of(name) if origin in weights), None)
        if found is None:
            del taken[name]  # is named as missing
        else:
            taken[name] = weights[found]
    fit_weights(model, taken, folder)
    model.initialise()
    return model


def empty_model(
    model_class: Any,
    folder: Path,
    inherited: dict[str, Any],
    settings: dict[str, Any],
    *,
    trainable: bool = True,
    dtype: torch.dtype = torch.float32,
    backbone_in: Callable[[Path], Backbone] | None = None,
) -> Any:
    """A model as described, its weights not yet read; `dtype` is that of its encoders.

    `backbone_in` makes the encoder that a folder describes; by default one of torch.
    """
    if backbone_in is None:

        def backbone_in(described: Path) -> Backbone:
            return Backbone(build_encoder(described, trainable=trainable, dtype=dtype))

    with torch.random.fork_rng(devices=[]):  # what is drawn here is overwritten
        backbone: Backbone
        tokenizer: TextTokenizer
        described = folder / BACKBONE_FOLDER
        if is_static(folder):
            backbone, tokenizer = empty_static(described, trainable=trainable)
        else:
            backbone = backbone_in(described)
            tokenizer = TextTokenizer(load_tokenizer(described, trainable=trainable))
        if model_class.architecture == "cross" or not has_two_bases(folder):
            config = settle(model_class, inherited, settings, backbone)
            return model_class(backbone, tokenizer, config)
        described = folder / CANDIDATE_FOLDER
        other = backbone_in(described)
        texts = TextTokenizer(load_tokenizer(described, trainable=trainable))
        config = settle(model_class, inherited, settings, backbone, other)
        return model_class(backbone, tokenizer, config, other, texts)


def has_two_bases(folder: Path) -> bool:
    """Whether a saved model has an encoder of another kind for the candidates."""
    return (folder / CANDIDATE_FOLDER).is_dir()


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
