"""HTTP load from one process: prepared requests over raw connections, in closed loops.

Knows HTTP, and nothing of what the requests ask for. It costs little next to a server: bodies are
encoded beforehand, answers are parsed by httptools, and nothing is decoded while time is taken.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any

import httptools
import numpy as np

HOST = "127.0.0.1"
TIMES = tuple(
    f"x-{part}-time" for part in ("queue", "tokenization", "inference", "search", "total")
)
"""The headers that say where the time of a request went."""


@dataclass(frozen=True, eq=False)
class Request:
    """A request as it goes over the wire."""

    raw: bytes
    items: int = 1
    """How many texts it brings."""


@dataclass(frozen=True)
class Answer:
    """What came back, and when."""

    status: int
    headers: dict[str, str]
    body: bytes
    started: float
    """On the clock of `time.perf_counter`, like the next."""
    ended: float

    @property
    def seconds(self) -> float:
        """From the first byte sent to the last received."""
        return self.ended - self.started

    def json(self) -> Any:
        """The body, decoded."""
        return json.loads(self.body)


def message(
    method: str,
    path: str,
    body: bytes = b"",
    *,
    headers: Sequence[tuple[str, str]] = (),
    key: str | None = None,
) -> bytes:
    """The bytes of a request; a body is called JSON unless the headers say otherwise."""
    fields = {"host": HOST, "content-length": str(len(body))}
    if body:
        fields["content-type"] = "application/json"
    if key is not None:
        fields["authorization"] = f"Bearer {key}"
    fields.update(headers)
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items())]
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body


def post(path: str, body: Any, key: str | None = None) -> bytes:
    """The bytes of a request with a JSON body."""
    return message("POST", path, json.dumps(body).encode(), key=key)


class Connection(asyncio.Protocol):
    """A connection that answers one request at a time."""

    def __init__(self) -> None:
        self.transport: Any = None
        self.is_open = False
        self._answered: asyncio.Future[Answer] | None = None

    @classmethod
    async def open(cls, port: int) -> Connection:
        """Connect to a port of this machine."""
        _, made = await asyncio.get_running_loop().create_connection(cls, HOST, port)
        return made

    async def send(self, raw: bytes) -> Answer:
        """Send a request and wait for its answer; ConnectionError if none comes."""
        self._parser = httptools.HttpResponseParser(self)
        self._headers: dict[str, str] = {}
        self._body: list[bytes] = []
        self._answered = asyncio.get_running_loop().create_future()
        self._started = time.perf_counter()
        self.transport.write(raw)
        return await self._answered

    def close(self) -> None:
        """Close at once, whatever is under way."""
        self.is_open = False
        if self.transport is not None:
            self.transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:  # noqa: D102
        self.transport, self.is_open = transport, True

    def data_received(self, data: bytes) -> None:  # noqa: D102
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, AttributeError) as error:
            self._fail(ConnectionError(f"not an answer of HTTP: {error}"))

    def connection_lost(self, error: Exception | None) -> None:  # noqa: D102
        self.is_open = False
        self._fail(ConnectionError("the connection was closed before the answer"))

    def _fail(self, error: ConnectionError) -> None:
        if self._answered is not None and not self._answered.done():
            self._answered.set_exception(error)

    def on_header(self, name: bytes, value: bytes) -> None:  # noqa: D102
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_body(self, part: bytes) -> None:  # noqa: D102
        self._body.append(part)

    def on_message_complete(self) -> None:  # noqa: D102
        if not self._parser.should_keep_alive():
            self.is_open = False
        if self._answered is not None and not self._answered.done():
            status, body = self._parser.get_status_code(), b"".join(self._body)
            ended = time.perf_counter()
            self._answered.set_result(Answer(status, self._headers, body, self._started, ended))


class Client:
    """A client that keeps its connection and opens another where the server closed it."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._connection: Connection | None = None

    async def send(self, raw: bytes) -> Answer:
        """Send a request and wait for its answer."""
        return await (await self.connection()).send(raw)

    async def connection(self) -> Connection:
        """An open connection."""
        if self._connection is None or not self._connection.is_open:
            self.close()
            self._connection = await Connection.open(self.port)
        return self._connection

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()


@dataclass
class Load:
    """What one period of load measured."""

    seconds: float
    """How long the period was."""
    elapsed: float = 0.0
    """How long all of it took, with what came before and after the period."""
    processor_seconds: float = 0.0
    """What the load itself took of one core in all that time."""
    latencies: list[float] = field(default_factory=list)
    """Seconds of each request that was sent in the period."""
    items: int = 0
    """Texts of the answers that came in the period."""
    all_items: int = 0
    """Texts of all answers, whenever they came."""
    times: dict[str, list[float]] = field(default_factory=dict)
    """What the timing headers of the answers say, in milliseconds."""

    @property
    def items_per_second(self) -> float:
        """Texts answered per second."""
        return self.items / self.seconds

    def latency(self, percent: float) -> float:
        """A percentile of the latencies, in milliseconds."""
        return 1e3 * float(np.percentile(self.latencies, percent))

    def median_times(self) -> dict[str, float]:
        """The median of each timing header, in milliseconds."""
        return {name: float(np.median(values)) for name, values in self.times.items()}


async def closed_loop(
    port: int,
    requests: Sequence[Request],
    clients: int,
    seconds: float,
    *,
    before: float = 0.0,
    keep_times: bool = False,
) -> Load:
    """Send requests from clients that each wait for an answer before they send the next.

    The period begins `before` seconds after the load, when the server is as busy as it stays. What
    is under way at its end is waited for: its latency counts, but its texts do not, as those that
    were under way at its beginning do.

    Args:
        port: The server's.
        requests: What is sent, in this order, and from the start again where it ends.
        clients: How many wait at once.
        seconds: The length of the period.
        before: How long requests are sent before it.
        keep_times: Whether to keep what the answers say of their times.

    Returns:
        What was measured. An answer other than 200 ends the benchmark, and so does
        a server so slow that all clients wait for it all the time.
    """
    load = Load(seconds)
    sending = itertools.cycle(requests)
    clock, processor = time.perf_counter(), time.process_time()
    since = clock + before
    until = since + seconds

    async def one(client: Client) -> None:
        while time.perf_counter() < until:
            request = next(sending)
            answer = await client.send(request.raw)
            if answer.status != 200:
                raise SystemExit(f"the server answered {answer.status}: {answer.body[:500]!r}")
            load.all_items += request.items
            if since <= answer.ended <= until:
                load.items += request.items
            if answer.started < since:
                continue
            load.latencies.append(answer.seconds)
            if keep_times:
                for name in TIMES:
                    load.times.setdefault(name, []).append(float(answer.headers[name]))

    await together([Client(port) for _ in range(clients)], one)
    if not load.latencies:
        raise SystemExit(f"No request was sent in the {seconds:g} s: give it more --seconds.")
    load.elapsed = time.perf_counter() - clock
    load.processor_seconds = time.process_time() - processor
    return load


async def together(
    clients: Sequence[Client], work: Callable[[Client], Coroutine[Any, Any, None]]
) -> None:
    """Let every client do its work at once; the connections are closed afterwards."""
    try:
        await asyncio.gather(*map(work, clients))
    finally:
        for client in clients:
            client.close()


async def ask(port: int, requests: Sequence[bytes]) -> list[Answer]:
    """The answers to some requests, one after another."""
    client = Client(port)
    try:
        return [await client.send(raw) for raw in requests]
    finally:
        client.close()
