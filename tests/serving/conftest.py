"""Tiny models behind a real server on a free port."""

import pytest
from running import running

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


@pytest.fixture(scope="session")
def bi(bert):
    return BiEncoder.from_pretrained(bert, device="cpu", dtype="float32")


@pytest.fixture(scope="session")
def poly(bert):
    return PolyEncoder.from_pretrained(bert, num_codes=4, device="cpu", dtype="float32")


@pytest.fixture(scope="session")
def cross(bert):
    return CrossEncoder.from_pretrained(bert, device="cpu", dtype="float32")


@pytest.fixture(scope="module")
def models(bi, poly, cross):
    """All three architectures under uvicorn, for the tests of a module that change nothing."""
    served = Pipeline({"bi": bi, "poly": poly, "cross": cross}, reranker="cross")
    with running(create_app(served, ServerConfig(max_items=2000))) as server:
        yield server


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


@pytest.fixture(scope="session")
def folders(bi, poly, tmp_path_factory):
    """A saved bi- and poly-encoder."""
    root = tmp_path_factory.mktemp("saved")
    bi.save_pretrained(root / "bi")
    poly.save_pretrained(root / "poly")
    return root
