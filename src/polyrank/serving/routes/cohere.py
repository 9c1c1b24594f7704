"""What the clients of Cohere (versions 1 and 2) and Jina call: rerank and embed."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import orjson
from fastapi import APIRouter, Response
from numpy.typing import NDArray

from polyrank.serving.adjusting import cut_texts, cut_to
from polyrank.serving.bodies import (
    JsonRoute,
    array,
    base64_rows,
    number_rows,
    written_apart,
)
from polyrank.serving.computation import Side
from polyrank.serving.dependencies import FlowOf, RuntimeOf
from polyrank.serving.failures import ERRORS, RequestError
from polyrank.serving.relevance import best_first, relevance
from polyrank.serving.runtime import Runtime
from polyrank.serving.scheduling.flow import Flow
from polyrank.serving.schemas.base import require_items, usage
from polyrank.serving.schemas.cohere import (
    EmbedAnswer,
    EmbedRequest,
    NamedEmbedRequest,
    NamedRerankRequest,
    RerankAnswer,
    RerankRequest,
)
from polyrank.serving.selection import model_for_embeddings, model_for_ranking

router = APIRouter(tags=["Cohere and Jina"], route_class=JsonRoute, responses=ERRORS)

DOCUMENTS_OF_A_UNIT = 100
"""A search unit of Cohere's is a query with up to this many documents."""
NUMBERS_OF_A_RESULT = 10
"""A result takes as long to write as about this many numbers."""


@router.post("/v1/rerank", response_model=RerankAnswer)
@router.post("/v1/v1/rerank", response_model=RerankAnswer)
async def rerank(body: RerankRequest, runtime: RuntimeOf, flow: FlowOf) -> Response:
    """Order documents by their relevance to a query, by a model of any architecture."""
    return await reranked(body, runtime, flow, "1")


@router.post("/v2/rerank", response_model=RerankAnswer)
@router.post("/v1/v2/rerank", response_model=RerankAnswer)
async def rerank_v2(body: NamedRerankRequest, runtime: RuntimeOf, flow: FlowOf) -> Response:
    """Order documents by their relevance to a query, by a model of any architecture."""
    return await reranked(body, runtime, flow, "2")


async def reranked(
    body: RerankRequest | NamedRerankRequest, runtime: Runtime, flow: Flow, version: str
) -> Response:
    """Answer any of the rerank calls."""
    require_items("documents", len(body.documents), runtime.config.max_items)
    texts = texts_of(body.documents, body.rank_fields or ["text"])
    served = model_for_ranking(runtime.pipeline, body.model)
    read = texts
    if body.max_tokens_per_doc is not None:
        read = await asyncio.to_thread(cut_texts, served, texts, body.max_tokens_per_doc)
    scored = await runtime.score(served, body.query, read, flow)
    order = best_first(scored.scores, body.top_n)
    values = np.asarray(scored.scores) if body.raw_scores else relevance(served, scored.scores)

    def write() -> bytes:
        results: list[dict[str, Any]] = [
            {"index": place, "relevance_score": float(values[place])} for place in order
        ]
        if body.return_documents:
            for result, place in zip(results, order, strict=True):
                sent = body.documents[place]
                fields = sent if isinstance(sent, dict) else {}
                result["document"] = {**fields, "text": texts[place]}
        return orjson.dumps(
            {
                "id": str(uuid.uuid4()),
                "object": "rerank",
                "model": served.name,
                "results": results,
                "usage": usage(scored.num_tokens),
                "meta": meta(
                    version,
                    scored.num_tokens,
                    search_units=-(-len(texts) // DOCUMENTS_OF_A_UNIT),
                ),
            }
        )

    return await written_apart(write, NUMBERS_OF_A_RESULT * len(order))


def texts_of(documents: Sequence[str | dict[str, Any]], fields: Sequence[str]) -> list[str]:
    """The text of each document. Raises RequestError for an object without a field."""
    texts = []
    for place, document in enumerate(documents):
        if isinstance(document, str):
            texts.append(document)
            continue
        for field in fields:
            if not isinstance(document.get(field), str):
                name = f"documents[{place}]"
                known = ", ".join(sorted(key[:40] for key in document)[:10]) or "none"
                raise RequestError(
                    400,
                    f"{name} has no text in the field {field[:40]!r}; its fields are: {known}.",
                    "Name the fields to read in rank_fields, or send texts.",
                    code="invalid_value",
                    param=name,
                )
        texts.append(" ".join(document[field] for field in fields))
    return texts


@router.post("/v1/embed", response_model=EmbedAnswer)
@router.post("/v1/v1/embed", response_model=EmbedAnswer)
async def embed(body: EmbedRequest, runtime: RuntimeOf, flow: FlowOf) -> Response:
    """Embed texts. Without `embedding_types`, the answer has plain lists of numbers."""
    return await embedded(body, runtime, flow, "1")


@router.post("/v2/embed", response_model=EmbedAnswer)
@router.post("/v1/v2/embed", response_model=EmbedAnswer)
async def embed_v2(body: NamedEmbedRequest, runtime: RuntimeOf, flow: FlowOf) -> Response:
    """Embed texts; the answer has the embeddings by type, `float` by default."""
    return await embedded(body, runtime, flow, "2")


async def embedded(
    body: EmbedRequest | NamedEmbedRequest, runtime: Runtime, flow: Flow, version: str
) -> Response:
    """Answer any of the embed calls."""
    texts = texts_to_embed(body)
    require_items("texts", len(texts), runtime.config.max_items)
    kinds = dict.fromkeys(body.embedding_types or ["float"])
    side: Side = "context" if body.input_type == "search_query" else "candidate"
    served = model_for_embeddings(runtime.pipeline, body.model, side)
    read = texts
    if body.max_tokens is not None:
        read = await asyncio.to_thread(cut_texts, served, texts, body.max_tokens, side)
    made = await runtime.embed(served, read, side, flow)
    vectors = cut_to(served, made.vectors, body.output_dimension, field="output_dimension")
    by_type = version == "2" or body.embedding_types is not None

    def write() -> bytes:
        rows = {kind: array(FORMS[kind](vectors)) for kind in kinds}
        return orjson.dumps(
            {
                "id": str(uuid.uuid4()),
                "response_type": "embeddings_by_type" if by_type else "embeddings_floats",
                "texts": texts,
                "embeddings": rows if by_type else rows["float"],
                "meta": meta(version, made.num_tokens),
            }
        )

    return await written_apart(write, vectors.size)


def texts_to_embed(body: EmbedRequest | NamedEmbedRequest) -> list[str]:
    """The texts of `texts` or `inputs`. Raises RequestError for images, and for nothing."""
    parts = [part for each in body.inputs or () for part in each.content]
    images = next((part.type for part in parts if part.text is None), None)
    if body.images or images or body.input_type == "image":
        raise RequestError(
            400,
            f"The models read texts only, got {shown_type(images)}.",
            "Send texts.",
            code="unsupported_input",
            param="images" if body.images else "inputs" if images else "input_type",
        )
    texts = body.texts
    if texts is None:
        texts = [" ".join(part.text or "" for part in each.content) for each in body.inputs or ()]
    if not texts:
        raise RequestError(
            400, "texts is missing.", "Send texts, or inputs.", code="empty_input", param="texts"
        )
    return texts


def shown_type(kind: str | None) -> str:
    """The kind of an input that is not a text."""
    return "images" if kind is None else f"an input of the type {kind[:40]!r}"


def binary_rows(vectors: NDArray[np.float32], offset: int) -> Iterable[bytes]:
    """The signs of each vector, eight in a byte, as a JSON array of whole numbers."""
    for row in np.packbits(vectors > 0, axis=1):
        yield orjson.dumps((row.astype(np.int16) - offset).tolist())


FORMS: dict[str, Callable[[NDArray[np.float32]], Iterable[bytes]]] = {
    "float": number_rows,
    "base64": base64_rows,
    "ubinary": lambda vectors: binary_rows(vectors, 0),
    "binary": lambda vectors: binary_rows(vectors, 128),
}


def meta(version: str, num_tokens: int, **units: int) -> dict[str, Any]:
    """What Cohere's clients count."""
    billed = {"input_tokens": num_tokens, **units}
    return {"api_version": {"version": version}, "billed_units": billed}
