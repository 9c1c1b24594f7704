"""Loads a model of a given class from an encoder or from a saved model of any kind.

Knows the kinds of source, but no architecture by name.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
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
from polyrank.models.config import ClassifierConfig
from polyrank.models.default_head import head_of, with_head
from polyrank.models.description import Shapes, read_description
from polyrank.models.folder import (
    dtype_of,
    fit_weights,
    shapes_of,
)
from polyrank.models.foreign.reranker import take_head
from polyrank.models.foreign.sentence_transformers import read_folder
from polyrank.models.foreign.taken_over import require_apart, take_over
from polyrank.models.loading.settings import inherit, needs_new_head, require_same_shape, settle
from polyrank.models.loading.two_bases import joined_settings, read_tower, require_bare, require_two
from polyrank.models.source import local_folder
from polyrank.models.static.embeddings import (
    empty_static,
    is_static,
    load_static,
    load_word_tokenizer,
    require_average,
)
from polyrank.tokens.tokenizer import TextTokenizer


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
    model = empty_model(
        model_class,
        folder,
        inherited,
        settings,
        shapes_of(weights),
        trainable=trainable,
        dtype=dtype,
        head_on=torch.device("meta"),  # until its sizes are known to be those of the weights
    )
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
    model = empty_model(model_class, folder, inherited, settings, shapes_of(weights), dtype=dtype)
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
    shapes: Shapes,
    *,
    trainable: bool = True,
    dtype: torch.dtype = torch.float32,
    backbone_in: Callable[[Path], Backbone] | None = None,
    head_on: torch.device | None = None,
) -> Any:
    """A model as described, before weights of these shapes are loaded; `dtype` is of its encoders.

    `backbone_in` makes the encoder that a folder describes; by default one of torch. `head_on` is
    the device of all but the encoders; by default torch's.
    """
    head_place = head_on or contextlib.nullcontext()
    if backbone_in is None:

        def backbone_in(described: Path) -> Backbone:
            return Backbone(build_encoder(described, shapes, trainable=trainable, dtype=dtype))

    with torch.random.fork_rng(devices=[]):  # what is drawn here is overwritten
        backbone: Backbone
        tokenizer: TextTokenizer
        described = folder / BACKBONE_FOLDER
        if is_static(folder):
            backbone, tokenizer = empty_static(described, shapes, trainable=trainable)
        else:
            backbone = backbone_in(described)
            tokenizer = TextTokenizer(load_tokenizer(described, trainable=trainable))
        if model_class.architecture == "cross" or not has_two_bases(folder):
            config = settle(model_class, inherited, settings, backbone)
            with head_place:
                return model_class(backbone, tokenizer, config)
        described = folder / CANDIDATE_FOLDER
        other = backbone_in(described)
        texts = TextTokenizer(load_tokenizer(described, trainable=trainable))
        config = settle(model_class, inherited, settings, backbone, other)
        with head_place:
            return model_class(backbone, tokenizer, config, other, texts)


def has_two_bases(folder: Path) -> bool:
    """Whether a saved model has an encoder of another kind for the candidates."""
    return (folder / CANDIDATE_FOLDER).is_dir()
