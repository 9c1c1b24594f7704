"""How the server is, for whatever starts, stops, balances and watches servers."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.responses import PlainTextResponse
from prometheus_client import CONTENT_TYPE_LATEST

from polyrank.retrieval.index import Index
from polyrank.serving.dependencies import RuntimeOf
from polyrank.serving.failures import ErrorBody, RequestError, documented
from polyrank.serving.logs import log_failure

router = APIRouter(tags=["Operations"], responses=documented(ErrorBody, 400, 500))
STORE_SECONDS = 2.0
"""How long the store may take to answer."""


@router.head("/health", include_in_schema=False)
@router.get("/health")
async def health() -> dict[str, str]:
    """Say that the process is alive."""
    return {"status": "ok"}


@router.head("/ready", include_in_schema=False)
@router.get("/ready", responses=documented(ErrorBody, 503))
async def ready(request: Request, runtime: RuntimeOf) -> dict[str, str]:
    """Say whether requests should be sent here; 503 with the reason where not."""
    if request.app.state.draining:
        raise not_ready("The server is about to stop.", "Send requests elsewhere.", "draining")
    if not runtime.scheduler.is_alive:
        raise not_ready("The models cannot compute any more.", "Start the server anew.", "stopped")
    index = runtime.pipeline.index
    if index is not None:
        try:
            await asyncio.wait_for(asyncio.shield(probe(request.app, index)), STORE_SECONDS)
        except Exception as error:
            log_failure("the store of the index", error)
            raise not_ready(
                "The store of the index does not answer.",
                "Look at the store; the log has more.",
                "store_down",
            ) from error
    return {"status": "ready"}


def probe(app: FastAPI, index: Index) -> asyncio.Future[int]:
    """A question to the store; the last one, if that still waits for its answer."""
    last: asyncio.Future[int] | None = getattr(app.state, "probe", None)
    if last is None or last.done():
        app.state.probe = last = asyncio.ensure_future(asyncio.to_thread(len, index))
        last.add_done_callback(lambda done: done.cancelled() or done.exception())
    return last


@router.get("/metrics", response_class=PlainTextResponse, responses=documented(ErrorBody, 401))
async def metrics(request: Request) -> Response:
    """Tell Prometheus how many requests there were and where their time went."""
    text = await request.app.state.scrape()
    return Response(text, media_type=CONTENT_TYPE_LATEST)


def not_ready(problem: str, remedy: str, code: str) -> RequestError:
    """The error for a server that should get no requests."""
    return RequestError(503, problem, remedy, code=code, retry_after=1)
