"""An app behind a real socket, and raw connections to it."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from dataclasses import dataclass

from polyrank.serving.draining import DrainingServer
from polyrank.serving.listening import bind, url_of


@dataclass(frozen=True)
class Server:
    """A running server: its address, its app, and what sends it signals."""

    url: str
    port: int
    app: object
    signal: object


@contextlib.contextmanager
def running(app, *, drain_seconds=0.0, timeout=10.0, last_call_seconds=0.0):
    """Serve an app from a thread, on a free port, as `polyrank serve` does."""
    listening = bind("127.0.0.1", 0)
    url, port = url_of(listening), listening.getsockname()[1]

    def drain():
        app.state.draining = True

    server = DrainingServer(
        app,
        listening,
        drain_seconds=drain_seconds,
        timeout=timeout,
        on_drain=drain,
        on_reload=lambda: None,
        last_call_seconds=last_call_seconds,
    )
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started and thread.is_alive():
            threading.Event().wait(0.01)
        assert server.started
        yield Server(url, port, app, lambda: server.handle_exit(signal.SIGTERM, None))
    finally:
        while len(server.signals) < 2:
            server.handle_exit(signal.SIGTERM, None)
        thread.join()


def until(condition):
    """Wait until something holds, for at most a minute."""
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def accepts(port):
    """Whether a server still accepts connections."""
    try:
        return Raw(port).ask("/health")[0] == 200
    except OSError:
        return False


class Raw:
    """One connection, by hand."""

    socket = None

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=30)
        self.got = b""

    def send(self, data):
        self.socket.sendall(data)
        return self

    def ask(self, path, body=None, *headers):
        """Send a request and return the status and the head of its answer, and its body."""
        method = "GET" if body is None else "POST"
        lines = [f"{method} {path} HTTP/1.1", "Host: x", *headers]
        if body is not None:
            lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
        self.send("\r\n".join([*lines, "", ""]).encode() + (body or b""))
        return self.answer()

    def answer(self):
        """The next answer: its status, its head in small letters, and its body.

        Raises ConnectionError where the connection ends before it is complete.
        """
        while b"\r\n\r\n" not in self.got:
            self.more()
        head, _, self.got = self.got.partition(b"\r\n\r\n")
        head = head.decode("latin-1").lower()
        length = int(head.partition("content-length: ")[2].partition("\r\n")[0])
        while len(self.got) < length:
            self.more()
        body, self.got = self.got[:length], self.got[length:]
        return int(head.split()[1]), head, body

    def more(self):
        part = self.socket.recv(65536)
        if not part:
            raise ConnectionError("the server hung up")
        self.got += part

    def hangs_up(self):
        """Whether the server closes the connection, without another byte."""
        return self.socket.recv(1) == b""

    def close(self):
        if self.socket is not None:
            self.socket.close()

    __del__ = close


class Process:
    """`polyrank serve` in a process of its own."""

    def __init__(self, *arguments, log):
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "default"}
        environment.pop("POLYRANK_API_KEYS", None)
        self.log = log
        with log.open("wb") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "polyrank", "serve", "--port", "0", "--json", *arguments],
                stdout=subprocess.PIPE,
                stderr=errors,
                env=environment,
            )

    def facts(self):
        line = self.process.stdout.readline()
        assert line, self.log.read_text()
        return json.loads(line)

    def port_while_loading(self):
        while not self.log.read_text().endswith("\n"):
            assert self.process.poll() is None, self.log.read_text()
            time.sleep(0.02)
        first = json.loads(self.log.read_text().splitlines()[0])
        assert first["message"] == "listening, and loading"
        return int(first["url"].removeprefix("http://127.0.0.1:"))

    def send(self, sig):
        self.process.send_signal(sig)

    def ended(self):
        code = self.process.wait(60)
        rest = self.process.stdout.read()
        self.process.stdout.close()
        return code, rest

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()
