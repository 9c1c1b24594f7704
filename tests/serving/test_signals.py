"""How a server ends: nothing that it has accepted is lost."""

import json
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest
from running import Process, Raw, accepts, running, until

from polyrank.retrieval.index import Index
from polyrank.serving.app import create_app
from polyrank.serving.config import ServerConfig
from polyrank.serving.pipeline import Pipeline

EMBEDDINGS = json.dumps({"model": "bi", "input": ["how do i read a file"] * 20}).encode()


class Load:
    """Clients that ask one request after the other until no connection is accepted."""

    def __init__(self, port, num_clients, keep_alive):
        self.port = port
        self.keep_alive = keep_alive
        self.answered = 0
        self.lost = []
        self.closing = 0
        self.threads = [threading.Thread(target=self.client) for _ in range(num_clients)]
        for thread in self.threads:
            thread.start()

    def client(self):
        raw = None
        while True:
            try:
                raw = raw or Raw(self.port)
            except ConnectionRefusedError:
                return
            except OSError as error:  # reset before anything was sent
                self.lost.append(f"connecting: {error!r}")
                return
            try:
                status, head, _ = raw.ask("/v1/embeddings", EMBEDDINGS)
            except OSError as error:
                self.lost.append(f"asking: {error!r}")
                return
            if status != 200:
                self.lost.append(f"status {status}")
            self.answered += 1
            is_closing = "connection: close" in head
            self.closing += is_closing
            if is_closing or not self.keep_alive:
                raw.close()
                raw = None

    def end(self):
        for thread in self.threads:
            thread.join()


def test_a_server_under_load_that_is_told_to_stop_answers_all_it_has_accepted(folders, tmp_path):
    server = Process(
        "--model", str(folders / "bi"), "--drain-seconds", "30", log=tmp_path / "log"
    )  # fmt: skip
    try:
        port = server.port_while_loading()
        assert Raw(port).ask("/health")[0] == 200
        status, head, body = Raw(port).ask("/ready")
        if status != 200:
            assert (status, json.loads(body)["error"]["code"]) == (503, "loading")
            assert "retry-after" in head
        facts = server.facts()
        assert facts["url"] == f"http://127.0.0.1:{port}"
        assert [model["name"] for model in facts["models"]] == ["bi"]
        loads = [Load(port, 4, keep_alive=True), Load(port, 4, keep_alive=False)]
        time.sleep(0.5)
        server.send(signal.SIGTERM)
        until(lambda: Raw(port).ask("/ready")[0] == 503)
        status, head, body = Raw(port).ask("/ready")
        assert (status, json.loads(body)["error"]["code"]) == (503, "draining")
        assert "connection: close" in head
        assert Raw(port).ask("/v1/models")[0] == 200
        server.send(signal.SIGTERM)
        for load in loads:
            load.end()
            assert load.lost == []
            assert load.answered > 20
            assert load.closing > 4
        assert server.ended() == (0, b"")
        lines = [json.loads(line) for line in server.log.read_text().splitlines()]
        answered = [line for line in lines if line["message"] == "request"]
        assert len(answered) >= sum(load.answered for load in loads)
        assert {line["route"] for line in answered} >= {"/v1/embeddings", "/v1/models"}
        assert {line["level"] for line in lines} == {"info"}
    finally:
        server.kill()


@pytest.fixture
def slow(bi):
    """An app with a route that takes a while, and the times at which it was called."""
    app = create_app(Pipeline({"bi": bi}), ServerConfig())

    @app.get("/slow")
    def wait():
        time.sleep(0.3)
        return {"waited": True}

    return app


def test_what_is_under_way_is_answered_although_nothing_more_is_accepted(slow):
    with running(slow) as server:
        raw = Raw(server.port)
        raw.send(b"GET /slow HTTP/1.1\r\nHost: x\r\n\r\n")
        time.sleep(0.1)
        server.signal()
        status, head, body = raw.answer()
        assert (status, json.loads(body)) == (200, {"waited": True})
        assert "connection: close" in head
        until(lambda: not accepts(server.port))


def test_an_idle_connection_may_send_a_last_request(slow):
    with running(slow, last_call_seconds=10) as server:
        raw = Raw(server.port)
        assert raw.ask("/health")[0] == 200
        server.signal()
        until(lambda: not accepts(server.port))
        status, head, _ = raw.ask("/v1/models")
        assert status == 200
        assert "connection: close" in head
        assert raw.hangs_up()


def test_connections_that_the_system_has_taken_are_served(slow):
    """They wait in the queue of the socket while the event loop is busy."""
    app = slow

    @app.get("/busy")
    async def hold():
        time.sleep(0.3)
        return {}

    with running(app) as server:
        busy = Raw(server.port).send(b"GET /busy HTTP/1.1\r\nHost: x\r\n\r\n")
        time.sleep(0.1)
        waiting = [Raw(server.port) for _ in range(5)]
        for raw in waiting:
            raw.send(b"GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n")
        server.signal()
        assert busy.answer()[0] == 200
        assert [raw.answer()[0] for raw in waiting] == [200] * 5


def test_a_second_signal_ends_the_time_for_draining(slow):
    with running(slow, drain_seconds=60) as server:
        server.signal()
        assert Raw(server.port).ask("/ready")[0] == 503
        server.signal()
        until(lambda: not accepts(server.port))


def test_a_request_that_does_not_end_is_given_up(bi):
    app = create_app(Pipeline({"bi": bi}), ServerConfig())
    with running(app, timeout=0.1) as server:
        raw = Raw(server.port)
        raw.send(b"POST /v1/embeddings HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{")
        time.sleep(0.1)
        server.signal()
        with pytest.raises(OSError):  # noqa: PT011
            raw.answer()


def test_sighup_reads_keys_models_and_the_index_again(folders, poly, tmp_path):
    index = tmp_path / "index"
    Index.build(poly, ["read a file"], index).close()
    keys = tmp_path / "keys"
    keys.write_text("old\n")
    server = Process("--index", str(index), "--api-key-file", str(keys), log=tmp_path / "log")
    try:
        port = server.port_while_loading()
        assert server.facts()["needs_key"]
        raw = Raw(port)
        assert raw.ask("/v1/models", None, "Authorization: Bearer old")[0] == 200
        keys.write_text("new\n")
        shutil.rmtree(index)
        Index.build(poly, ["sort a list", "print a line"], index).close()
        server.send(signal.SIGHUP)
        until(lambda: '"reloaded"' in server.log.read_text())
        assert raw.ask("/v1/models", None, "Authorization: Bearer old")[0] == 401
        search = json.dumps({"context": "a", "top_k": 5}).encode()
        status, _, body = raw.ask("/search", search, "Authorization: Bearer new")
        assert status == 200
        texts = {hit["text"] for hit in json.loads(body)["results"][0]["hits"]}
        assert texts == {"sort a list", "print a line"}
        keys.write_text("")
        shutil.rmtree(index)
        server.send(signal.SIGHUP)
        until(lambda: "models and the index stay" in server.log.read_text())
        assert "the keys stay as they are" in server.log.read_text()
        assert raw.ask("/search", search, "Authorization: Bearer new")[0] == 200
        assert "Bearer" not in server.log.read_text()
        server.send(signal.SIGTERM)
        server.send(signal.SIGTERM)
    finally:
        server.kill()


def test_ctrl_c_while_loading_ends_at_once(folders, tmp_path):
    server = Process("--model", str(folders / "bi"), log=tmp_path / "log")
    try:
        server.port_while_loading()
        server.send(signal.SIGINT)
        code, rest = server.ended()
        assert code == 130
        assert json.loads(rest)["error"]["type"] == "Interrupted"
        assert "Interrupted." in server.log.read_text()
    finally:
        server.kill()


def test_a_socket_that_is_taken_is_named_before_anything_is_loaded():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        command = [sys.executable, "-X", "importtime", "-m", "polyrank", "serve"]
        run = subprocess.run(
            [*command, "--model", "nowhere", "--port", str(port)],
            capture_output=True,
            text=True,
            check=False,
        )
    assert run.returncode == 2
    assert f"Port {port} of 127.0.0.1 is in use." in run.stderr
    assert " torch\n" not in run.stderr
