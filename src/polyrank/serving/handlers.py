"""The handlers that answer every error of an app in the shapes that clients read."""

from __future__ import annotations

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.routing import Match

from polyrank.errors import PolyrankError, nearest
from polyrank.serving.failures import RequestError, as_request_error, error_response
from polyrank.serving.logs import LOG, frames_of
from polyrank.serving.validation import LONGEST_SHOWN, described

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")


def install_errors(app: FastAPI) -> None:
    """Have an app answer every error in these shapes."""

    @app.exception_handler(PolyrankError)
    async def known(request: Request, error: PolyrankError) -> Response:
        answer = as_request_error(error)
        if answer is not error and answer.status >= 500:
            # such an error speaks of the server's own files, not of the request
            named = request.state.flow.request_id
            LOG.error("request %s failed: %s %s", named, error, frames_of(error))
        return error_response(answer, request.scope)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        return error_response(described(error, request.query_params), request.scope)

    @app.exception_handler(HTTPException)
    async def refused(request: Request, error: HTTPException) -> Response:
        headers = dict(error.headers or {})
        methods = allowed_methods(app, request) if error.status_code == 405 else []
        if methods:  # the framework names those of one route alone
            headers["Allow"] = ", ".join(methods)
        answer = no_route(app, request, error, headers.get("Allow", ""))
        return error_response(answer, request.scope, headers)

    @app.exception_handler(Exception)
    async def failed(request: Request, error: Exception) -> Response:
        return error_response(as_request_error(error), request.scope)


def allowed_methods(app: FastAPI, request: Request) -> list[str]:
    """The methods that the routes of a path take; none for a static file."""
    return [
        method
        for method in METHODS
        if any(
            route.matches({**request.scope, "method": method})[0] is Match.FULL
            for route in app.routes
        )
    ]


def no_route(app: FastAPI, request: Request, error: HTTPException, allowed: str) -> RequestError:
    """What to say of a path or a method that there is not, or of another error of the framework."""
    path, method = request.url.path, request.method
    routes = app.openapi()["paths"]
    if error.status_code == 404:
        shown = path if len(path) <= LONGEST_SHOWN else f"{path[:LONGEST_SHOWN]}…"
        return RequestError(
            404, f"There is no path {shown}.", nearest(shown, routes), code="path_not_found"
        )
    if error.status_code == 405:
        return RequestError(
            405,
            f"The path {path} does not take {method}.",
            f"Use {allowed.replace(', ', ' or ')}.",
            code="method_not_allowed",
        )
    return RequestError(error.status_code, f"{error.detail}.", "Correct the request.")
