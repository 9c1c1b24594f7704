"""Tiny models behind a real server on a free port."""

import contextlib
import socket
import threading
from dataclasses import dataclass

import pytest
import uvicorn

from polyrank.models.bi_encoder import BiEncoder
from polyrank.models.cross_encoder import CrossEncoder
from polyrank.models.poly_encoder import PolyEncoder
from polyrank.retrieval.index import Index
from polyrank.serving.app import create_app
from polyrank.serving.config import ServerConfig
from polyrank.serving.pipeline import Pipeline

CANDIDATES = [
    ("a", "how do i read a file", {"topic": "file", "year": 2020}),
    ("b", "the wifi driver is not in the kernel", {"topic": "boot", "year": 2021}),
    ("c", "install the new package and boot with the old kernel", {"topic": "boot", "year": 2022}),
    ("d", "sort a list in python", {"topic": "list", "year": 2020}),
    ("e", "sound and screen", {"topic": "screen", "year": 2024}),
    ("f", "print the last line", {"topic": "file", "year": 2023}),
]


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


@pytest.fixture(scope="session")
def bi(bert):
    return BiEncoder.from_pretrained(bert, device="cpu", dtype="float32")


@pytest.fixture(scope="session")
def poly(bert):
    return PolyEncoder.from_pretrained(bert, num_codes=4, device="cpu", dtype="float32")


@pytest.fixture(scope="session")
def cross(bert):
    return CrossEncoder.from_pretrained(bert, device="cpu", dtype="float32")


@pytest.fixture
def index(poly, tmp_path):
    """A fresh index of the poly-encoder, which a test may change."""
    with Index.build(poly, CANDIDATES, tmp_path / "index") as made:
        yield made


@pytest.fixture
def pipeline(bi, poly, cross, index):
    return Pipeline({"bi": bi, "poly": poly, "cross": cross}, index=index, reranker="cross")


@pytest.fixture
def server(pipeline):
    """All three architectures and an index, under uvicorn."""
    with running(create_app(pipeline, ServerConfig())) as served:
        yield served
