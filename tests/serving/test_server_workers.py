"""Several processes on one socket, as users start them."""

import signal

import httpx2 as httpx
import psutil
import pytest
from prometheus_client.parser import text_string_to_metric_families
from running import Process, Raw, until
from test_signals import EMBEDDINGS

from polyrank.errors import DataError
from polyrank.retrieval.index import Index
from polyrank.serving.workers import ABSENT, LOADING, READY, Board, told


class Arrays:
    """Stands in for the memory that processes share."""

    @staticmethod
    def RawArray(kind, size):  # noqa: N802
        return [0] * size


@pytest.mark.parametrize(
    ("states", "connections", "accepting"),
    [
        ([READY, READY], [3, 2], [False, True]),
        ([READY, READY], [2, 2], [True, True]),
        ([READY, ABSENT], [9, 0], [True, False]),
        ([LOADING, LOADING], [5, 0], [True, True]),
        ([READY, LOADING], [9, 0], [True, False]),
    ],
)
def test_the_process_with_fewest_connections_takes_the_next(states, connections, accepting):
    board = Board(2, Arrays)
    board.states[:], board.connections[:] = states, connections
    assert [board.may_accept(n) for n in range(2) if states[n]] == [
        accepting[n] for n in range(2) if states[n]
    ]


KEY = "sk-xq7secret"
HEADER = f"Authorization: Bearer {KEY}"


def by_worker(port, name, route="/v1/embeddings"):
    """A metric of each process, for one route where it has several."""
    status, _, body = Raw(port).ask("/metrics", None, HEADER)
    assert status == 200
    return {
        sample.labels["worker"]: sample.value
        for family in text_string_to_metric_families(body.decode())
        for sample in family.samples
        if sample.name == name and sample.labels.get("endpoint", route) == route
    }


def test_processes_share_the_work_and_one_that_dies_is_replaced(folders, tmp_path):
    server = Process(
        "--model", str(folders / "bi"), "--workers", "2", "--drain-seconds", "0",
        "--api-key", KEY,
        log=tmp_path / "log",
    )  # fmt: skip
    try:
        port = server.port_while_loading()
        facts = server.facts()
        assert (facts["workers"], facts["pid"]) == (2, server.process.pid)
        kept = [Raw(port) for _ in range(8)]
        for raw in kept:
            assert raw.ask("/v1/embeddings", EMBEDDINGS, HEADER)[0] == 200
        counts = by_worker(port, "polyrank_requests_total")
        assert counts.keys() == {"0", "1"}
        assert sum(counts.values()) == 8
        assert min(counts.values()) >= 3

        workers = [
            child
            for child in psutil.Process(server.process.pid).children()
            if "resource_tracker" not in " ".join(child.cmdline())
        ]
        assert len(workers) == 2
        assert not any(KEY in " ".join(worker.cmdline()) for worker in workers)
        assert kept[0].ask("/reload", b"", HEADER)[0] == 200
        until(lambda: '"reloaded"' in server.log.read_text())  # the other process
        for raw in kept:
            raw.close()
        workers[0].kill()
        psutil.wait_procs(workers[:1], timeout=10)
        for _ in range(20):  # the other process serves all
            assert Raw(port).ask("/v1/embeddings", EMBEDDINGS, HEADER)[0] == 200
        until(lambda: len(by_worker(port, "process_open_fds")) == 2)

        server.send(signal.SIGINT)
        code, rest = server.ended()
        assert code == 130
        assert b"Interrupted" in rest
        assert "is started again" in server.log.read_text()
        assert "Traceback" not in server.log.read_text()
        assert KEY not in server.log.read_text()
        assert not any(worker.is_running() for worker in workers)
    finally:
        server.kill()


def test_what_one_process_changes_the_others_find(poly, tmp_path):
    path = tmp_path / "index"
    Index.build(poly, [("fixed", "how do i read a file")], path).close()
    server = Process("--index", str(path), "--workers", "2", log=tmp_path / "log")
    try:
        url = server.facts()["url"]
        clients = [httpx.Client(base_url=url, timeout=60) for _ in range(4)]
        known = {"fixed": "how do i read a file"}
        for number, client in enumerate(clients):
            known[f"new{number}"] = f"the file {number}"
            given = {"id": f"new{number}", "text": f"the file {number}"}
            answer = client.put("/candidates", json={"candidates": [given]})
            assert answer.status_code == 200, answer.text
            for other in clients:
                asked = {"context": "the file", "top_k": 9}
                (found,) = other.post("/search", json=asked).json()["results"]
                assert {hit["id"]: hit["text"] for hit in found["hits"]} == known
        searches = by_worker(int(url.rpartition(":")[2]), "polyrank_requests_total", "/search")
        assert min(searches.values()) >= 4
        assert len(searches) == 2
        for client in clients:
            client.close()
    finally:
        server.kill()


def test_what_a_process_tells_of_its_failure(caplog):
    """What users can mend is said to them; the frames of a bug are in the log."""
    with caplog.at_level("ERROR"):
        said = told(RuntimeError("unable to mmap 8 bytes: Cannot allocate memory (12)"))
        assert str(said).startswith("There is not enough memory: unable to mmap 8 bytes")
        assert str(told(DataError("It is empty.", "Fill it."))) == "It is empty. Fill it."
        assert not caplog.records
        assert "KeyError. The log says where." in str(told(KeyError("secret")))
        assert len(caplog.records) == 1


def test_a_model_that_no_process_can_load_ends_them_all(tmp_path):
    server = Process("--model", str(tmp_path / "none"), "--workers", "2", log=tmp_path / "log")
    try:
        code, rest = server.ended()
        assert code == 2
        assert b"ModelError" in rest
    finally:
        server.kill()
