"""Puts what a sentence-transformers folder brings, besides its encoder, into a model.

Knows what the reader of such a folder found; knows no architecture.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenizers import normalizers

from polyrank.config import plain_value
from polyrank.errors import UsageError
from polyrank.models.folder import fit_weights, read_weights
from polyrank.models.foreign.sentence_transformers import Taken


def take_over(model: Any, taken: Taken | None, settings: Mapping[str, Any]) -> None:
    """Put the weights of dense layers into a new model, and warn of prompts that are for no side.

    `settings` are those that were asked for.
    """
    if taken is None or getattr(model.config, "dense", None) is None:
        return
    if taken.note and not {"context_prompt", "candidate_prompt"} & settings.keys():
        warnings.warn(taken.note, stacklevel=2)
    if plain_value(model.config.dense) == taken.settings.get("dense", ()):
        take_dense(model.context_dense, taken.dense)
        take_dense(model.candidate_dense, taken.candidate_dense)


def take_dense(layers: Any, places: tuple[Path, ...]) -> None:
    """Put the weights of modules of sentence-transformers into dense layers. Raises ModelError."""
    if layers is None:
        return
    for layer, place in zip(layers, places, strict=True):
        fit_weights(layer, read_weights(place), place)


def require_apart(folder: Path, settings: Mapping[str, Any]) -> None:
    """Raise UsageError for one encoder for both sides of a folder that has one for each."""
    if settings.get("shared_towers"):
        raise UsageError(
            f"{folder} has layers of their own for contexts and candidates, so shared_towers "
            "cannot be true.",
            "Leave shared_towers out.",
        )


def in_lower_case(pretrained: Any) -> Any:
    """The tokeniser, which brings texts to lower case before anything else.

    It is of no family's own class, since those leave out what they do not expect when they are
    loaded again.
    """
    from transformers import PreTrainedTokenizerFast

    backend = pretrained.backend_tokenizer
    before = backend.normalizer
    steps = [normalizers.Lowercase(), *([] if before is None else [before])]
    backend.normalizer = normalizers.Sequence(steps)
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        model_input_names=pretrained.model_input_names,
        **pretrained.special_tokens_map,
    )
