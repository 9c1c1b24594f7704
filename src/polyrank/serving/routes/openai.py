"""What OpenAI's clients call: embeddings and models."""

from __future__ import annotations

from typing import Any

import orjson
from fastapi import APIRouter, Response

from polyrank.serving.adjusting import cut_to
from polyrank.serving.bodies import (
    JsonRoute,
    array,
    base64_rows,
    number_rows,
    written,
    written_apart,
)
from polyrank.serving.computation import Side
from polyrank.serving.dependencies import FlowOf, RuntimeOf
from polyrank.serving.failures import ERRORS
from polyrank.serving.pipeline import Served
from polyrank.serving.schemas.base import require_items, usage
from polyrank.serving.schemas.openai import (
    EmbeddingsAnswer,
    EmbeddingsRequest,
    ModelCard,
    ModelList,
)
from polyrank.serving.selection import model_for_embeddings, model_named

router = APIRouter(tags=["OpenAI"], route_class=JsonRoute, responses=ERRORS)


@router.post("/v1/embeddings", response_model=EmbeddingsAnswer)
@router.post("/embeddings", response_model=EmbeddingsAnswer)
async def embeddings(body: EmbeddingsRequest, runtime: RuntimeOf, flow: FlowOf) -> Response:
    """Embed texts with a bi- or poly-encoder, as documents by default.

    A poly-encoder has several vectors for a query, so it only embeds documents; /search and
    /v1/rerank take queries.
    """
    texts = [body.input] if isinstance(body.input, str) else body.input
    require_items("input", len(texts), runtime.config.max_items)
    side: Side = "context" if body.is_query else "candidate"
    served = model_for_embeddings(runtime.pipeline, body.model, side)
    embedded = await runtime.embed(served, texts, side, flow)
    vectors = cut_to(served, embedded.vectors, body.dimensions or body.output_dimension)
    rows = base64_rows if body.encoding_format == "base64" else number_rows

    def write() -> bytes:
        items = (
            b'{"object":"embedding","index":%d,"embedding":%b}' % (place, row)
            for place, row in enumerate(rows(vectors))
        )
        return orjson.dumps(
            {
                "object": "list",
                "data": array(items),
                "model": served.name,
                "usage": usage(embedded.num_tokens),
            }
        )

    return await written_apart(write, vectors.size)


@router.get("/v1/models", response_model=ModelList)
@router.get("/models", response_model=ModelList)
async def models(runtime: RuntimeOf) -> Response:
    """List the models that are served."""
    data = [card(served) for served in runtime.pipeline.models.values()]
    return written({"object": "list", "data": data})


@router.get("/v1/models/{name:path}", response_model=ModelCard)
async def model(name: str, runtime: RuntimeOf) -> Response:
    """Describe one model."""
    return written(card(model_named(runtime.pipeline, name)))


def card(served: Served) -> dict[str, Any]:
    """What clients are told of a model."""
    return {
        "id": served.name,
        "object": "model",
        "created": served.since,
        "owned_by": "polyrank",
        "architecture": served.architecture,
    }
