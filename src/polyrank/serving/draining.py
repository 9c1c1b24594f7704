"""uvicorn's server, with an end that loses nothing: it drains before it stops.

After the first signal answers carry `Connection: close` and /ready is 503, while the server still
accepts, for balancers to notice; after that, or after a second signal, it stops listening and
answers all that it has accepted. A third signal ends it at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import selectors
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import uvicorn

from polyrank.serving.connection import KEEP_ALIVE_SECONDS, Connection

TICK_SECONDS = 0.02
ACCEPTED_AT_ONCE = 64


class Gate:
    """Says whether this process takes the next connection: alone, it takes each."""

    def pause(self, num_connections: int) -> float:
        """Seconds to leave it to another process; 0 to take it."""
        return 0.0

    def count(self, num_connections: int) -> None:
        """Show the others how many connections this process has."""


class DrainingServer(uvicorn.Server):
    """A server on a socket that listens already."""

    def __init__(
        self,
        app: Any,
        listening: socket.socket,
        *,
        drain_seconds: float,
        timeout: float,
        on_drain: Callable[[], None],
        on_reload: Callable[[], None],
        last_call_seconds: float = 0.5,
        gate: Gate | None = None,
    ) -> None:
        """Serve an app.

        Args:
            app: The ASGI app.
            listening: The socket to accept from; it is closed when listening stops.
            drain_seconds: How long requests are still accepted after the first signal.
            timeout: The most seconds that a request takes.
            on_drain: Called when the first signal comes.
            on_reload: Called in the event loop for each SIGHUP.
            last_call_seconds: How long an idle connection may still send a request after the
                server has stopped listening.
            gate: Says whether this process takes the next connection.
        """
        super().__init__(
            uvicorn.Config(
                app,
                http=Connection,
                ws="none",
                lifespan="on",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_keep_alive=KEEP_ALIVE_SECONDS,
            )
        )
        self.listening = listening
        self.drain_seconds = drain_seconds
        self.timeout = timeout
        self.on_drain = on_drain
        self.on_reload = on_reload
        self.last_call_seconds = last_call_seconds
        self.gate = gate or Gate()
        self.signals: list[int] = []
        self.accepting: set[asyncio.Task[Any]] = set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Take the signals while the server runs; none is raised again afterwards."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        taken = [signal.SIGINT, signal.SIGTERM]
        before = {each: signal.signal(each, self.handle_exit) for each in taken}
        if hasattr(signal, "SIGHUP"):
            before[signal.SIGHUP] = signal.signal(signal.SIGHUP, self.handle_reload)
        try:
            yield
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to drain; for a second signal stop listening, for a third end."""
        self.signals.append(sig)
        self.force_exit = len(self.signals) > 2
        if not self.should_exit:
            self.should_exit = True
            self.on_drain()

    def handle_reload(self, sig: int, frame: FrameType | None) -> None:
        """Have the event loop reload."""
        self.loop.call_soon_threadsafe(self.on_reload)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start the app and accept."""
        self.loop = asyncio.get_running_loop()
        await self.lifespan.startup()
        self.servers = []
        await self.on_tick(0)  # which makes the header Date
        self.loop.add_reader(self.listening, self.accept)
        self.started = True

    def accept(self, until_none_waits: bool = False) -> None:
        """Take what waits on the socket, but not all at once."""
        taken = 0
        while until_none_waits or taken < ACCEPTED_AT_ONCE:
            pause = 0.0 if until_none_waits else self.gate.pause(self.num_connections)
            if pause:
                self.pause_accepting(pause)
                return
            try:
                connection, _ = self.listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError:  # too many files are open: let some connections end
                self.pause_accepting(1.0)
                return
            taken += 1
            connection.setblocking(False)
            task = self.loop.create_task(
                self.loop.connect_accepted_socket(self.connection, connection)
            )
            self.accepting.add(task)
            task.add_done_callback(self.accepting.discard)

    @property
    def num_connections(self) -> int:
        """How many connections there are."""
        return len(self.server_state.connections) + len(self.accepting)

    async def on_tick(self, counter: int) -> bool:
        """Do what is done ten times a second."""
        self.gate.count(self.num_connections)
        return await super().on_tick(counter)

    def pause_accepting(self, seconds: float) -> None:
        """Leave what waits on the socket for a while."""
        self.loop.remove_reader(self.listening)
        self.loop.call_later(seconds, self.resume_accepting)

    def resume_accepting(self) -> None:
        """Accept again after a pause, unless listening has stopped."""
        if self.listening.fileno() >= 0:
            self.loop.add_reader(self.listening, self.accept)

    def connection(self) -> asyncio.Protocol:
        """The protocol of a new connection."""
        return Connection(
            config=self.config,
            server_state=self.server_state,
            app_state=self.lifespan.state,
            _loop=self.loop,
        )

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Drain, stop listening, answer what was accepted, and stop the app."""
        end = time.monotonic() + self.drain_seconds
        while time.monotonic() < end and len(self.signals) < 2:
            await self.on_tick(0)
            await asyncio.sleep(TICK_SECONDS)
        await self.stop_listening()
        await self.finish()
        await self.lifespan.shutdown()

    async def stop_listening(self) -> None:
        """Accept all that waits, and close the socket as soon as nothing does."""
        self.loop.remove_reader(self.listening)
        self.accept(until_none_waits=True)
        self.listening.close()
        if self.accepting:
            await asyncio.wait(self.accepting)

    async def finish(self) -> None:
        """Answer every request that was accepted, then hang up."""
        stopped = time.monotonic()
        end = stopped + self.timeout + 1
        while self.server_state.connections and time.monotonic() < end and not self.force_exit:
            for connection in list(self.server_state.connections):
                assert isinstance(connection, Connection)
                idle = time.monotonic() - max(connection.idle_since, stopped)
                if (
                    connection.is_idle
                    and idle >= self.last_call_seconds
                    and not has_sent(connection)
                ):
                    connection.transport.close()
            await asyncio.sleep(TICK_SECONDS)
        for connection in list(self.server_state.connections):
            connection.transport.abort()
        await asyncio.sleep(TICK_SECONDS)  # the app notices that the clients are gone
        if self.server_state.tasks:
            await asyncio.wait(self.server_state.tasks, timeout=1)


def has_sent(connection: Connection) -> bool:
    """Whether bytes of the client wait to be read."""
    given = connection.transport.get_extra_info("socket")
    descriptor = -1 if given is None else given.fileno()
    if descriptor < 0:
        return False
    with selectors.DefaultSelector() as selector:
        selector.register(descriptor, selectors.EVENT_READ)
        return bool(selector.select(0))
