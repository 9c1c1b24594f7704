"""JSON in and out: reads the bodies of requests strictly, writes answers of many numbers as bytes.

Large answers are written in a thread, row by row, so that other requests go through meanwhile.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

import numpy as np
import orjson
from fastapi import Request, Response
from fastapi.routing import APIRoute
from numpy.typing import NDArray

from polyrank.serving.failures import RequestError

MANY_NUMBERS = 16_384
"""An answer of more numbers is written in a thread; one of this many takes about half a
millisecond."""

Handler = Callable[[Request], Coroutine[Any, Any, Response]]


class JsonResponse(Response):
    """An answer that is already JSON."""

    media_type = "application/json"


class ReadRequest(Request):
    """A request whose body has been read."""

    def __init__(self, request: Request, value: Any) -> None:
        super().__init__(request.scope, request.receive)
        self._value = value

    async def body(self) -> bytes:
        """Anything but nothing: what counts is `json`."""
        return b"read"

    async def json(self) -> Any:
        """What the body holds."""
        return self._value


class JsonRoute(APIRoute):
    """A route whose body is strict JSON; anything else is answered with what is wrong where."""

    def get_route_handler(self) -> Handler:
        """The handler of FastAPI, behind our own reading of the body."""
        handle = super().get_route_handler()
        if self.body_field is None:
            return handle

        async def handler(request: Request) -> Response:
            body = await request.body()
            if body:
                require_json(request.headers.get("content-type", ""))
            value = parsed(body)
            request.state.body = value
            return await handle(ReadRequest(request, value))

        return handler


def require_json(content_type: str) -> None:
    """Raise RequestError for another type of content.

    A page in a browser may send other types to any server without asking it first, so a missing
    one is refused, too.
    """
    kind = content_type.partition(";")[0].strip().lower()
    if kind != "application/json" and not (
        kind.startswith("application/") and kind.endswith("+json")
    ):
        got = f"{kind[:60]!r}" if kind else "none"
        raise RequestError(
            415,
            f"The body must be JSON, but the header Content-Type says {got}.",
            "Send the header Content-Type: application/json.",
            code="unsupported_media_type",
        )


def parsed(body: bytes) -> Any:
    """The value of a JSON text. Raises RequestError with line and column of what is wrong."""
    if not body.strip():
        raise RequestError(400, "The body is empty.", "Send a JSON object.", code="invalid_json")
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        problem = f"The body is not JSON: {error.msg} (line {error.lineno}, column {error.colno})."
        remedy = "Send valid JSON."
        try:
            body.decode("utf-8")
        except UnicodeDecodeError as broken:
            line = body.count(b"\n", 0, broken.start) + 1
            problem = f"The body is not UTF-8: byte {broken.start + 1} (line {line}) is no text."
            remedy = "Encode the JSON as UTF-8."
        raise RequestError(400, problem, remedy, code="invalid_json") from None


def written(value: Any) -> JsonResponse:
    """A small answer: dicts, lists, texts, numbers and arrays."""
    return JsonResponse(orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY))


async def written_apart(write: Callable[[], bytes], num_numbers: int) -> JsonResponse:
    """An answer of `num_numbers` numbers, which `write` gives; in a thread if they are many."""
    if num_numbers <= MANY_NUMBERS:
        return JsonResponse(write())
    return JsonResponse(await asyncio.to_thread(write))


def number_rows(vectors: NDArray[np.float32]) -> Iterable[bytes]:
    """Each row as a JSON array. A row is written in microseconds, so that no thread waits long."""
    for row in np.ascontiguousarray(vectors):
        yield orjson.dumps(row, option=orjson.OPT_SERIALIZE_NUMPY)


def base64_rows(vectors: NDArray[np.float32]) -> Iterable[bytes]:
    """Each row as a JSON text: base64 of little-endian float32 numbers."""
    for row in np.ascontiguousarray(vectors, dtype="<f4"):
        yield b'"' + base64.b64encode(row.tobytes()) + b'"'


def array(items: Iterable[bytes]) -> orjson.Fragment:
    """A JSON array of items that are written already."""
    return orjson.Fragment(b"[" + b",".join(items) + b"]")
