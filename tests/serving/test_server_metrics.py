"""What Prometheus reads: where time went, and no more series than routes."""

import threading

import httpx2 as httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families
from running import running

from polyrank.serving.app import create_app
from polyrank.serving.config import ServerConfig
from polyrank.serving.metrics import Metrics, Workers, exposition
from polyrank.serving.pipeline import Pipeline


def samples(text):
    return {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if not sample.name.endswith("_created")
    }


def scraped(server):
    response = httpx.get(f"{server.url}/metrics")
    assert response.headers["content-type"].startswith("text/plain")
    return samples(response.text)


def test_requests_stages_batches_cache_and_index_are_counted(server):
    texts = ["how do i read a file", "sort a list"]
    with httpx.Client(base_url=server.url) as client:
        for _ in range(3):
            client.post("/v1/embeddings", json={"model": "bi", "input": texts})
        ranked = {"model": "bi", "query": "a", "documents": texts}
        for _ in range(2):
            client.post("/v1/rerank", json=ranked)
        client.post("/v1/embeddings", json={"model": "unknown", "input": texts})
    found = scraped(server)
    route = ("endpoint", "/v1/embeddings")
    assert found["polyrank_requests_total", route, ("method", "POST"), ("status", "200")] == 3
    assert found["polyrank_requests_total", route, ("method", "POST"), ("status", "404")] == 1
    for stage, number in (("total", 4), ("model", 3), ("tokenise", 3)):
        name = "polyrank_request_seconds"
        assert found[f"{name}_count", route, ("stage", stage)] == number
        assert found[f"{name}_sum", route, ("stage", stage)] > 0
        assert found[f"{name}_bucket", route, ("le", "60.0"), ("stage", stage)] == number
    assert found["polyrank_tokens_total", route] > 6
    lookups = "polyrank_candidate_cache_lookups_total"
    assert found[lookups, ("result", "hit")] == found[lookups, ("result", "miss")] == 2
    assert found["polyrank_candidate_cache_bytes",] > 0
    assert found["polyrank_index_candidates",] == 6
    assert found["polyrank_queued_tokens",] == 0
    lanes = {dict(key[1:]).get("lane") for key in found if "batch" in key[0]}
    assert "bi candidate" in lanes
    assert found["process_resident_memory_bytes",] > 1e7
    assert found["process_cpu_seconds_total",] > 0


def test_no_request_makes_a_series(bi):
    app = create_app(Pipeline({"bi": bi}), ServerConfig())
    with running(app) as server, httpx.Client(base_url=server.url) as client:
        client.get("/nowhere")
        client.request("STRANGE", "/nowhere")
        client.post("/v1/embeddings", json={"model": "no", "input": "a"})
        before = set(scraped(server))
        before = set(scraped(server))
        for number in range(334):
            client.get(f"/path-{number}?query={number}", headers={"x-note": str(number)})
            client.request(f"STRANGE{number}", f"/other/{number}")
            client.post("/v1/embeddings", json={"model": f"model-{number}", "input": "a"})
        assert set(scraped(server)) == before


def test_two_apps_share_no_series(bi):
    first, second = (create_app(Pipeline({"bi": bi}), ServerConfig()) for _ in range(2))
    with running(first) as one, running(second) as other:
        httpx.get(f"{one.url}/v1/models")
        keys = [key for key in scraped(other) if ("endpoint", "/v1/models") in key]
        assert keys == []


def test_processes_are_told_apart():
    told = []
    for worker in range(2):
        metrics = Metrics()
        metrics.batch("bi context", "model", items=2 + worker, tokens=5, padded=6, seconds=0.1)
        told.append((worker, metrics.plain()))
    text = exposition(Workers(told)).decode()
    assert text.count("# TYPE polyrank_batch_items histogram") == 1
    found = samples(text)
    for worker in range(2):
        key = ("polyrank_batch_items_sum", ("lane", "bi context"), ("worker", str(worker)))
        assert found[key] == 2 + worker


@pytest.mark.parametrize("gone", ["compute thread", "store"])
def test_a_server_that_cannot_compute_or_search_is_not_ready(server, monkeypatch, gone):
    runtime = server.app.state.runtime
    if gone == "store":
        monkeypatch.setattr(type(runtime.pipeline.index), "__len__", down)
    else:
        runtime.scheduler.close()
    response = httpx.get(f"{server.url}/ready")
    assert response.status_code == 503
    code = {"compute thread": "stopped", "store": "store_down"}[gone]
    assert response.json()["error"]["code"] == code
    assert httpx.get(f"{server.url}/health").status_code == 200


def test_a_store_that_hangs_is_asked_once_at_a_time(server, monkeypatch):
    asked, answer = [], threading.Event()

    def hang(index):
        asked.append(index)
        answer.wait(30)
        return 0

    monkeypatch.setattr("polyrank.serving.routes.health.STORE_SECONDS", 0.05)
    monkeypatch.setattr(type(server.app.state.runtime.pipeline.index), "__len__", hang)
    try:
        for _ in range(10):
            assert httpx.get(f"{server.url}/ready").status_code == 503
        assert len(asked) == 1
    finally:
        answer.set()


def down(index):
    raise ConnectionError("no route to the store")
