"""polyrank's own calls: search an index, change it, load everything anew."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from fastapi import APIRouter, Request, Response

from polyrank.data.metadata import as_metadata
from polyrank.errors import DataError, PolyrankError, UsageError
from polyrank.records import Candidate
from polyrank.retrieval.engine import Found
from polyrank.serving.bodies import JsonRoute, written
from polyrank.serving.dependencies import FlowOf, RuntimeOf
from polyrank.serving.failures import ERRORS, ErrorBody, RequestError
from polyrank.serving.live_index import LiveIndex, wrong_filter
from polyrank.serving.logs import LOG
from polyrank.serving.pipeline import Served
from polyrank.serving.runtime import Runtime
from polyrank.serving.schemas.base import require_items
from polyrank.serving.schemas.native import (
    CandidateAnswer,
    DeleteAnswer,
    DeleteRequest,
    GivenCandidate,
    ReloadAnswer,
    SearchAnswer,
    SearchRequest,
    UpsertAnswer,
    UpsertRequest,
)

MANY_HITS = 200
"""Answers of more hits are written in a thread, so that the event loop is free."""

router = APIRouter(tags=["polyrank"], route_class=JsonRoute, responses=ERRORS)
FORBIDDEN: dict[int | str, dict[str, Any]] = {
    403: {"model": ErrorBody, "description": "The index of this server cannot be changed."}
}


@router.post("/search", response_model=SearchAnswer)
async def search(body: SearchRequest, runtime: RuntimeOf, flow: FlowOf) -> Response:
    """Find the best candidates of the index for one context or several."""
    live = require_index(runtime)
    contexts = body.listed
    reranker = reranker_for(runtime, body)
    looked_at = body.top_k if reranker is None else max(body.top_k, body.num_candidates)
    require_items("contexts", len(contexts), runtime.config.max_items)
    require_items("contexts × hits", len(contexts) * looked_at, 10 * runtime.config.max_items)
    try:
        found = await runtime.search(
            contexts,
            flow,
            top_k=body.top_k,
            exact=body.exact,
            filter=body.filter,
            reranker=reranker,
            num_candidates=body.num_candidates,
        )
    except UsageError as error:
        raise wrong_filter(error) from error

    def answer() -> dict[str, Any]:
        return {
            "results": list(map(result, found)),
            "model": live.served.name,
            "reranker": None if reranker is None else reranker.name,
            "times": {name: round(1000 * value, 3) for name, value in asdict(flow.times).items()},
        }

    if sum(len(each.hits) for each in found) > MANY_HITS:
        return await asyncio.to_thread(lambda: written(answer()))
    return written(answer())


def result(found: Found) -> dict[str, Any]:
    """What was found for one context, as it is answered."""
    return {
        "hits": [
            {"id": hit.id, "score": hit.score, "text": hit.text, "metadata": dict(metadata)}
            for hit, metadata in zip(found.hits, found.metadata, strict=True)
        ],
        "report": {**asdict(found.report), "num_reranked": found.num_reranked},
    }


@router.put("/candidates", response_model=UpsertAnswer, responses=FORBIDDEN)
async def upsert(body: UpsertRequest, runtime: RuntimeOf, flow: FlowOf) -> Response:
    """Add candidates to the index, or replace those with the same ids.

    All or none are there at once. The answer comes when they are on disk, and searches that begin
    later see them.
    """
    require_changeable(runtime)
    require_items("candidates", len(body.candidates), runtime.config.max_items)
    candidates = checked(body.candidates)
    changed = await runtime.upsert(candidates, flow)
    return written({"upserted": changed.count, "total": changed.total})


@router.post("/candidates/delete", response_model=DeleteAnswer, responses=FORBIDDEN)
async def delete(body: DeleteRequest, runtime: RuntimeOf, flow: FlowOf) -> Response:
    """Delete candidates by id; ids that no candidate has are listed as missing.

    The answer comes when the deletion is on disk.
    """
    require_changeable(runtime)
    require_items("ids", len(body.ids), runtime.config.max_items)
    changed = await runtime.delete(body.ids, flow)
    missing = [name for name in dict.fromkeys(body.ids) if name in changed.missing]
    return written({"deleted": changed.count, "missing": missing, "total": changed.total})


@router.get("/candidates/{identifier:path}", response_model=CandidateAnswer)
async def candidate(identifier: str, runtime: RuntimeOf, flow: FlowOf) -> Response:
    """Give the candidate with this id."""
    require_index(runtime)
    found = await runtime.candidate(identifier, flow)
    if found is None:
        raise no_candidate(identifier)
    return written({"id": found.id, "text": found.text, "metadata": dict(found.metadata)})


@router.delete("/candidates/{identifier:path}", response_model=DeleteAnswer, responses=FORBIDDEN)
async def delete_one(identifier: str, runtime: RuntimeOf, flow: FlowOf) -> Response:
    """Delete the candidate with this id."""
    require_changeable(runtime)
    changed = await runtime.delete([identifier], flow)
    if not changed.count:
        raise no_candidate(identifier)
    return written({"deleted": 1, "missing": [], "total": changed.total})


@router.post("/reload", response_model=ReloadAnswer)
async def reload(request: Request, runtime: RuntimeOf) -> Response:
    """Load the models and open the index anew.

    Requests that have begun end with what they began with. If something cannot be loaded, what was
    served before stays. The other processes of a server that has several follow.
    """
    try:
        pipeline = await runtime.reload()
    except RequestError:
        raise
    except PolyrankError as error:
        LOG.error("the reload failed: %s", error)
        raise RequestError(
            503,
            "The reload failed, so what was served before is still served.",
            "The server's log says what could not be loaded.",
            code="reload_failed",
        ) from error
    request.app.state.on_reload()
    total = None if pipeline.index is None else await asyncio.to_thread(len, pipeline.index)
    return written({"models": list(pipeline.models), "total": total})


def require_index(runtime: Runtime) -> LiveIndex:
    """The index that is served. Raises RequestError if there is none."""
    if runtime.live is None:
        raise RequestError(
            404,
            "This server has no index.",
            "Start it with --index; /v1/rerank ranks documents that a request brings.",
            code="no_index",
        )
    return runtime.live


def require_changeable(runtime: Runtime) -> None:
    """Raise RequestError if there is no index, or it must not be changed."""
    require_index(runtime)
    if runtime.config.read_only:
        raise RequestError(
            403,
            "The index of this server cannot be changed: it was started with --read-only.",
            "Send changes to the server that takes them.",
            code="read_only",
        )


def reranker_for(runtime: Runtime, body: SearchRequest) -> Served | None:
    """The reranker of a search, if it is to rerank. Raises RequestError if there is none."""
    reranker = runtime.pipeline.reranker
    if body.rerank and reranker is None:
        raise RequestError(
            400,
            "rerank is true, and this server has no reranker.",
            "Start it with --reranker, or leave rerank out.",
            code="no_reranker",
            param="rerank",
        )
    return None if body.rerank is False else reranker


def checked(given: Sequence[GivenCandidate]) -> list[Candidate]:
    """The candidates of a request. Raises RequestError for metadata or ids that cannot be used."""
    places: dict[str, int] = {}
    candidates = []
    for place, each in enumerate(given):
        name = f"candidates[{place}]"

        def blame(problem: str, remedy: str, name: str = name) -> DataError:
            return DataError(f"{name}: {problem}", remedy)

        if each.id in places:
            raise RequestError(
                400,
                f"{name} has the id of candidates[{places[each.id]}].",
                "Give every candidate an id of its own.",
                param="candidates",
            )
        places[each.id] = place
        candidates.append(Candidate(each.id, each.text, as_metadata(each.metadata, blame)))
    return candidates


def no_candidate(identifier: str) -> RequestError:
    """The error for an id that no candidate has."""
    return RequestError(
        404,
        f"The index has no candidate {identifier[:80]!r}.",
        "Check the id.",
        code="candidate_not_found",
        param="id",
    )
