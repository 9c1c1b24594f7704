"""Requests that fail: one error, and the bodies that clients read. Knows nothing of models."""

from __future__ import annotations

from typing import Any

from polyrank.errors import InputError, PolyrankError

TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    405: "invalid_request_error",
    413: "request_too_large",
    415: "invalid_request_error",
    422: "invalid_request_error",
    429: "rate_limit_error",
    500: "internal_error",
    503: "unavailable_error",
    504: "timeout_error",
}


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


def as_request_error(error: Exception) -> RequestError:
    """Any error as the answer to a request; of one we did not raise, nothing but that it failed."""
    if isinstance(error, RequestError):
        return error
    if isinstance(error, InputError):
        return RequestError(400, error.problem, error.remedy)
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
