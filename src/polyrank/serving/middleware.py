"""What every request passes on its way in and out: limits, headers, log. Pure ASGI.

Observe (outside) makes the flow and the request id, adds headers to every answer, measures and
logs it, and answers what nobody caught. Admit (inside) checks the key, reads the body and ends the
work of a client that has gone away. Neither knows what a request asks for.
"""

from __future__ import annotations

import asyncio
import re
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from polyrank.serving.access import Hosts, Keys
from polyrank.serving.config import MB
from polyrank.serving.failures import RequestError, as_request_error, error_response
from polyrank.serving.scheduling.flow import Flow

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    Finished = Callable[[Scope, Flow, int, float, Exception | None], None]

REQUEST_ID = re.compile(rb"[A-Za-z0-9._:/+=-]{1,128}")
CLIENT_GONE = 499
"""The status in log and metrics of a request whose client went away, as nginx has it."""
PAGE_POLICY = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    b"connect-src 'self'; font-src 'self'; base-uri 'none'; form-action 'none'; "
    b"frame-ancestors 'none'"
)
DOCS_POLICY = PAGE_POLICY.replace(b"'self';", b"'self' 'unsafe-inline';", 2)
"""Swagger starts from a script in its page."""


class Observe:
    """Everything that is the same for every request, whatever becomes of it."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        timeout: float,
        finished: Finished,
        is_draining: Callable[[], bool],
    ) -> None:
        """`finished` hears of every request: its status, its seconds and an error of ours."""
        self.app = app
        self.timeout = timeout
        self.finished = finished
        self.is_draining = is_draining

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started = time.perf_counter()
        flow = Flow.lasting(self.timeout)
        flow.request_id = request_id_of(scope)
        scope.setdefault("state", {})["flow"] = flow
        status, failure = CLIENT_GONE, None

        async def send_on(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = message.setdefault("headers", [])
                seconds = time.perf_counter() - started
                message["headers"] = [*headers, *self.headers(scope, headers, flow, seconds)]
            await send(message)

        try:
            await self.app(scope, receive, send_on)
        except Exception as error:
            failure = error
            if status != CLIENT_GONE:  # the answer has begun: only an end of the connection tells
                raise
            await error_response(as_request_error(error), scope)(scope, receive, send_on)
        finally:
            self.finished(scope, flow, status, time.perf_counter() - started, failure)

    def headers(
        self, scope: Scope, given: list[tuple[bytes, bytes]], flow: Flow, seconds: float
    ) -> Iterator[tuple[bytes, bytes]]:
        """The headers of every answer."""
        yield b"x-request-id", flow.request_id.encode("ascii")
        times = flow.times
        for name, value in (
            (b"x-total-time", seconds),
            (b"x-queue-time", times.queue),
            (b"x-tokenization-time", times.tokenise),
            (b"x-inference-time", times.model),
            (b"x-search-time", times.search),
        ):
            yield name, b"%.1f" % (1000 * value)
        yield b"x-content-type-options", b"nosniff"
        if any(name == b"content-type" and value[:9] == b"text/html" for name, value in given):
            is_docs = scope["path"].startswith("/docs")
            yield b"content-security-policy", DOCS_POLICY if is_docs else PAGE_POLICY
            yield b"referrer-policy", b"no-referrer"
        if self.is_draining():
            yield b"connection", b"close"


class Admit:
    """Lets in what has a key and keeps the limits, and stops work that nobody waits for."""

    def __init__(self, app: ASGIApp, *, keys: Keys, hosts: Hosts, max_body_mb: float) -> None:
        self.app = app
        self.keys = keys
        self.hosts = hosts
        self.max_body_mb = max_body_mb
        self.max_bytes = round(max_body_mb * MB)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        flow: Flow = scope["state"]["flow"]
        try:
            self.hosts.admit(scope)
            self.keys.admit(scope)
            shorten(flow, scope)
            body = await self.body(scope, receive, flow)
        except RequestError as error:
            headers = {"www-authenticate": "Bearer"} if error.status == 401 else {}
            if header(scope, b"expect") is not None or error.status == 408:
                headers["connection"] = "close"  # the body may never come
            await error_response(error, scope, headers)(scope, receive, send)
            return
        if body is not None:
            await attended(self.app, scope, body, receive, send)

    async def body(self, scope: Scope, receive: Receive, flow: Flow) -> bytes | None:
        """The whole body, or None where the client went away. Raises RequestError."""
        length = header(scope, b"content-length")
        if length is not None and length.isdigit() and int(length) > self.max_bytes:
            raise self.too_large()
        parts, size = [], 0
        while True:
            try:
                message = await asyncio.wait_for(receive(), flow.deadline - time.monotonic())
            except asyncio.TimeoutError:
                raise RequestError(
                    408,
                    "The body of the request did not arrive in time.",
                    "Send it faster, or raise --timeout of the server.",
                ) from None
            if message["type"] == "http.disconnect":
                flow.cancelled = True
                return None
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            if size > self.max_bytes:
                raise self.too_large()
            if not message.get("more_body", False):
                return b"".join(parts)

    def too_large(self) -> RequestError:
        """The error for a body over the limit."""
        return RequestError(
            413,
            f"The body of the request is larger than {self.max_body_mb:g} MB.",
            "Send fewer texts at a time, or raise --max-body-mb of the server.",
            code="body_too_large",
        )


async def attended(app: ASGIApp, scope: Scope, body: bytes, receive: Receive, send: Send) -> None:
    """Run an app on a request whose body is read, for as long as someone waits for the answer.

    Where the client goes away the app is cancelled. Where the deadline passes it is, too, and the
    answer is 504, unless it has begun.
    """
    flow: Flow = scope["state"]["flow"]
    task = asyncio.current_task()
    assert task is not None
    loop = asyncio.get_running_loop()
    has_begun = is_answered = is_late = is_replayed = False

    async def watch() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        if not is_answered:
            flow.cancelled = True
            task.cancel()

    def expire() -> None:
        nonlocal is_late
        if not is_answered:
            is_late = True
            task.cancel()

    async def replay() -> Message:
        nonlocal is_replayed
        if not is_replayed:
            is_replayed = True
            return {"type": "http.request", "body": body, "more_body": False}
        await asyncio.wait([watcher])
        return {"type": "http.disconnect"}

    async def send_on(message: Message) -> None:
        nonlocal has_begun, is_answered
        has_begun = True
        is_answered = message["type"] == "http.response.body" and not message.get("more_body")
        await send(message)

    watcher = loop.create_task(watch())
    timer = loop.call_later(flow.deadline - time.monotonic(), expire)
    try:
        await app(scope, replay, send_on)
    except asyncio.CancelledError:
        if not (flow.cancelled or is_late):
            raise
        if sys.version_info >= (3, 11):
            task.uncancel()
        if has_begun or flow.cancelled:
            return
        await error_response(too_late(), scope)(scope, receive, send_on)
    finally:
        watcher.cancel()
        timer.cancel()


def too_late() -> RequestError:
    """The error for a request whose deadline has passed."""
    return RequestError(
        504,
        "The request was not answered before its deadline.",
        "Send fewer texts at a time, or raise the client's timeout and --timeout of the server.",
        code="timeout",
    )


def header(scope: Scope, name: bytes) -> bytes | None:
    """The first value of a header, or None."""
    return next((value for key, value in scope["headers"] if key == name), None)


def request_id_of(scope: Scope) -> str:
    """The id that the client gave a request, if it is harmless, or a new one."""
    given = header(scope, b"x-request-id")
    if given is not None and REQUEST_ID.fullmatch(given):
        return given.decode("ascii")
    return uuid.uuid4().hex


def shorten(flow: Flow, scope: Scope) -> None:
    """Bring the deadline forward as the client asks. Raises RequestError."""
    given = header(scope, b"x-request-timeout-ms")
    if given is None:
        return
    if not re.fullmatch(rb"[0-9]{1,9}", given) or int(given) == 0:
        raise RequestError(
            400,
            "The header x-request-timeout-ms must be a whole number of milliseconds above 0.",
            "Change it, or leave it out for the limit of the server.",
            param="x-request-timeout-ms",
        )
    flow.deadline = min(flow.deadline, time.monotonic() + int(given) / 1000)
