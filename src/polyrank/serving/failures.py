"""Requests that fail: one error, and the bodies that clients read. Knows nothing of models.

The clients of OpenAI read `error`, those of Cohere `message`, those of Jina `detail`: all three are
in one body. The routes of text-embeddings-inference have a body of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson
from fastapi import Response
from pydantic import BaseModel, Field

from polyrank.errors import (
    DataError,
    MissingExtraError,
    PolyrankError,
    StorageError,
    UsageError,
)

TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    405: "invalid_request_error",
    408: "timeout_error",
    413: "request_too_large",
    415: "invalid_request_error",
    422: "invalid_request_error",
    429: "rate_limit_error",
    500: "internal_error",
    501: "not_implemented_error",
    503: "unavailable_error",
    504: "timeout_error",
}

TEI_PATHS = frozenset({"/", "/embed", "/similarity", "/info"})
TEI_TYPES = {
    400: "Empty",
    401: "Unauthorized",
    403: "Unauthorized",
    404: "NotFound",
    405: "Validation",
    408: "Timeout",
    413: "Validation",
    415: "Validation",
    422: "Validation",
    429: "Overloaded",
    503: "Unhealthy",
    504: "Timeout",
}
"""What text-embeddings-inference calls each; other failures are `Backend`."""

STORE_RETRY = 5
"""Seconds after which a request may be tried again whose store did not answer."""


class RequestError(PolyrankError):
    """A request that is answered with an error: its status, and what the body says."""

    def __init__(
        self,
        status: int,
        problem: str,
        remedy: str,
        *,
        code: str | None = None,
        param: str | None = None,
        retry_after: int | None = None,
    ) -> None:
        """Say what is wrong with the request.

        Args:
            status: The status of the answer.
            problem: What failed, with what was expected and got.
            remedy: What to do next.
            code: A word for programs, such as `model_not_found`.
            param: The field of the body that is wrong.
            retry_after: Seconds after which it may be tried again.
        """
        super().__init__(problem, remedy)
        self.status = status
        self.code = code
        self.param = param
        self.retry_after = retry_after


class ErrorDetail(BaseModel):
    """What failed."""

    message: str = Field(description="What failed, and what to do next.")
    type: str = Field(description="The kind of error, one per status.")
    param: str | None = Field(description="The field of the body that is wrong.")
    code: str | None = Field(description="A word for programs, such as `model_not_found`.")


class ErrorBody(BaseModel):
    """An error; `message` and `detail` repeat its text for the clients that read them."""

    error: ErrorDetail
    message: str
    detail: str


class TeiErrorBody(BaseModel):
    """An error of the routes of text-embeddings-inference."""

    error: str = Field(description="What failed, and what to do next.")
    error_type: str = Field(description="The kind of error, such as `Validation`.")


MEANINGS = {
    400: "The request cannot be understood.",
    401: "The key is missing or wrong.",
    404: "There is no such model, path or candidate.",
    408: "The body did not arrive in time.",
    413: "The body is too large, or has too many items.",
    415: "The body is not declared as JSON.",
    422: "The request cannot be understood.",
    429: "The queue is full; the header Retry-After says when to try again.",
    500: "The server failed; its log says why.",
    501: "The server lacks a package that the request needs.",
    503: "The server is starting or stopping, or its store does not answer; try again.",
    504: "The request took longer than it may.",
}

RETRY_AFTER = {
    "Retry-After": {
        "description": "Seconds after which the request may be tried again.",
        "schema": {"type": "integer"},
    }
}


def documented(body: Any, *statuses: Any) -> dict[int | str, dict[str, Any]]:
    """The errors of a route, for the OpenAPI schema."""
    return {
        status: {
            "model": body,
            "description": MEANINGS[status],
            **({"headers": RETRY_AFTER} if status in (429, 503) else {}),
        }
        for status in statuses
    }


ERRORS = documented(ErrorBody, 400, 401, 404, 408, 413, 415, 429, 500, 501, 503, 504)
"""The errors that each route may answer with."""
TEI_ERRORS = documented(TeiErrorBody, 400, 401, 404, 408, 413, 415, 422, 429, 500, 501, 503, 504)
"""Those of the routes of text-embeddings-inference."""


def as_request_error(error: Exception) -> RequestError:
    """Any error as the answer to a request; of one we did not raise, nothing but that it failed.

    A request is to blame for a bad setting or bad data; a folder that turns out to be damaged is
    not the client's fault, and its path is not the client's business.
    """
    if isinstance(error, RequestError):
        return error
    if isinstance(error, UsageError) or (isinstance(error, DataError) and error.path is None):
        return RequestError(400, error.problem, error.remedy)
    if isinstance(error, StorageError):
        return RequestError(
            503,
            "The store of the index does not answer or cannot be written.",
            f"Try again in {STORE_RETRY} seconds; the server's log says more.",
            code="store_unavailable",
            retry_after=STORE_RETRY,
        )
    if isinstance(error, MissingExtraError):
        return RequestError(
            501,
            "This request needs a package that is not installed on the server.",
            "Ask whoever runs the server; its log names the package.",
            code="not_installed",
        )
    return RequestError(
        500, "The server failed to answer this request.", "Its log says why; try again."
    )


def body_of(error: RequestError) -> dict[str, Any]:
    """The body that the clients of OpenAI, Cohere and Jina read."""
    message = str(error)
    return {
        "error": {
            "message": message,
            "type": TYPES.get(error.status, "invalid_request_error"),
            "param": error.param,
            "code": error.code,
        },
        "message": message,
        "detail": message,
    }


def tei_body_of(error: RequestError, status: int) -> dict[str, Any]:
    """The body that the clients of text-embeddings-inference read."""
    return {"error": str(error), "error_type": TEI_TYPES.get(status, "Backend")}


def error_response(
    error: RequestError,
    scope: Mapping[str, Any],
    headers: Mapping[str, str] | None = None,
) -> Response:
    """The answer to a request that failed, in the shape that its route's clients read.

    Args:
        error: What failed.
        scope: The ASGI scope of the request.
        headers: More headers.

    Returns:
        Status, headers and JSON; Retry-After where it may be tried again.
    """
    status = error.status
    if speaks_tei(scope):
        status = 422 if status == 400 and error.code != "empty_input" else status
        body = tei_body_of(error, status)
    else:
        body = body_of(error)
    more = dict(headers or {})
    if error.retry_after is not None:
        more["Retry-After"] = str(error.retry_after)
    return Response(orjson.dumps(body), status, more, media_type="application/json")


def speaks_tei(scope: Mapping[str, Any]) -> bool:
    """Whether a request comes from a client of text-embeddings-inference."""
    if scope["path"] in TEI_PATHS:
        return True
    read = scope.get("state", {}).get("body") if scope["path"] == "/rerank" else None
    return isinstance(read, dict) and "texts" in read and "documents" not in read
