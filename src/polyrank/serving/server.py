"""The process that listens: binds, loads what is served, answers, and ends without losing any."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from polyrank.errors import MissingExtraError
from polyrank.serving.config import PipelineConfig, ServerConfig

if TYPE_CHECKING:
    import socket

    from fastapi import FastAPI

    from polyrank.serving.draining import Gate

Tell = Callable[[Mapping[str, Any]], None]
"""Hears what is served, once it is."""


@dataclass(frozen=True, kw_only=True)
class Service:
    """What a process of the server needs to know; it can be sent to another process."""

    pipeline: PipelineConfig
    config: ServerConfig
    loading: Mapping[str, Any]
    """The options of `load_model`."""


ENVIRONMENT = {
    "OMP_WAIT_POLICY": "passive",
    "GOMP_SPINCOUNT": "10000",
    "LRU_CACHE_CAPACITY": "16",
    "ONEDNN_PRIMITIVE_CACHE_CAPACITY": "64",
}
"""What torch's libraries read when they are loaded, unless it is set already. The first two free
the cores between batches, but not between the operations of one, which are microseconds apart. The
others bound what oneDNN and torch's layer above it keep for every number of tokens that a batch has
had: by default, the memory grows for hours."""


def serve(
    pipeline: PipelineConfig,
    config: ServerConfig,
    loading: Mapping[str, Any],
    *,
    tell: Tell,
) -> None:
    """Serve until a signal ends the process.

    Args:
        pipeline: What is served.
        config: Where the server listens, and its limits.
        loading: The options of `load_model`.
        tell: Hears what is served, once it is.

    Raises:
        MissingExtraError: The extra `serve` is not installed.
        InputError: The address, a key, a model or the index cannot be used.
        KeyboardInterrupt: Ctrl-C ended it, after everything accepted was answered.
    """
    require_extra()
    from polyrank.serving.access import Keys, is_local
    from polyrank.serving.listening import bind, url_of
    from polyrank.serving.logs import LOG, configure
    from polyrank.serving.naming import require_served

    require_served(pipeline)
    keys = Keys(config)
    configure(config.log_format)
    listening = bind(config.host, config.port)
    if not keys and not is_local(listening.getsockname()[0]):
        LOG.warning(
            "everyone who reaches %s can use this server: set keys with --api-key-file or "
            "POLYRANK_API_KEYS",
            url_of(listening),
        )
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    LOG.info("listening, and loading", extra={"fields": {"url": url_of(listening)}})
    service = Service(pipeline=pipeline, config=config, loading=loading)
    if config.workers == 1:
        ended_by = run(service, listening, tell)
    else:
        from polyrank.serving.workers import supervise

        ended_by = supervise(service, listening, tell)
    if ended_by == signal.SIGINT:
        raise KeyboardInterrupt


def require_extra() -> None:
    """Raise MissingExtraError unless the packages of the extra `serve` are installed."""
    try:
        import fastapi  # noqa: F401
        import fastapi_offline  # noqa: F401
        import httptools  # noqa: F401
        import orjson  # noqa: F401
        import prometheus_client  # noqa: F401
        import uvicorn  # noqa: F401
    except ModuleNotFoundError as error:
        raise MissingExtraError("fastapi", "serve", "Serving") from error


def run(
    service: Service,
    listening: socket.socket,
    tell: Tell,
    *,
    prepare: Callable[[FastAPI], None] = lambda app: None,
    gate: Gate | None = None,
) -> int | None:
    """Serve on a socket, in this process.

    Args:
        service: What is served, and how.
        listening: The socket; it is closed at the end.
        tell: Hears what is served, once it is.
        prepare: Called with the app before that.
        gate: Says whether this process takes the next connection.

    Returns:
        The first signal that came.

    Raises:
        InputError: What is served cannot be loaded.
    """
    from polyrank.serving.draining import DrainingServer
    from polyrank.serving.listening import url_of
    from polyrank.serving.loading import Loading

    config, url = service.config, url_of(listening)

    def make() -> FastAPI:
        from polyrank.serving.app import create_app
        from polyrank.serving.pipeline import load_pipeline

        return create_app(load_pipeline(service.pipeline, **service.loading), config)

    def loaded(app: FastAPI) -> None:
        prepare(app)
        tell(facts(app, config, url))

    def drain() -> None:
        app.drain()
        if app.app is None:
            server.drain_seconds = 0

    def reload() -> None:
        if app.app is not None:
            from polyrank.serving.app import reload_app

            task = asyncio.get_running_loop().create_task(reload_app(app.app))
            reloading.add(task)
            task.add_done_callback(reloading.discard)

    def stop() -> None:
        server.drain_seconds = 0
        server.should_exit = True

    reloading: set[asyncio.Task[None]] = set()
    app = Loading(make, loaded=loaded, timeout=config.timeout)
    app.stop = stop
    server = DrainingServer(
        app,
        listening,
        drain_seconds=config.drain_seconds,
        timeout=config.timeout,
        on_drain=drain,
        on_reload=reload,
        gate=gate,
    )
    server.run()
    if app.failure is not None:
        raise app.failure
    return server.signals[0] if server.signals else None


def facts(app: FastAPI, config: ServerConfig, url: str) -> dict[str, Any]:
    """What is served, where and to whom, for people and programs."""
    pipeline = app.state.runtime.pipeline
    index = pipeline.index
    return {
        "url": url,
        "models": [
            {
                "name": served.name,
                "architecture": served.architecture,
                "device": str(served.model.device),
                "dtype": str(served.model.compute_dtype).removeprefix("torch."),
            }
            for served in pipeline.models.values()
        ],
        "index": None
        if index is None
        else {
            "path": str(index.path),
            "model": pipeline.index_model.name,
            "num_candidates": len(index),
        },
        "reranker": None if pipeline.reranker is None else pipeline.reranker.name,
        "needs_key": bool(app.state.keys),
        "workers": config.workers,
        "pid": os.getpid(),
    }
