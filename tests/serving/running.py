"""An app behind a real socket."""

import contextlib
import socket
import threading
from dataclasses import dataclass

import uvicorn


@dataclass(frozen=True)
class Server:
    """A running server: its address and its app."""

    url: str
    port: int
    app: object


@contextlib.contextmanager
def running(app):
    """Serve an app from a thread, on a free port."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port = listening.getsockname()[1]
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning", lifespan="on"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            while not server.started and thread.is_alive():
                threading.Event().wait(0.01)
            assert server.started
            yield Server(f"http://127.0.0.1:{port}", port, app)
        finally:
            server.should_exit = True
            thread.join()
