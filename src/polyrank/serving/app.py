"""The app: routes, middleware and errors around one runtime. Everything it has hangs on it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from fastapi import FastAPI, Request
from fastapi.responses import Response

from polyrank._version import __version__
from polyrank.serving.config import ServerConfig
from polyrank.serving.handlers import install_errors
from polyrank.serving.pipeline import Pipeline
from polyrank.serving.routes import openai
from polyrank.serving.runtime import Runtime
from polyrank.serving.scheduling.flow import Flow


def create_app(pipeline: Pipeline, config: ServerConfig | None = None) -> FastAPI:
    """An ASGI app that serves a pipeline.

    Args:
        pipeline: The models, the index and the reranker to serve.
        config: The limits and the keys; by default those of `ServerConfig`.

    Returns:
        The app. Two apps in one process share nothing.
    """
    settings = config or ServerConfig()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        app.state.runtime = Runtime(pipeline, settings)
        yield
        await asyncio.to_thread(app.state.runtime.close)

    app = FastAPI(title="polyrank", version=__version__, lifespan=lifespan)

    @app.middleware("http")
    async def with_flow(
        request: Request, call: Callable[[Request], Awaitable[Response]]
    ) -> Response:
        request.state.flow = Flow.lasting(settings.timeout)
        return await call(request)

    install_errors(app)
    app.include_router(openai.router)
    return app
