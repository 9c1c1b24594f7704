"""How the server is, for whatever starts, stops, balances and watches servers."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter, Request, Response
from fastapi.responses import PlainTextResponse
from prometheus_client import CONTENT_TYPE_LATEST

from polyrank.serving.dependencies import RuntimeOf
from polyrank.serving.failures import ErrorBody, RequestError, documented

router = APIRouter(tags=["Operations"], responses=documented(ErrorBody, 400, 500))
STORE_SECONDS = 2.0
"""How long the store may take to answer."""


@router.get("/health")
async def health() -> dict[str, str]:
    """Say that the process is alive."""
    return {"status": "ok"}


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
            await asyncio.wait_for(asyncio.to_thread(len, index), STORE_SECONDS)
        except Exception as error:
            raise not_ready(
                "The store of the index does not answer.",
                "Look at the store; the log has more.",
                "store_down",
            ) from error
    return {"status": "ready"}


@router.get("/metrics", response_class=PlainTextResponse, responses=documented(ErrorBody, 401))
async def metrics(request: Request) -> Response:
    """Tell Prometheus how many requests there were and where their time went."""
    text = await request.app.state.scrape()
    return Response(text, media_type=CONTENT_TYPE_LATEST)


def not_ready(problem: str, remedy: str, code: str) -> RequestError:
    """The error for a server that should get no requests."""
    return RequestError(503, problem, remedy, code=code, retry_after=1)
