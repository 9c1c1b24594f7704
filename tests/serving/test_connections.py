"""What comes before a request is known: heads without end, by the letter, or not at all."""

import asyncio
import contextlib
import json
import threading

import pytest
from running import Raw, running

from polyrank.serving import connection
from polyrank.serving.app import create_app
from polyrank.serving.config import ServerConfig
from polyrank.serving.pipeline import Pipeline


@pytest.fixture
def served(bi):
    with running(create_app(Pipeline({"bi": bi}), ServerConfig(max_body_mb=0.1))) as server:
        yield server


def refused(raw):
    status, head, body = raw.answer()
    error = json.loads(body)
    assert error["message"] == error["error"]["message"]
    assert "connection: close" in head
    assert "x-request-id" in head
    assert raw.hangs_up()
    return status


@pytest.mark.parametrize(
    ("head", "status"),
    [
        ("GET /health HTTP/1.1\r\n" + "X-A: b\r\n" * 200 + "\r\n", 431),
        ("GET /health HTTP/1.1\r\nX-A: " + "b" * 100_000 + "\r\n\r\n", 431),
        ("GET /health HTTP/1.1\r\nX-A: " + "b" * 1_000_000, 431),
        ("GET /" + "a" * 10_000 + " HTTP/1.1\r\n\r\n", 414),
        ("GET /" + "a" * 1_000_000, 414),
        ("hello\r\n\r\n", 400),
        ("GET /health HTTP/9.9\r\n\r\n", 400),
        ("\x16\x03\x01\x02\x00\x01\x00", 400),
        ("POST /v1/embeddings HTTP/1.1\r\nContent-Length: many\r\n\r\n", 400),
        ("POST /v1/embeddings HTTP/1.1\r\nContent-Length: -5\r\n\r\n", 400),
        (
            "POST /v1/embeddings HTTP/1.1\r\nContent-Length: 5\r\n"
            "Transfer-Encoding: chunked\r\n\r\n",
            400,
        ),
    ],
)  # fmt: skip
def test_a_head_that_is_not_http_or_too_large_is_refused(served, head, status):
    raw = Raw(served.port)
    thread = threading.Thread(target=send_quietly, args=(raw, head.encode("latin-1")))
    thread.start()
    assert refused(raw) == status
    raw.close()
    thread.join()
    assert Raw(served.port).ask("/health")[0] == 200


def send_quietly(raw, data):
    with contextlib.suppress(OSError):
        raw.send(data)


@pytest.fixture
def hasty(monkeypatch):
    monkeypatch.setattr(connection, "HEAD_SECONDS", 0.1)


def test_who_connects_and_says_nothing_is_hung_up_on(hasty, served):
    assert Raw(served.port).hangs_up()


def test_a_head_that_does_not_end_is_408(hasty, served):
    assert refused(Raw(served.port).send(b"GET /health HTTP/1.1\r\nX-A:")) == 408


def test_blank_lines_after_an_answer_do_not_keep_a_connection(hasty, served):
    raw = Raw(served.port)
    assert raw.ask("/health")[0] == 200
    assert raw.send(b"\r\n").hangs_up()


def test_an_answer_may_take_longer_than_a_head(hasty, served):
    @served.app.get("/slow")
    async def slow():
        await asyncio.sleep(0.3)
        return "done"

    status, _, body = Raw(served.port).ask("/slow")
    assert (status, json.loads(body)) == (200, "done")


def test_the_rest_of_a_body_that_was_refused_must_come_soon(hasty, served):
    raw = Raw(served.port)
    raw.send(b"POST /v1/embeddings HTTP/1.1\r\nHost: x\r\nContent-Length: 500000\r\n\r\nxx")
    assert raw.answer()[0] == 413
    assert raw.hangs_up()


def test_a_body_whose_chunks_are_broken_is_refused(served):
    raw = Raw(served.port).send(
        b"POST /v1/embeddings HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n"
    )
    raw.send(b'{"a":\r\nnonsense\r\n')
    assert refused(raw) == 400
    assert Raw(served.port).ask("/health")[0] == 200


def test_requests_one_after_the_other_before_any_answer_are_answered_in_turn(served):
    raw = Raw(served.port)
    raw.send(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\nGET /nowhere HTTP/1.1\r\nHost: x\r\n\r\n")
    assert [raw.answer()[0], raw.answer()[0]] == [200, 404]
    raw.send(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\nnonsense\r\n\r\n")
    assert raw.answer()[0] == 200


def test_offers_of_other_protocols_are_answered_in_this_one(served):
    for protocol in ("h2c", "websocket"):
        asked = Raw(served.port).ask("/health", None, f"Upgrade: {protocol}", "Connection: Upgrade")
        assert asked[0] == 200


def test_beyond_the_most_connections_the_answer_is_503(served, monkeypatch):
    monkeypatch.setattr(connection, "MOST_CONNECTIONS", 1)
    first = Raw(served.port)
    assert first.ask("/health")[0] == 200
    status, head, body = Raw(served.port).ask("/health")
    assert (status, json.loads(body)["error"]["code"]) == (503, "too_many_connections")
    assert "retry-after" in head
    assert first.ask("/health")[0] == 200
    first.close()
    kept = [Raw(served.port) for _ in range(2)]
    assert [raw.ask("/health")[0] for raw in kept[:1]] == [200]
    with pytest.raises(ConnectionError):
        Raw(served.port).answer()
