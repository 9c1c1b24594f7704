"""The log: one line per request, and never what a user wrote."""

import io
import json
import logging
import sys

import httpx2 as httpx
import pytest
from running import Raw, running

from polyrank.errors import UsageError
from polyrank.serving.app import create_app
from polyrank.serving.config import ServerConfig
from polyrank.serving.logs import LEVELS, chain, configure, frames_of
from polyrank.serving.pipeline import Pipeline

MARK = "xq7secret"
KEY = f"sk-{MARK}"


@pytest.fixture
def log():
    """What is logged, by configuring with a form; the loggers are as before afterwards."""
    before = {
        name: (logger.handlers, logger.propagate, logger.level)
        for name in LEVELS
        for logger in [logging.getLogger(name)]
    }
    stream = io.StringIO()

    def configured(form):
        configure(form, stream)
        return stream

    yield configured
    for name, (handlers, propagate, level) in before.items():
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = handlers, propagate
        logger.setLevel(level)


@pytest.fixture
def served(bi, poly, cross, index):
    pipeline = Pipeline({"bi": bi, "cross": cross}, index=index)
    app = create_app(pipeline, ServerConfig(api_key=(KEY,), max_body_mb=0.01))

    @app.get("/failing/{name}")
    async def failing(name: str):
        try:
            raise ValueError(f"no {name}")
        except ValueError as error:
            raise KeyError(f"{name} and {MARK}") from error

    @app.get("/misused")
    async def misused():
        raise UsageError(f"{MARK} is wrong.", "Change it.")

    with running(app) as server:
        yield server


def ask_everything(server):
    """Requests of all kinds, good and bad, with the mark in everything that a client sends."""
    headers = {"authorization": f"Bearer {KEY}", "x-request-id": "id-1", "x-note": MARK}
    with httpx.Client(base_url=server.url, headers=headers) as client:
        assert client.post("/v1/embeddings", json={"model": "bi", "input": MARK}).status_code == 200
        ranked = {"model": "cross", "query": MARK, "documents": [MARK, "other"]}
        assert client.post("/v1/rerank", json=ranked).status_code == 200
        for body in ({"model": MARK, "input": MARK}, {"input": {MARK: 1}}, {MARK: MARK}, [MARK]):
            assert client.post("/v1/embeddings", json=body).status_code >= 400
        json_type = {"content-type": "application/json"}
        for content in (f'{{"{MARK}'.encode(), MARK.encode() * 10_000, b"\xff" + MARK.encode()):
            assert client.post("/embed", content=content, headers=json_type).status_code >= 400
        assert client.get(f"/{MARK}?{MARK}={MARK}").status_code == 404
        assert client.get(f"/v1/models?{MARK}={MARK}").status_code == 200
        assert client.get(f"/failing/{MARK}").status_code == 500
        assert client.get("/misused").status_code == 400
        assert client.get("/v1/models", headers={"authorization": MARK}).status_code == 401
        assert client.get("/v1/models", headers={"x-request-timeout-ms": MARK}).status_code == 400
        assert client.request(MARK.upper(), "/health").status_code >= 400
    raw = Raw(server.port).send(f"GET /{MARK} {MARK}\r\n{MARK}\r\n\r\n".encode())
    assert raw.answer()[0] == 400


@pytest.mark.parametrize("form", ["text", "json"])
def test_nothing_that_a_client_sends_is_in_the_log(served, log, form):
    stream = log(form)
    ask_everything(served)
    assert MARK not in stream.getvalue().casefold()
    assert "/failing/{name}" in stream.getvalue()


def test_a_line_of_json_has_the_stages_and_sizes_of_a_request(served, log):
    stream = log("json")
    ask_everything(served)
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    first = next(line for line in lines if line["message"] == "request")
    assert first["request_id"] == "id-1"
    assert (first["method"], first["route"], first["status"]) == ("POST", "/v1/embeddings", 200)
    assert first["items"] == 1
    assert first["tokens"] > 1
    assert first["ms"] >= first["model_ms"] > 0
    failed = next(line for line in lines if line["level"] == "error")
    assert "id-1" in failed["message"]
    assert failed["message"].index("ValueError") < failed["message"].index("KeyError")
    assert "in failing" in failed["message"]


def test_a_search_counts_the_texts_that_were_read(served, log):
    stream = log("json")
    headers = {"authorization": f"Bearer {KEY}"}
    with httpx.Client(base_url=served.url, headers=headers) as client:
        assert client.post("/search", json={"contexts": ["a", "a b c"]}).status_code == 200
    line = json.loads(stream.getvalue().splitlines()[-1])
    assert line["items"] == 2
    assert line["search_ms"] > 0


def test_a_line_of_text_is_for_people(served, log):
    stream = log("text")
    ask_everything(served)
    line = stream.getvalue().splitlines()[0]
    assert "POST /v1/embeddings 200 " in line
    assert "tokenise" in line
    assert "texts 1, tokens " in line
    assert line.endswith("id-1")


def test_errors_that_caused_each_other_are_logged_once():
    first, second = ValueError("a"), KeyError("b")
    first.__cause__, second.__context__ = second, first
    assert chain(first) == [second, first]
    assert frames_of(first).split() == ["KeyError", "then", "ValueError"]


def test_probes_are_logged_only_where_they_fail(served, log):
    stream = log("json")
    assert httpx.get(f"{served.url}/health").status_code == 200
    assert stream.getvalue() == ""
    served.app.state.draining = True
    assert httpx.get(f"{served.url}/ready").status_code == 503
    assert json.loads(stream.getvalue())["route"] == "/ready"


def test_auto_is_json_where_nobody_looks(log):
    stream = log("auto")
    logging.getLogger("uvicorn.error").error("of uvicorn")
    assert json.loads(stream.getvalue())["message"] == "of uvicorn"


def test_standard_error_may_be_replaced(log, monkeypatch):
    log("text")
    first, second = io.StringIO(), io.StringIO()
    monkeypatch.setattr(sys, "stderr", first)
    configure("json")
    first.close()
    monkeypatch.setattr(sys, "stderr", second)
    logging.getLogger("polyrank.serving").info("hello")
    assert "hello" in second.getvalue()
