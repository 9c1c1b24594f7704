"""The modules of a bi-encoder, or of the candidates' side of any two towers.

Knows what each setting is called there, and what cannot be said.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from polyrank.errors import UsageError
from polyrank.interop.sentence_transformers.module_folder import (
    Module,
    dense,
    layer_of,
    normalize,
    pooling,
    router,
    static_embedding,
    transformer,
)
from polyrank.models.static.embeddings import StaticEncoder

POOLING = {
    "first": "cls",
    "mean": "mean",
    "max": "max",
    "last": "lasttoken",
    "mean_sqrt": "mean_sqrt_len_tokens",
    "weighted_mean": "weightedmean",
}
"""The reductions, by the library's names."""
CUT = "A dialogue that is too long then loses its newest turns, where the model drops the oldest."


def bi_encoder(model: Any) -> tuple[list[Module], list[str]]:
    """The modules of a bi-encoder, and what its folder cannot express.

    Two encoders, or two reductions of one, become two routes. Raises UsageError for a reduction
    that the library does not have.
    """
    config, notes = model.config, dialogue_notes(model)
    lengths = config.max_context_length, config.max_candidate_length
    if model.classes is not None:
        notes.append("The classifier is not exported: it reads two vectors, not one text.")
    two_reductions = config.candidate_reduction not in (None, config.reduction)
    if model.candidate_tower is not None or two_reductions:
        if model.candidate_tower is None:
            notes.append("The folder holds the encoder twice, once with each reduction.")
        return [
            router({"query": side(model, "context"), "document": side(model, "candidate")})
        ], notes
    if lengths[0] != lengths[1]:
        notes.append(
            "One encoder has one maximum length there. All texts are cut at "
            f"{max(lengths)} tokens, while the model cuts contexts at {lengths[0]} and candidates "
            f"at {lengths[1]}: longer texts get other vectors."
        )
    return side(model, "candidate", max(lengths)), notes


def candidates_alone(model: Any) -> tuple[list[Module], list[str]]:
    """The modules that encode a candidate, and what their folder cannot express."""
    return side(model, "candidate"), []


def side(model: Any, name: str, max_length: int | None = None) -> list[Module]:
    """The modules of one side, `context` or `candidate`: from a text to what is scored.

    The library cuts vectors after normalising them; as a layer the cut comes before.
    """
    config = model.config
    max_length = max_length or getattr(config, f"max_{name}_length")
    tower = own_or_shared(model, name, "tower")
    tokenizer = getattr(model, "tokenizer" if name == "context" else "candidate_tokenizer")
    if isinstance(tower.encoder, StaticEncoder):
        modules = [static(model, tower.encoder, tokenizer, max_length)]
    else:
        reduction = config.candidate_reduction if name == "candidate" else None
        cut = getattr(config, f"{name}_truncation")
        modules = [
            transformer(
                tower.encoder,
                tokenizer.pretrained,
                max_length,
                truncation="left" if cut == "left" else "right",
            ),
            pooling(
                tower.width,
                pooling_of(reduction or config.reduction),
                include_prompt=config.pool_prompt,
            ),
        ]
    width = tower.width
    for layer in own_or_shared(model, name, "dense") or ():
        modules.append(layer_of(layer.linear, layer.activation))
        width = layer.linear.out_features
    projection = own_or_shared(model, name, "projection")
    if projection is not None:
        modules.append(layer_of(projection))
        width = projection.out_features
    if model.dimension < width:
        modules.append(dense(torch.eye(model.dimension, width)))
    is_normalised = config.similarity == "cosine" and model.gives_unit_length
    return [*modules, normalize()] if is_normalised else modules


def own_or_shared(model: Any, side: str, part: str) -> Any:
    """A part of one side: the context's if both sides share the encoder."""
    shared = model.candidate_tower is None
    return getattr(model, f"context_{part}" if shared else f"{side}_{part}")


def pooling_of(reduction: str) -> str:
    """The library's name of a reduction. Raises UsageError if it has none."""
    if reduction not in POOLING:
        raise UsageError(
            f"sentence-transformers cannot express reduction = {reduction}, only "
            f"{', '.join(POOLING)}.",
            "Train the model with one of these reductions, or export it to another format.",
        )
    return POOLING[reduction]


def static(model: Any, encoder: StaticEncoder, tokenizer: Any, max_length: int) -> Module:
    """The vectors of a static encoder, one per token: its weights and its mapping are multiplied
    into them.

    Where unknown words are left out, their vector is zero, which only changes the length of a
    text's vector. Raises UsageError where that length matters.
    """
    vectors: Tensor = encoder.embeddings.weight.detach()
    if encoder.mapping is not None:
        vectors = vectors[encoder.mapping]
    if encoder.token_weights is not None:
        vectors = vectors * encoder.token_weights.detach()[:, None]
    unknown = tokenizer.unknown
    if unknown is not None:
        if model.config.similarity != "cosine":
            raise UsageError(
                "sentence-transformers averages unknown words too, but this model leaves them out "
                "and compares by similarity = dot.",
                "Export a model with similarity = cosine, for which this makes no difference.",
            )
        vectors = vectors.clone()
        vectors[unknown] = 0
    return static_embedding(vectors, tokenizer.pretrained, max_length)


def dialogue_notes(model: Any) -> list[str]:
    """What is different for a context of several turns, and for a candidate that is cut."""
    config, pretrained = model.config, model.tokenizer.pretrained
    notes = []
    separator = config.turn_separator or pretrained.sep_token or pretrained.eos_token
    if config.context_truncation != "right":
        notes.append(
            f"A context there is one text: join the turns of a dialogue with {separator!r}. "
            + ("" if config.max_turns is None else f"Give only the newest {config.max_turns}. ")
            + ("" if config.context_truncation == "left" else CUT)
        )
    if config.cut_candidate_end:
        notes.append(
            "A candidate that is too long keeps its last special token there; the model cuts it."
        )
    return [note.strip() for note in notes]
