"""The app: routes, middleware and errors around one runtime. Everything it has hangs on it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

from fastapi import FastAPI
from fastapi_offline import FastAPIOffline
from starlette.middleware.cors import CORSMiddleware
from starlette.types import Scope

from polyrank._version import __version__
from polyrank.errors import PolyrankError
from polyrank.serving.access import Hosts, Keys
from polyrank.serving.config import ServerConfig
from polyrank.serving.handlers import install_errors
from polyrank.serving.logs import LOG, log_failure, log_request
from polyrank.serving.metrics import Metrics
from polyrank.serving.middleware import Admit, Observe
from polyrank.serving.openapi import document
from polyrank.serving.pipeline import Pipeline
from polyrank.serving.routes import cohere, health, native, openai, page, tei, vllm
from polyrank.serving.runtime import Runtime
from polyrank.serving.scheduling.flow import Flow

NO_TELEMETRY = dict.fromkeys(("tracing", "metrics", "logs", "auto_configure"), False)
"""FastAPI would tell OpenTelemetry of requests wherever its SDK is set up."""
UNMATCHED = "unmatched"
"""What log and metrics call every path that is not a route."""


def create_app(pipeline: Pipeline, config: ServerConfig | None = None) -> FastAPI:
    """An ASGI app that serves a pipeline.

    Args:
        pipeline: The models, the index and the reranker to serve.
        config: The limits and the keys; by default those of `ServerConfig`.

    Returns:
        The app. Two apps in one process share nothing.

    Raises:
        UsageError: A key cannot be used, or the file of keys or the comparison cannot be read.
    """
    settings = config or ServerConfig()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        app.state.runtime = Runtime(pipeline, settings, app.state.metrics)
        app.state.metrics.watch(app.state.runtime)
        await app.state.runtime.start()
        await asyncio.to_thread(app.openapi)  # which errors of unknown paths read
        yield
        await asyncio.to_thread(app.state.runtime.close)

    app: FastAPI = FastAPIOffline(
        title="polyrank",
        version=__version__,
        lifespan=lifespan,
        redoc_url=None,
        static_url="/docs/static",
        telemetry=NO_TELEMETRY,
    )
    app.state.config = settings
    app.state.keys = Keys(settings)
    app.state.draining = False
    app.state.on_reload = lambda: None
    app.state.metrics = Metrics()
    app.state.scrape = partial(asyncio.to_thread, app.state.metrics.text)
    add_middleware(app, settings)
    install_errors(app)
    document(app, lambda: bool(app.state.keys))
    for routes in (page, openai, cohere, tei, vllm, native, health):
        app.include_router(routes.router)
    app.state.comparison = page.read_comparison(settings.comparison)
    return app


def add_middleware(app: FastAPI, settings: ServerConfig) -> None:
    """Put around the routes what every request passes; what is added last is outermost."""

    def finished(
        scope: Scope, flow: Flow, status: int, seconds: float, failure: Exception | None
    ) -> None:
        route = getattr(scope.get("route"), "path", UNMATCHED)
        if failure is not None:
            log_failure(f"request {flow.request_id}", failure)
        log_request(scope["method"], route, status, seconds, flow)
        app.state.metrics.request(route, scope["method"], status, seconds, flow)

    keys = app.state.keys
    hosts = Hosts(settings, keys)
    app.add_middleware(Admit, keys=keys, hosts=hosts, max_body_mb=settings.max_body_mb)
    if settings.allow_origin:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=settings.allow_origin,
            allow_methods=["GET", "POST", "PUT", "DELETE"],
            allow_headers=["*"],
            expose_headers=["*"],
        )
    app.add_middleware(
        Observe,
        timeout=settings.timeout,
        finished=finished,
        is_draining=lambda: bool(app.state.draining),
    )


async def reload_app(app: FastAPI) -> None:
    """Read keys, models and index again, as after SIGHUP; what cannot be read stays."""
    try:
        app.state.keys.reload()
    except PolyrankError as error:
        LOG.error("the keys stay as they are: %s", error)
    try:
        await app.state.runtime.reload()
    except PolyrankError as error:
        LOG.error("the models and the index stay as they are: %s", error)
    else:
        LOG.info("reloaded")
