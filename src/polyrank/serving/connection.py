"""One connection: uvicorn's protocol with limits on what comes before a request is known.

A client that connects and says nothing, sends its request by the letter, or sends headers without
end is cut off here; the app sees complete heads only.
"""

from __future__ import annotations

import asyncio
import http
import time
import uuid
from typing import TYPE_CHECKING, Any

import orjson
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from polyrank.serving.failures import RequestError, body_of, error_response

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

HEAD_SECONDS = 10.0
"""How long the head of a request may take, and what is left of a refused body."""
KEEP_ALIVE_SECONDS = 75
"""How long a connection may be idle between two requests: longer than balancers keep theirs."""
MOST_URL_BYTES = 8 * 1024
MOST_HEAD_BYTES = 64 * 1024
MOST_HEADERS = 100
MOST_CONNECTIONS = 2000
"""More are answered with 503; more than twice as many are closed."""


class Connection(HttpToolsProtocol):
    """A connection that keeps the limits above."""

    def connection_made(self, transport: Any) -> None:
        """Wait for the head of the first request, for a while."""
        super().connection_made(transport)
        self.reading_head = True
        self.has_begun = False
        self.head_bytes = 0
        self.refusal: RequestError | None = None
        self.is_refused = False
        self.idle_since = time.monotonic()
        self.patience: asyncio.TimerHandle | None = None
        if len(self.connections) > 2 * MOST_CONNECTIONS:
            transport.abort()
            return
        if len(self.connections) > MOST_CONNECTIONS:
            self.app = overloaded
        self.be_patient()

    def be_patient(self) -> None:
        """Close the connection unless what is awaited comes in time."""
        self.be_calm()
        self.patience = self.loop.call_later(HEAD_SECONDS, self.give_up)

    def be_calm(self) -> None:
        """What was awaited has come."""
        if self.patience is not None:
            self.patience.cancel()
            self.patience = None

    def give_up(self) -> None:
        """End a connection that has kept the server waiting."""
        if self.transport.is_closing():
            return
        if self.has_begun and self.reading_head and not self.is_answering:
            self.refusal = RequestError(
                408, "The head of the request did not arrive in time.", "Send it faster."
            )
            self.send_400_response("")
        else:
            self.transport.close()

    @property
    def is_answering(self) -> bool:
        """Whether a request of this connection waits for its answer."""
        return self.cycle is not None and not self.cycle.response_complete

    @property
    def is_idle(self) -> bool:
        """Whether nothing of a request has come that is not answered."""
        return not self.is_answering and self.reading_head and not self.has_begun

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self.be_calm()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse what came, unless it is too much."""
        if self.is_refused:
            return
        super().data_received(data)
        if self.reading_head and not self.is_refused and self.parser is not None:
            self.head_bytes += len(data)
            if self.head_bytes > MOST_HEAD_BYTES:
                self.refusal = head_too_large()
                self.send_400_response("")
            elif self.patience is None and (self.has_begun or not self.is_answering):
                self.be_patient()

    def on_message_begin(self) -> None:
        """A request comes."""
        super().on_message_begin()
        self.has_begun = True

    def on_url(self, url: bytes) -> None:
        """Take part of the address."""
        super().on_url(url)
        if len(self.url) > MOST_URL_BYTES:
            self.refusal = RequestError(
                414,
                f"The address of the request is longer than {MOST_URL_BYTES:,} bytes.",
                "Send texts in the body.",
            )
            raise ValueError("refused")

    def on_headers_complete(self) -> None:
        """Start the request, if its head is within the limits."""
        size = sum(len(name) + len(value) for name, value in self.headers)
        if len(self.headers) > MOST_HEADERS or size > MOST_HEAD_BYTES:
            self.refusal = head_too_large()
            raise ValueError("refused")
        self.reading_head = self.has_begun = False
        self.head_bytes = 0
        self.be_calm()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """Expect the head of the next request."""
        super().on_message_complete()
        self.reading_head = True
        if self.cycle is None or self.cycle.response_complete:
            self.be_calm()  # what was left of a refused body has come
            self.wait_for_next()

    def on_response_complete(self) -> None:
        """Wait for the next request, or for what is left of a body that was refused."""
        super().on_response_complete()
        self.idle_since = time.monotonic()
        if not self.reading_head:
            self._unset_keepalive_if_required()
            self.be_patient()

    def wait_for_next(self) -> None:
        """Close the connection if no request follows."""
        self._unset_keepalive_if_required()
        if not self.transport.is_closing():
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )

    def send_400_response(self, msg: str) -> None:
        """Refuse what is not HTTP or exceeds a limit, in the documented form, and hang up."""
        self.is_refused = True
        self.be_calm()
        if self.is_answering:
            if not self.cycle.more_body or self.cycle.response_started or self.pipeline:
                self.cycle.keep_alive = False  # the answer to an earlier request comes first
                return
            self.cycle.disconnected = True  # its body is broken: nothing else can be answered
            self.cycle.message_event.set()
        error = self.refusal or RequestError(
            400, "This is not a request of HTTP/1.1.", "Check what sends it, and the port."
        )
        body = orjson.dumps(body_of(error))
        self.transport.write(
            b"HTTP/1.1 %d %s\r\n" % (error.status, http.HTTPStatus(error.status).phrase.encode())
            + b"content-type: application/json\r\ncontent-length: %d\r\n" % len(body)
            + b"x-request-id: %s\r\nconnection: close\r\n\r\n" % uuid.uuid4().hex.encode()
            + body
        )
        # Closing at once would discard what is unread, and with it the answer, by a reset.
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self.loop.call_later(1.0, self.transport.close)

    def _unsupported_upgrade_warning(self) -> None:
        """Say nothing where a client offers another protocol: it is answered in this one."""


def head_too_large() -> RequestError:
    """The error for headers over the limits."""
    return RequestError(
        431,
        f"The head of the request has over {MOST_HEADERS} headers or {MOST_HEAD_BYTES:,} bytes.",
        "Send fewer or shorter headers.",
    )


async def overloaded(scope: Scope, receive: Receive, send: Send) -> None:
    """The app of connections beyond the most."""
    error = RequestError(
        503,
        f"The server has over {MOST_CONNECTIONS:,} connections.",
        "Reuse connections, and try again.",
        code="too_many_connections",
        retry_after=1,
    )
    await error_response(error, scope, {"connection": "close"})(scope, receive, send)
