"""The HTTP server: a team's models and index behind a port, by the calls that clients know.

Its names are loaded when first used, since they need the extra `serve`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from polyrank.serving.app import create_app
    from polyrank.serving.config import ServerConfig
    from polyrank.serving.pipeline import Pipeline

__all__ = ["Pipeline", "ServerConfig", "create_app"]

_HOMES = {"Pipeline": "pipeline", "ServerConfig": "config", "create_app": "app"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'polyrank.serving' has no attribute {name!r}")
    return getattr(importlib.import_module(f"polyrank.serving.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
