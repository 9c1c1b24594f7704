"""POST /reload, an index that another model has built again, and Milvus that comes and goes."""

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import httpx2 as httpx
import pytest
from running import running

from polyrank.models.poly_encoder import PolyEncoder
from polyrank.retrieval.index import Index
from polyrank.serving.app import create_app
from polyrank.serving.config import PipelineConfig, ServerConfig
from polyrank.serving.pipeline import Pipeline, load_pipeline

TEXTS = ["how do i read a file", "sort a list in python", "sound and screen", "print the last line"]
CONTEXT = "read the last line of a file"


@pytest.fixture(scope="module")
def other(encoder_folder):
    """A poly-encoder with other weights and more vectors per context."""
    folder = encoder_folder("electra")
    return PolyEncoder.from_pretrained(folder, num_codes=6, device="cpu", dtype="float32")


def numbered(prefix):
    return [(f"{prefix}{n}", text, {"by": prefix}) for n, text in enumerate(TEXTS)]


def good(answer):
    assert answer.status_code == 200, answer.text
    return answer.json()


def ask(client):
    return good(client.post("/search", json={"context": CONTEXT, "rerank": False}))


def scores(body):
    (result,) = body["results"]
    return {hit["id"]: pytest.approx(hit["score"], abs=1e-5) for hit in result["hits"]}


def scores_of(model, candidates, path):
    with Index.build(model, candidates, path) as index:
        return {hit.id: hit.score for hit in index.search([CONTEXT], 10)[0]}


def test_an_index_of_another_model_replaces_it_without_a_fault(poly, other, tmp_path):
    path = tmp_path / "index"
    old = scores_of(poly, numbered("old"), path)
    new = scores_of(other, numbered("new"), tmp_path / "new")
    late = {**scores_of(other, [*numbered("new"), ("late", "late")], tmp_path / "late")}
    pipeline = load_pipeline(PipelineConfig(index=path), device="cpu", dtype="float32")
    with (
        running(create_app(pipeline, ServerConfig())) as server,
        httpx.Client(base_url=server.url, timeout=60) as client,
        ThreadPoolExecutor(6) as pool,
    ):
        stop = threading.Event()
        seen = []

        def keep_asking():
            with httpx.Client(base_url=server.url, timeout=60) as own:
                while not stop.is_set():
                    seen.append(scores(ask(own)))

        asking = [pool.submit(keep_asking) for _ in range(3)]
        assert scores(ask(client)) == old
        retired = server.app.state.runtime.live
        Index.build(other, numbered("new"), path).close()
        assert scores(ask(client)) == old  # the old state is still whole
        answer = client.put("/candidates", json={"candidates": [{"id": "late", "text": "late"}]})
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "index_replaced")
        assert good(client.post("/reload")) == {"models": ["index"], "total": 4}
        assert scores(ask(client)) == new
        answer = client.put("/candidates", json={"candidates": [{"id": "late", "text": "late"}]})
        assert good(answer)["total"] == 5
        assert scores(ask(client)) == late
        stop.set()
        for each in asking:
            each.result()
        kinds = [[old, new, late].index(each) for each in seen]  # each is one of them, no mixture
        assert kinds[0] == 0
        eventually(lambda: retired.engine._state is None)


def eventually(condition):
    for _ in range(1000):
        if condition():
            return
        threading.Event().wait(0.01)
    raise AssertionError("it did not come")


def test_a_change_that_meets_a_reload_is_made_in_the_new_index(server, other, poly):
    """Its vectors are those of the model that the index has now."""
    live = server.app.state.runtime.live
    entered, go = threading.Event(), threading.Event()
    add = live.engine.add

    def slow(*given, **named):
        entered.set()
        assert go.wait(60)
        return add(*given, **named)

    live.engine.add = slow
    body = {"candidates": [{"id": "late", "text": "sort the file"}]}
    with ThreadPoolExecutor(1) as pool, httpx.Client(base_url=server.url, timeout=60) as client:
        changing = pool.submit(client.put, "/candidates", json=body)
        assert entered.wait(60)
        Index.build(other, numbered("new"), live.index.path).close()
        with httpx.Client(base_url=server.url, timeout=60) as operator:
            good(operator.post("/reload"))
        go.set()
        assert good(changing.result())["total"] == 5
        found = good(client.post("/search", json={"context": "sort", "rerank": False}))
    fresh = [*numbered("new"), ("late", "sort the file")]
    with Index.build(other, fresh, live.index.path.with_name("fresh")) as index:
        right = {hit.id: hit.score for hit in index.search(["sort"], 10)[0]}
    assert scores(found) == right


def test_what_cannot_be_loaded_leaves_what_is_served(server, poly):
    live = server.app.state.runtime.live
    with httpx.Client(base_url=server.url, timeout=60) as client:
        before = scores(ask(client))
        manifest = live.index.path / "manifest.json"
        kept = manifest.read_bytes()
        manifest.write_text("{")
        answer = client.post("/reload")
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "reload_failed")
        assert str(live.index.path) not in answer.text
        assert scores(ask(client)) == before
        answer = client.put("/candidates", json={"candidates": [{"id": "x", "text": "y"}]})
        assert answer.status_code == 503
        manifest.write_bytes(kept)
        good(client.post("/reload"))
        assert server.app.state.runtime.live is not live
        assert scores(ask(client)) == before
        answer = client.put("/candidates", json={"candidates": [{"id": "x", "text": "y"}]})
        assert good(answer)["total"] == 7


def test_a_server_without_an_index_reloads_its_models(bi):
    with (
        running(create_app(Pipeline({"bi": bi}), ServerConfig())) as server,
        httpx.Client(base_url=server.url) as client,
    ):
        assert good(client.post("/reload")) == {"models": ["bi"], "total": None}
        good(client.post("/v1/embeddings", json={"model": "bi", "input": "yes"}))


@contextmanager
def proxied_milvus(tmp_path, poly, monkeypatch):
    """An index in a Milvus server behind a proxy, which can be cut off and come back."""
    pytest.importorskip("pymilvus", reason="needs the extra milvus")
    pytest.importorskip("milvus_lite", reason="needs the extra milvus")
    from milvus_proxy import Proxy
    from polyrank.retrieval.milvus import connection

    monkeypatch.setenv("POLYRANK_MILVUS_TIMEOUTS", "connect=2,request=2")
    path = tmp_path / "server.db"
    port = int(connection.start_server(path).rsplit(":", 1)[1])
    proxy = Proxy(port)
    address = f"milvus://127.0.0.1:{proxy.listener.getsockname()[1]}/served"
    try:
        Index.build(poly, numbered("m"), tmp_path / "index", backend=address).close()
        yield proxy, Index.open(tmp_path / "index", poly)
    finally:
        proxy.close()
        connection.stop_server(path)


def test_milvus_is_searched_and_changed_and_may_be_down(poly, tmp_path, monkeypatch):
    right = scores_of(poly, numbered("m"), tmp_path / "folder")
    with (
        proxied_milvus(tmp_path, poly, monkeypatch) as (proxy, index),
        running(create_app(Pipeline({"poly": poly}, index=index), ServerConfig())) as server,
        httpx.Client(base_url=server.url, timeout=60) as client,
    ):
        body = ask(client)
        assert scores(body) == right
        assert body["results"][0]["hits"][0]["metadata"] == {"by": "m"}
        added = [{"id": "new", "text": "print the file", "metadata": {"by": "me"}}]
        assert good(client.put("/candidates", json={"candidates": added}))["total"] == 5
        assert good(client.get("/candidates/new"))["metadata"] == {"by": "me"}
        answer = client.post("/candidates/delete", json={"ids": ["new", "none"]})
        assert good(answer) == {"deleted": 1, "missing": ["none"], "total": 4}
        answer = client.post("/search", json={"context": "a", "filter": "nothing == 1"})
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, "filter")
        proxy.flowing.clear()
        with ThreadPoolExecutor(2) as pool:
            stalled = pool.submit(
                httpx.post, f"{server.url}/search", json={"context": "a"}, timeout=60
            )
            model = {"model": "poly", "input": "the cores are free meanwhile"}
            good(client.post("/v1/embeddings", json=model))
            assert not stalled.done()
            for answer in (
                stalled.result(),
                client.post("/candidates/delete", json={"ids": ["m0"]}),
                client.get("/candidates/m0"),
            ):
                assert answer.status_code == 503
                assert answer.headers["retry-after"]
                assert answer.json()["error"]["code"] == "store_unavailable"
        proxy.flowing.set()
        eventually(lambda: client.post("/search", json={"context": "a"}).status_code == 200)
        assert scores(ask(client)).keys() <= right.keys()
