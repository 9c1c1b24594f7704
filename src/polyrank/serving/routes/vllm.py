"""What vLLM's users call for the scores of pairs."""

from __future__ import annotations

import time
import uuid

import numpy as np
from fastapi import APIRouter, Response

from polyrank.serving.bodies import JsonRoute, written
from polyrank.serving.dependencies import FlowOf, RuntimeOf
from polyrank.serving.failures import ERRORS, RequestError
from polyrank.serving.relevance import relevance
from polyrank.serving.schemas.base import require_items, usage
from polyrank.serving.schemas.vllm import ScoreAnswer, ScoreRequest
from polyrank.serving.selection import model_for_ranking

router = APIRouter(tags=["vLLM"], route_class=JsonRoute, responses=ERRORS)

FIRST = ("text_1", "queries", "data_1")
SECOND = ("text_2", "documents", "items", "data_2")
"""What either side of the pairs is called."""


@router.post("/v1/score", response_model=ScoreAnswer)
@router.post("/score", response_model=ScoreAnswer)
async def score(body: ScoreRequest, runtime: RuntimeOf, flow: FlowOf) -> Response:
    """Score one text with each of many, or two lists of equal length pair by pair."""
    first_name, first = texts_of(body, FIRST)
    second_name, second = texts_of(body, SECOND)
    require_items(second_name, len(second), runtime.config.max_items)
    if len(first) not in (1, len(second)):
        raise RequestError(
            400,
            f"{first_name} has {len(first)} texts and {second_name} has {len(second)}.",
            f"Send one text as {first_name}, or as many as in {second_name}.",
            code="invalid_value",
            param=second_name,
        )
    served = model_for_ranking(runtime.pipeline, body.model)
    if len(first) == 1:
        scored = await runtime.score(served, first[0], second, flow)
    else:
        scored = await runtime.score_pairs(served, list(zip(first, second, strict=True)), flow)
    is_raw = body.raw_scores or body.use_activation is False
    values = np.asarray(scored.scores) if is_raw else relevance(served, scored.scores)
    return written(
        {
            "id": f"score-{uuid.uuid4().hex}",
            "object": "list",
            "created": int(time.time()),
            "model": served.name,
            "data": [
                {"index": place, "object": "score", "score": value}
                for place, value in enumerate(values.tolist())
            ],
            "usage": usage(scored.num_tokens),
        }
    )


def texts_of(body: ScoreRequest, names: tuple[str, ...]) -> tuple[str, list[str]]:
    """What one side of the pairs is called, and its texts. Raises RequestError for none or two."""
    given = [name for name in names if getattr(body, name) is not None]
    if len(given) != 1:
        has = f"{' and '.join(given)} are the same" if given else f"{names[0]} is missing"
        raise RequestError(
            400, f"{has}.", f"Send {names[0]}.", code="invalid_value", param=names[0]
        )
    value = getattr(body, given[0])
    texts = [value] if isinstance(value, str) else value
    return given[0], texts
