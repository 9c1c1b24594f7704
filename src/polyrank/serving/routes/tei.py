"""What the clients of text-embeddings-inference call, whose errors have a shape of their own.

`/rerank` belongs to the clients of Cohere and Jina, too: `texts` in the body means
text-embeddings-inference, `documents` means them.
"""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import numpy as np
import orjson
from fastapi import APIRouter, Query, Response
from pydantic import Discriminator, Tag

from polyrank._version import __version__
from polyrank.serving.adjusting import cut_to, has_unit_length, unit_length
from polyrank.serving.bodies import JsonRoute, array, number_rows, written, written_apart
from polyrank.serving.computation import Side
from polyrank.serving.dependencies import FlowOf, RuntimeOf
from polyrank.serving.failures import TEI_ERRORS, ErrorBody, TeiErrorBody, documented
from polyrank.serving.pipeline import FOR_EMBEDDINGS, Served
from polyrank.serving.relevance import best_first, cosines, relevance
from polyrank.serving.routes.cohere import reranked
from polyrank.serving.runtime import Runtime
from polyrank.serving.scheduling.flow import Flow
from polyrank.serving.schemas.base import require_items
from polyrank.serving.schemas.cohere import RerankAnswer, RerankRequest
from polyrank.serving.schemas.tei import (
    Info,
    Prompt,
    Rank,
    SimilarityRequest,
    TeiEmbedRequest,
    TeiRerankRequest,
)
from polyrank.serving.selection import model_for_embeddings, model_for_ranking

router = APIRouter(tags=["text-embeddings-inference"], route_class=JsonRoute, responses=TEI_ERRORS)


def rerank_kind(body: Any) -> str:
    """Whose rerank call a body is."""
    is_tei = isinstance(body, dict) and "texts" in body and "documents" not in body
    return "tei" if is_tei else "cohere"


def root_kind(body: Any) -> str:
    """Which of the calls to `/` a body is."""
    return "rerank" if isinstance(body, dict) and "texts" in body else "embed"


AnyRerank = Annotated[
    Annotated[TeiRerankRequest, Tag("tei")] | Annotated[RerankRequest, Tag("cohere")],
    Discriminator(rerank_kind),
]
EmbedOrRerank = Annotated[
    Annotated[TeiEmbedRequest, Tag("embed")] | Annotated[TeiRerankRequest, Tag("rerank")],
    Discriminator(root_kind),
]
PromptName = Annotated[
    Prompt | None, Query(description="The same as in the body, for clients that cannot set that.")
]


@router.post("/embed", response_model=list[list[float]])
async def embed(
    body: TeiEmbedRequest, runtime: RuntimeOf, flow: FlowOf, prompt_name: PromptName = None
) -> Response:
    """Embed texts with a bi- or poly-encoder, as documents by default."""
    texts = [body.inputs] if isinstance(body.inputs, str) else body.inputs
    require_items("inputs", len(texts), runtime.config.max_items)
    side: Side = "context" if (body.prompt_name or prompt_name) == "query" else "candidate"
    served = model_for_embeddings(runtime.pipeline, body.model, side)
    embedded = await runtime.embed(served, texts, side, flow)
    vectors = cut_to(served, embedded.vectors, body.dimensions)
    if body.normalize is not False and not has_unit_length(served):
        vectors = unit_length(vectors)
    return await written_apart(lambda: orjson.dumps(array(number_rows(vectors))), vectors.size)


@router.post("/", response_model=list[list[float]] | list[Rank])
async def embed_or_rerank(
    body: EmbedOrRerank, runtime: RuntimeOf, flow: FlowOf, prompt_name: PromptName = None
) -> Response:
    """Do what `/embed` does with `inputs`, and what `/rerank` does with `texts`.

    Clients of Hugging Face's inference API post to the address itself.
    """
    if isinstance(body, TeiEmbedRequest):
        return await embed(body, runtime, flow, prompt_name)
    return await ranked(body, runtime, flow)


@router.post(
    "/rerank",
    response_model=list[Rank] | RerankAnswer,
    responses=documented(ErrorBody | TeiErrorBody, *TEI_ERRORS),
)
async def rerank(body: AnyRerank, runtime: RuntimeOf, flow: FlowOf) -> Response:
    """Order texts by their relevance to a query, by a model of any architecture.

    With `texts`, request, answer and errors are those of text-embeddings-inference; with
    `documents`, those of `/v1/rerank`.
    """
    if isinstance(body, TeiRerankRequest):
        return await ranked(body, runtime, flow)
    return await reranked(body, runtime, flow, "1")


async def ranked(body: TeiRerankRequest, runtime: Runtime, flow: Flow) -> Response:
    """Answer the rerank call of text-embeddings-inference."""
    require_items("texts", len(body.texts), runtime.config.max_items)
    served = model_for_ranking(runtime.pipeline, body.model)
    scored = await runtime.score(served, body.query, body.texts, flow)
    values = np.asarray(scored.scores) if body.raw_scores else relevance(served, scored.scores)
    results: list[dict[str, Any]] = [
        {"index": place, "score": float(values[place])}
        for place in best_first(scored.scores, body.top_n)
    ]
    if body.return_text:
        for result in results:
            result["text"] = body.texts[result["index"]]
    return written(results)


@router.post("/similarity", response_model=list[float])
async def similarity(body: SimilarityRequest, runtime: RuntimeOf, flow: FlowOf) -> Response:
    """Compare a text, as a query, with others, as documents: their cosines, from -1 to 1.

    A poly-encoder gives an average of cosines, and a model of inner products gives those.
    """
    sentences = body.inputs.sentences
    require_items("inputs.sentences", len(sentences), runtime.config.max_items)
    served = model_for_embeddings(runtime.pipeline, body.model, "candidate")
    scored = await runtime.score(served, body.inputs.source_sentence, sentences, flow)
    return written(cosines(served, scored.scores))


@router.get("/info", response_model=Info)
async def info(runtime: RuntimeOf) -> Response:
    """Describe the first model that embeds, or else the first that ranks, and the limits."""
    pipeline, config = runtime.pipeline, runtime.config
    served = pipeline.first(FOR_EMBEDDINGS) or model_for_ranking(pipeline, None)
    model: Any = served.model
    return written(
        {
            "model_id": served.name,
            "model_sha": await asyncio.to_thread(model.fingerprint),
            "model_dtype": str(model.compute_dtype).removeprefix("torch."),
            "model_type": kind_of(served),
            "max_concurrent_requests": config.max_items,
            "max_input_length": model.config.max_candidate_length,
            "max_batch_tokens": model.batch_tokens,
            "max_batch_requests": None,
            "max_client_batch_size": config.max_items,
            "auto_truncate": True,
            "tokenization_workers": 1,
            "version": __version__,
            "sha": None,
            "docker_label": None,
        }
    )


def kind_of(served: Served) -> dict[str, Any]:
    """What text-embeddings-inference says of a model's kind."""
    if served.architecture == "cross":
        return {"reranker": {"id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0}}}
    config: Any = served.model.config
    return {"embedding": {"pooling": config.candidate_reduction or config.reduction}}
