"""What /openapi.json says beyond what FastAPI finds in the routes: keys, headers, errors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from polyrank.serving.access import OPEN

ABOUT = """\
Bi-, poly- and cross-encoders behind the calls that clients already make: OpenAI's embeddings,
Cohere's and Jina's rerank and embed, text-embeddings-inference, vLLM's score, and polyrank's own
search.

The calls of other services ignore unknown fields, as those services do; polyrank's own refuse them.
A field of the wrong type is an error that names it.
Relevance is from 0 to 1: the sigmoid of a cross-encoder's logit, or (1 + cosine) / 2. Texts that
are longer than a model reads are cut.

The header `x-request-timeout-ms` of a request shortens the time that it may take. Every answer has
the headers `x-request-id`, `x-total-time`, `x-queue-time`, `x-tokenization-time`,
`x-inference-time` and `x-search-time`, in milliseconds.
"""
TAGS = (
    "polyrank",
    "OpenAI",
    "Cohere and Jina",
    "text-embeddings-inference",
    "vLLM",
    "Operations",
    "Page",
)
"""The groups of calls, in the order in which /docs shows them."""
OWN_TITLES = ("HTTPValidationError", "ValidationError")
"""FastAPI's bodies of errors, which are never sent."""


def document(app: FastAPI, needs_key: Callable[[], bool]) -> None:
    """Complete the schema of an app.

    Args:
        app: The app, before or after its routes are added.
        needs_key: Whether requests need a key.
    """

    def schema() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = completed(app)
        bearer: dict[str, list[str]] = {"bearer": []}
        app.openapi_schema["security"] = [bearer] if needs_key() else [{}, bearer]
        return app.openapi_schema

    app.openapi = schema  # type: ignore[method-assign]


def completed(app: FastAPI) -> dict[str, Any]:
    """The schema that FastAPI makes, with the scheme of keys, and only errors that are sent."""
    made = get_openapi(title=app.title, version=app.version, description=ABOUT, routes=app.routes)
    made["tags"] = [{"name": name} for name in TAGS]
    components = made.setdefault("components", {})
    for title in OWN_TITLES:
        components.get("schemas", {}).pop(title, None)
    components["securitySchemes"] = {
        "bearer": {
            "type": "http",
            "scheme": "bearer",
            "description": "One of the keys that the server was started with, if it was.",
        }
    }
    for path, method, operation in operations(made):
        responses = operation["responses"]
        unsent = responses.get("422", {}).get("content", {}).get("application/json", {})
        if unsent.get("schema", {}).get("$ref", "").endswith(OWN_TITLES):
            del responses["422"]
        if "requestBody" not in operation:
            responses.pop("415", None)
        if path in OPEN and method == "get":
            operation["security"] = []
    return made


def operations(schema: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Path, method and description of each call."""
    for path, methods in schema["paths"].items():
        for method, operation in methods.items():
            yield path, method, operation
