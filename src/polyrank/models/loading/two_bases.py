"""Joins the encoders of two sources in one new model: one for contexts, one for candidates.

The encoders may differ in size, kind and vocabulary. Knows the kinds of source, but no architecture
by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from polyrank.errors import ModelError, UsageError
from polyrank.models.adapters.folders import (
    described_in,
    load_any_encoder,
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
from polyrank.models.config import TwoTowerConfig
from polyrank.models.description import read_description
from polyrank.models.folder import dtype_of, fit_weights, shapes_of
from polyrank.models.foreign.sentence_transformers import read_folder
from polyrank.models.foreign.taken_over import in_lower_case
from polyrank.models.static.embeddings import is_static
from polyrank.tokens.tokenizer import TextTokenizer

TOWERS = {
    "context": ("context_tower.", "tower."),
    "candidate": ("candidate_tower.", "context_tower.", "tower."),
}
"""The encoders of a saved model that may read a side, the best first."""
OF_CONTEXTS = (
    "reduction",
    "reduction_tokens",
    "pool_prompt",
    "context_prompt",
    "max_context_length",
    "context_truncation",
    "similarity",
    "temperature",
    "truncate_dim",
)
OF_CANDIDATES = ("candidate_prompt", "max_candidate_length", "candidate_truncation")
"""Settings that a source brings for its side."""
OF_BOTH = ("pool_prompt", "truncate_dim")
"""Settings that must be the same for both sides."""


def read_tower(folder: Path, side: str, weights_dtype: str = "float32") -> Tower:
    """The encoder of one side, `context` or `candidate`, with its weights and its tokeniser.

    It comes from a folder of any kind but static embeddings: an encoder's, a sentence-transformers
    model's, or a saved model's, which gives the encoder that reads that side.

    Raises:
        ModelError: There is no encoder, or its weights do not fit.
        UsageError: The folder holds static embeddings.
    """
    if is_static(folder):
        raise UsageError(
            f"{folder} holds static embeddings, which cannot be one of two encoders.",
            "Give an encoder for each side, or train the static embeddings without the other.",
        )
    if read_description(folder) is None:
        source = described_in(folder)
        taken = read_folder(source)
        place, is_lower = source, False
        if taken is not None:
            other = taken.candidate_encoder if side == "candidate" else None
            place, is_lower = other or taken.encoder, taken.lower_case
        place = place if source == folder else folder  # an adapter, which knows its base
        backbone = Backbone(load_any_encoder(place, weights_dtype))
        pretrained = load_tokenizer(tokenizer_folder(place))
        texts = TextTokenizer(in_lower_case(pretrained) if is_lower else pretrained)
        return Tower(backbone, texts)
    weights = weights_of(folder)
    found = [each for each in TOWERS[side] if any(name.startswith(each) for name in weights)]
    if not found:
        raise ModelError(
            f"The weights in {folder} have no encoder for the {side}s.",
            "The folder is damaged; save or download the model again.",
        )
    described = folder / CANDIDATE_FOLDER
    if found[0] != "candidate_tower." or not described.is_dir():
        described = folder / BACKBONE_FOLDER
    dtype = dtype_of(weights, weights_dtype)
    backbone = Backbone(build_encoder(described, shapes_of(weights), dtype=dtype))
    start = found[0]
    own = {name[len(start) :]: each for name, each in weights.items() if name.startswith(start)}
    fit_weights(backbone, own, folder)
    return Tower(backbone, TextTokenizer(load_tokenizer(described)))


def joined_settings(
    context: Mapping[str, Any],
    candidate: Mapping[str, Any],
    defaults: Mapping[str, Any],
    settings: Mapping[str, Any],
) -> dict[str, Any]:
    """What a model of two encoders has from its sources' settings and from `defaults`.

    Each source brings its pooling, its prompt and its length; the similarity is the context's.
    Raises UsageError where the sources contradict each other and the given `settings` do not say.
    """
    usual = TwoTowerConfig()
    for name in OF_BOTH:
        first, second = (each.get(name, getattr(usual, name)) for each in (context, candidate))
        if first != second and name not in settings:
            raise UsageError(
                f"The encoders' folders say {name} = {first} and {name} = {second}, but a model "
                "has one for both sides.",
                f"Set {name}.",
            )
    brought = {name: context[name] for name in OF_CONTEXTS if name in context}
    brought |= {name: candidate[name] for name in OF_CANDIDATES if name in candidate}
    chosen = {"reduction": usual.reduction, **brought, **defaults}["reduction"]
    own = candidate.get("candidate_reduction") or candidate.get("reduction", chosen)
    if own != chosen:
        brought["candidate_reduction"] = own
    return {**brought, **defaults, "shared_towers": False}


def require_two(model_class: Any, settings: Mapping[str, Any]) -> None:
    """Raise UsageError for a model that cannot have two encoders of different kinds."""
    if model_class.architecture == "cross":
        raise UsageError(
            "A cross-encoder cannot have another encoder for the candidates: it reads both texts "
            "together.",
            "Leave candidate_base (--candidate-base) out, or make a bi- or poly-encoder.",
        )
    if settings.get("shared_towers"):
        raise UsageError(
            "candidate_base and shared_towers exclude each other: towers that are shared have one "
            "encoder.",
            "Leave one of them out.",
        )


def require_bare(folder: Path, settings: Mapping[str, Any]) -> None:
    """Raise UsageError for a source with layers above its encoder, which would be lost."""
    if read_description(folder) is None and (settings.get("projection") or settings.get("dense")):
        raise UsageError(
            f"{folder} has dense layers above its encoder, which a model of two encoders cannot "
            "take over.",
            "Copy the files of its encoder into a folder without modules.json, give that folder, "
            "and train a projection.",
        )
