"""What every request passes: limits, headers, errors, clients that go away."""

import asyncio
import json
import logging
import socket
import threading

import httpx2 as httpx
import pytest
from running import Raw, running

from polyrank.serving.app import create_app
from polyrank.serving.config import ServerConfig
from polyrank.serving.dependencies import FlowOf
from polyrank.serving.pipeline import Pipeline

TIMES = ("total", "queue", "tokenization", "inference", "search")


class Probe:
    """Routes that wait, fail and count, and what became of their requests."""

    def __init__(self):
        self.begun = threading.Event()
        self.cancelled = threading.Event()
        self.flow = None

    def add_to(self, app):
        @app.get("/waiting")
        @app.post("/waiting")
        async def waiting(flow: FlowOf):
            self.flow = flow
            self.begun.set()
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                self.cancelled.set()
                raise

        @app.get("/failing")
        async def failing():
            secret = "a text of a user"
            raise ValueError(f"broken {len(secret)}")

        @app.post("/counting")
        async def counting(body: dict):
            return {"keys": len(body)}


@pytest.fixture
def probe():
    return Probe()


@pytest.fixture
def started(bi, probe):
    app = create_app(Pipeline({"bi": bi}), ServerConfig(max_body_mb=0.1, timeout=30))
    probe.add_to(app)
    with running(app) as server:
        yield server


def error_of(response):
    body = response.json()
    assert body["message"] == body["detail"] == body["error"]["message"]
    return body["error"]


@pytest.mark.parametrize("path", ["/health", "/v1/models", "/nowhere", "/failing"])
def test_every_answer_says_its_id_and_its_times(started, path):
    response = httpx.get(started.url + path, headers={"x-request-id": "mine-1"})
    assert response.headers["x-request-id"] == "mine-1"
    assert all(float(response.headers[f"x-{name}-time"]) >= 0 for name in TIMES)
    assert response.headers["x-content-type-options"] == "nosniff"


def test_an_id_that_could_forge_a_line_of_the_log_is_replaced(started):
    for given in ("two words", "x" * 500, "ä", 'a"b'):
        response = httpx.get(
            f"{started.url}/health", headers={"x-request-id": given.encode("latin-1")}
        )
        assert len(response.headers["x-request-id"]) == 32


def test_an_unexpected_error_is_500_without_its_words_and_the_next_request_is_served(
    started, caplog
):
    with caplog.at_level(logging.ERROR), httpx.Client(base_url=started.url) as client:
        response = client.get("/failing", headers={"x-request-id": "mine-2"})
        assert response.status_code == 500
        assert error_of(response)["type"] == "internal_error"
        assert "broken" not in response.text
        assert client.get("/health").status_code == 200
    assert "mine-2" in caplog.text
    assert "ValueError" in caplog.text
    assert "in failing" in caplog.text
    assert "broken 16" not in caplog.text  # the message of an error could quote a text


def test_a_body_over_the_limit_is_413_and_its_connection_serves_the_next(started):
    with httpx.Client(base_url=started.url) as client:
        response = client.post("/counting", content=b"x" * 200_000)
        assert response.status_code == 413
        assert error_of(response)["type"] == "request_too_large"
        assert "0.1 MB" in error_of(response)["message"]
        assert client.post("/counting", json={"a": 1}).json() == {"keys": 1}


def test_a_body_in_chunks_over_the_limit_is_413_and_its_connection_serves_the_next(started):
    with httpx.Client(base_url=started.url) as client:
        response = client.post("/counting", content=(b"x" * 10_000 for _ in range(30)))
        assert response.status_code == 413
        assert client.post("/counting", json={"a": 1}).json() == {"keys": 1}


def test_whoever_waits_for_leave_to_send_a_body_that_is_too_large_is_refused_without_it(started):
    raw = Raw(started.port).send(
        b"POST /counting HTTP/1.1\r\nHost: x\r\nContent-Length: 200000\r\n"
        b"Expect: 100-continue\r\n\r\n"
    )
    status, head, _ = raw.answer()
    assert status == 413
    assert "connection: close" in head


@pytest.mark.parametrize("given", ["0", "-5", "soon", "1.5", ""])
def test_a_timeout_that_is_not_a_number_of_milliseconds_is_400(started, given):
    response = httpx.get(f"{started.url}/health", headers={"x-request-timeout-ms": given})
    assert response.status_code == 400
    assert error_of(response)["param"] == "x-request-timeout-ms"


def test_a_request_may_lower_its_deadline(started, probe):
    httpx.get(f"{started.url}/health")  # the first request of an app takes longer
    response = httpx.get(f"{started.url}/waiting", headers={"x-request-timeout-ms": "300"})
    assert response.status_code == 504
    assert error_of(response)["type"] == "timeout_error"
    assert probe.cancelled.wait(10)
    assert not probe.flow.cancelled


def test_a_body_that_does_not_come_is_408(started):
    raw = Raw(started.port).send(
        b"POST /counting HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n"
        b"x-request-timeout-ms: 100\r\n\r\n{"
    )
    status, head, _ = raw.answer()
    assert status == 408
    assert "connection: close" in head


@pytest.mark.parametrize("request_", ["fresh", "kept alive", "half closed", "with a body"])
def test_the_work_of_a_client_that_goes_away_is_cancelled(started, probe, request_):
    connection = socket.create_connection(("127.0.0.1", started.port))
    if request_ == "kept alive":
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
        assert connection.recv(65536).startswith(b"HTTP/1.1 200")
    if request_ == "with a body":
        connection.sendall(b"POST /waiting HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}")
    else:
        connection.sendall(b"GET /waiting HTTP/1.1\r\nHost: x\r\n\r\n")
    assert probe.begun.wait(10)
    if request_ == "half closed":
        connection.shutdown(socket.SHUT_WR)
    else:
        connection.close()
    assert probe.cancelled.wait(10)
    assert probe.flow.cancelled
    connection.close()
    assert httpx.get(f"{started.url}/health").status_code == 200


def test_answers_of_unknown_paths_and_methods_have_the_documented_form(started):
    assert error_of(httpx.get(f"{started.url}/nowhere"))["type"] == "not_found_error"
    response = httpx.get(f"{started.url}/counting")
    assert (response.status_code, response.headers["allow"]) == (405, "POST")
    assert error_of(response)["type"] == "invalid_request_error"


def test_pages_of_other_origins_may_call_only_where_that_is_allowed(bi):
    app = create_app(Pipeline({"bi": bi}), ServerConfig(allow_origin=("https://example.org",)))
    with running(app) as server:
        for origin, allowed in (("https://example.org", True), ("https://example.com", False)):
            asked = {"origin": origin, "access-control-request-method": "POST"}
            preflight = httpx.options(f"{server.url}/v1/models", headers=asked)
            plain = httpx.get(f"{server.url}/v1/models", headers={"origin": origin})
            for response in (preflight, plain):
                given = response.headers.get("access-control-allow-origin")
                assert (given == origin) is allowed


def test_the_documents_of_the_calls_need_no_other_server(started):
    page = httpx.get(f"{started.url}/docs")
    assert page.status_code == 200
    assert "//" not in page.text.replace("<!--", "").split("SwaggerUIBundle({")[0].split("-->")[0]
    policy = page.headers["content-security-policy"]
    assert "frame-ancestors 'none'" in policy
    assert "http" not in policy
    assert httpx.get(f"{started.url}/docs/static/swagger-ui-bundle.js").status_code == 200


@pytest.mark.parametrize("path", ["/health", "/ready"])
def test_balancers_may_ask_for_the_head_alone(started, path):
    response = httpx.head(started.url + path)
    assert (response.status_code, response.content) == (200, b"")


def test_ready_says_why_not(started, index, bi):
    assert httpx.get(f"{started.url}/ready").status_code == 200
    started.app.state.draining = True
    response = httpx.get(f"{started.url}/ready")
    assert (response.status_code, error_of(response)["code"]) == (503, "draining")
    assert response.headers["retry-after"]
    assert response.headers["connection"] == "close"
    assert httpx.get(f"{started.url}/health").status_code == 200


def test_json_that_is_not_json(started):
    for body in (b"{", b"\xff\xfe", b"", b"[]"):
        response = httpx.post(
            f"{started.url}/counting", content=body, headers={"content-type": "application/json"}
        )
        assert response.status_code == 400, body
        assert json.loads(response.content)["error"]["message"]


def test_nothing_is_told_of_requests_elsewhere(started):
    assert not started.app._native_telemetry.enabled()
    settings = started.app._telemetry
    assert not any(settings[name] for name in ("tracing", "metrics", "logs", "auto_configure"))
