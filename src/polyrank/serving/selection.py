"""Which model answers a request: by its name, or the first one able. Knows nothing of bodies."""

from __future__ import annotations

from typing import Any

from polyrank.errors import nearest
from polyrank.models.config import NAMES
from polyrank.serving.computation import Side
from polyrank.serving.failures import RequestError
from polyrank.serving.pipeline import FOR_EMBEDDINGS, FOR_RANKING, Pipeline, Served


def model_named(pipeline: Pipeline, name: str) -> Served:
    """The model of a name. Raises RequestError, naming the nearest."""
    served = pipeline.models.get(name)
    if served is None:
        raise RequestError(
            404,
            f"The model {shortened(name)!r} is not served.",
            nearest(shortened(name), pipeline.models),
            code="model_not_found",
            param="model",
        )
    return served


def model_for_embeddings(pipeline: Pipeline, name: str | None, side: Side) -> Served:
    """The model that embeds texts of a side.

    Raises RequestError for an unknown name, and for a model without one vector per text.
    """
    served = pipeline.first(FOR_EMBEDDINGS) if name is None else model_named(pipeline, name)
    if served is None:
        raise RequestError(
            400,
            "The server has cross-encoders only, which have no embeddings.",
            "Send the texts to /v1/rerank, or serve a bi- or poly-encoder.",
            code="model_not_suitable",
            param="model",
        )
    if served.architecture == "cross":
        raise RequestError(
            400,
            f"The model {served.name!r} is a cross-encoder, which reads two texts together and "
            "has no embeddings.",
            f"Send it to /v1/rerank; {others(pipeline, FOR_EMBEDDINGS, 'for embeddings')}.",
            code="model_not_suitable",
            param="model",
        )
    if side == "context" and served.architecture == "poly":
        raise RequestError(
            400,
            f"The poly-encoder {served.name!r} has {vectors_of(served)} vectors for a query, not "
            "one embedding.",
            "Send queries to /search or /v1/rerank; embed documents with input_type 'document'.",
            code="model_not_suitable",
            param="input_type",
        )
    return served


def model_for_ranking(pipeline: Pipeline, name: str | None) -> Served:
    """The model that scores pairs of texts. Raises RequestError for an unknown name."""
    if name is not None:
        return model_named(pipeline, name)
    served = pipeline.reranker or pipeline.first(FOR_RANKING)
    assert served is not None, "a pipeline has models, and all of them give scores"
    return served


def vectors_of(served: Served) -> int:
    """The number of vectors of a context."""
    model: Any = served.model
    return int(model.num_vectors)


def others(pipeline: Pipeline, architectures: tuple[str, ...], purpose: str) -> str:
    """Which served models can do what one cannot."""
    able = [
        f"{each.name!r} (a {NAMES[each.architecture]})"
        for each in pipeline.models.values()
        if each.architecture in architectures
    ]
    if not able:
        return f"no model that is served is {purpose}"
    return f"{purpose}, use {' or '.join(able[:3])}"


def shortened(name: str, length: int = 60) -> str:
    """A name from a request, not longer than a message can bear."""
    return name if len(name) <= length else f"{name[:length]}…"
