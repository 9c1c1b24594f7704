"""The modules of a bi-encoder, or of the candidates' side of any two towers.

Knows what each setting is called there, and what cannot be said.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from polyrank.errors import UsageError
from polyrank.interop.sentence_transformers.module_folder import (
    Module,
    dense,
    normalize,
    pooling,
    router,
    static_embedding,
    transformer,
)
from polyrank.models.static import StaticEncoder

POOLING = {"first": "cls", "mean": "mean", "max": "max"}
"""The reductions, by the library's names."""


def bi_encoder(model: Any) -> tuple[list[Module], list[str]]:
    """The modules of a bi-encoder, and what its folder cannot express.

    Two towers become two routes. Raises UsageError for a reduction that the library does not have.
    """
    config, notes = model.config, dialogue_notes(model)
    lengths = config.max_context_length, config.max_candidate_length
    if model.classes is not None:
        notes.append("The classifier is not exported: it reads two vectors, not one text.")
    if model.candidate_tower is not None:
        routes = {
            "query": side(model, "context", lengths[0]),
            "document": side(model, "candidate", lengths[1]),
        }
        return [router(routes)], notes
    if lengths[0] != lengths[1]:
        notes.append(
            "One encoder has one maximum length there. All texts are cut at "
            f"{max(lengths)} tokens, while the model cuts contexts at {lengths[0]} and candidates "
            f"at {lengths[1]}: longer texts get other vectors."
        )
    return side(model, "candidate", max(lengths)), notes


def candidates_alone(model: Any) -> tuple[list[Module], list[str]]:
    """The modules that encode a candidate, and what their folder cannot express."""
    return side(model, "candidate", model.config.max_candidate_length), []


def side(model: Any, name: str, max_length: int) -> list[Module]:
    """The modules of one side, `context` or `candidate`: from a text to what is scored."""
    config = model.config
    tower = own_or_shared(model, f"{name}_tower")
    projection = own_or_shared(model, f"{name}_projection")
    if isinstance(tower.encoder, StaticEncoder):
        modules = [static(model, tower.encoder, max_length)]
    else:
        reduction = pooling_of(config.reduction)
        cut = getattr(config, f"{name}_truncation")
        modules = [
            transformer(
                tower.encoder,
                model.tokenizer.pretrained,
                max_length,
                truncation="left" if cut == "left" else "right",
            ),
            pooling(tower.width, reduction),
        ]
    if projection is not None:
        modules.append(dense(projection.weight))
    if config.similarity == "cosine":
        modules.append(normalize())
    return modules


def own_or_shared(model: Any, name: str) -> Any:
    """A layer of one side: the context's if both sides share it."""
    own = getattr(model, name)
    return getattr(model, name.replace("candidate", "context")) if own is None else own


def pooling_of(reduction: str) -> str:
    """The library's name of a reduction. Raises UsageError if it has none."""
    if reduction not in POOLING:
        raise UsageError(
            f"sentence-transformers cannot express reduction = {reduction}, only "
            f"{', '.join(POOLING)}.",
            "Train the model with one of these reductions, or export it to another format.",
        )
    return POOLING[reduction]


def static(model: Any, encoder: StaticEncoder, max_length: int) -> Module:
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
    unknown = model.tokenizer.unknown
    if unknown is not None:
        if model.config.similarity != "cosine":
            raise UsageError(
                "sentence-transformers averages unknown words too, but this model leaves them out "
                "and compares by similarity = dot.",
                "Export a model with similarity = cosine, for which this makes no difference.",
            )
        vectors = vectors.clone()
        vectors[unknown] = 0
    return static_embedding(vectors, model.tokenizer.pretrained, max_length)


def dialogue_notes(model: Any) -> list[str]:
    """What is different for a context of several turns."""
    separator = model.tokenizer.pretrained.sep_token or model.tokenizer.pretrained.eos_token
    if model.config.context_truncation != "by_kind":
        return []
    return [
        "A context there is one text. Join the turns of a dialogue with the tokeniser's separator"
        + (f" ({separator})" if separator else "")
        + "; a dialogue that is too long then loses its newest turns, where the model drops the "
        "oldest."
    ]
