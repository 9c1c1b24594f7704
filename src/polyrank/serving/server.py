"""The process that listens: loads what is served and runs uvicorn."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from polyrank.errors import MissingExtraError
from polyrank.serving.config import PipelineConfig, ServerConfig


def serve(pipeline: PipelineConfig, config: ServerConfig, loading: Mapping[str, Any]) -> None:
    """Serve until a signal ends the process.

    Args:
        pipeline: What is served.
        config: Where the server listens, and its limits.
        loading: The options of `load_model`.

    Raises:
        MissingExtraError: The extra `serve` is not installed.
        InputError: A model or the index cannot be loaded.
    """
    try:
        import uvicorn

        from polyrank.serving.app import create_app
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "polyrank":
            raise
        raise MissingExtraError("fastapi", "serve", "Serving") from error
    from polyrank.serving.pipeline import load_pipeline

    app = create_app(load_pipeline(pipeline, **loading), config)
    uvicorn.run(app, host=config.host, port=config.port, access_log=False)
