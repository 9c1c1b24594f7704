"""Upserts, deletions and questions about candidates, while others search."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import httpx2 as httpx
import pytest
from running import running

from polyrank.errors import StorageError
from polyrank.retrieval.index import Index
from polyrank.retrieval.store.commit import changing
from polyrank.serving import group_commit
from polyrank.serving.app import create_app
from polyrank.serving.config import ServerConfig
from polyrank.serving.group_commit import Delete, Pending, Upsert, runs_of
from polyrank.serving.scheduling.flow import Flow


@pytest.fixture(autouse=True)
def unflushed(monkeypatch):
    """Without waiting for the disk, which these properties do not need."""
    monkeypatch.setattr("os.fsync", lambda _: None)


@pytest.fixture
def client(server):
    with httpx.Client(base_url=server.url, timeout=60) as opened:
        yield opened


@pytest.fixture
def live(server):
    return server.app.state.runtime.live


def good(answer):
    assert answer.status_code == 200, answer.text
    return answer.json()


def upsert(client, *candidates, status=200):
    given = [dict(zip(("id", "text", "metadata"), each, strict=False)) for each in candidates]
    answer = client.put("/candidates", json={"candidates": given})
    assert answer.status_code == status, answer.text
    return answer.json()


def delete(client, *identifiers):
    return good(client.post("/candidates/delete", json={"ids": list(identifiers)}))


def found(client, context, **body):
    answer = client.post("/search", json={"context": context, "rerank": False, **body})
    return [hit["id"] for hit in good(answer)["results"][0]["hits"]]


def stored(path, poly):
    """What is on disk, whole."""
    with Index.open(path, poly) as index:
        index.verify()
        return {each.id: (each.text, dict(each.metadata)) for each in index}


@contextmanager
def held(live):
    """Nothing is committed until the end of the block; what is sent meanwhile is one group."""
    entered, go = threading.Event(), threading.Event()
    add, remove = live.engine.add, live.engine.delete

    def waiting(work):
        def run(*given, **named):
            entered.set()
            assert go.wait(30)
            return work(*given, **named)

        return run

    live.engine.add, live.engine.delete = waiting(add), waiting(remove)
    try:
        yield entered
    finally:
        go.set()
        live.engine.add, live.engine.delete = add, remove


def test_what_was_acknowledged_is_on_disk_and_found(client, live, poly):
    answer = upsert(
        client, ("g", "a fresh line", {"year": 2025, "topic": "file"}), ("a", "changed")
    )
    assert answer == {"upserted": 2, "total": 7}
    assert found(client, "a fresh line", top_k=1) == ["g"]
    assert found(client, "x", filter="year == 2025") == ["g"]
    assert good(client.get("/candidates/g")) == {
        "id": "g",
        "text": "a fresh line",
        "metadata": {"year": 2025, "topic": "file"},
    }
    assert delete(client, "b", "nothing", "b", "c") == {
        "deleted": 2,
        "missing": ["nothing"],
        "total": 5,
    }
    assert set(found(client, "x")) == {"a", "d", "e", "f", "g"}
    there = stored(live.index.path, poly)
    assert set(there) == {"a", "d", "e", "f", "g"}
    assert there["a"] == ("changed", {})


def test_the_vectors_are_those_that_python_would_store(client, live, poly, tmp_path):
    added = [("n1", "sort the new file"), ("n2", "boot"), ("n3", "sort the new file")]
    upsert(client, *added)
    same = Index.build(poly, added, tmp_path / "same")
    for name, text in added:
        (right,) = same.search([text], 1, filter=None)
        answer = client.post("/search", json={"context": text, "top_k": 9, "rerank": False})
        scores = {hit["id"]: hit["score"] for hit in good(answer)["results"][0]["hits"]}
        assert scores[name] == pytest.approx(right[0].score, abs=1e-5)


def test_one_candidate(client):
    assert good(client.delete("/candidates/a")) == {"deleted": 1, "missing": [], "total": 5}
    for answer in (client.get("/candidates/a"), client.delete("/candidates/a")):
        assert answer.status_code == 404
        assert answer.json()["error"]["code"] == "candidate_not_found"
    upsert(client, ("a/b c?", "with a slash"))
    assert good(client.get("/candidates/a/b%20c%3F"))["id"] == "a/b c?"


@pytest.mark.parametrize(
    ("candidates", "words"),
    [
        ([], "candidates"),
        ([{"id": "x"}], "candidates[0].text"),
        ([{"id": 1, "text": "t"}], "candidates[0].id"),
        ([{"id": "", "text": "t"}], "candidates[0].id"),
        ([{"id": "x", "text": ""}], "candidates[0].text"),
        ([{"id": "x", "text": "t"}, {"id": "x", "text": "u"}], "the id of candidates[0]"),
        ([{"id": "x", "text": "t", "metadata": {"class": 1}}], "filters cannot use"),
        ([{"id": "x", "text": "t", "metadata": {"a": [1]}}], "candidates[0]"),
        ([{"id": "x", "text": "t", "metadata": {"a": 2**60}}], "2**53"),
        ([{"id": "x", "text": "t", "metadata": {"year": "late"}}], "'year'"),
        ([{"id": "x", "text": "t", "metadata": [1]}], "metadata"),
    ],
)
def test_wrong_candidates_change_nothing(client, candidates, words):
    answer = client.put("/candidates", json={"candidates": candidates})
    assert answer.status_code == 400, answer.text
    assert words in answer.json()["error"]["message"]
    assert len(found(client, "x")) == 6


def test_wrong_deletions(client):
    for body in ({}, {"ids": []}, {"ids": "a"}, {"ids": [1]}, {"ids": [None]}):
        answer = client.post("/candidates/delete", json=body)
        assert answer.status_code == 400, answer.text
    assert len(found(client, "x")) == 6


def test_a_group_is_one_commit_and_a_wrong_candidate_fails_alone(client, live, server, poly):
    def put(body):
        with httpx.Client(base_url=server.url, timeout=60) as own:
            return own.put("/candidates", json={"candidates": body})

    def body(n):
        return [{"id": f"new{n}", "text": f"line {n}"}, {"id": f"also{n}", "text": "the line"}]

    generation = live.engine.manifest.generation
    with ThreadPoolExecutor(20) as pool:
        with held(live) as entered:
            first = pool.submit(put, body(0))
            assert entered.wait(30)
            others = [pool.submit(put, body(n)) for n in range(1, 9)]
            until(lambda: live.commits._inbox.qsize() == 8)
        answers = [each.result() for each in (first, *others)]
        assert [answer.status_code for answer in answers] == [200] * 9
        assert live.engine.manifest.generation - generation <= 4  # two commits, and their merges
        wrong = [
            {"id": "bad", "text": "t"},
            {"id": "worse", "text": "t", "metadata": {"year": "x"}},
        ]
        with held(live) as entered:
            first = pool.submit(put, body(9))
            assert entered.wait(30)
            others = [pool.submit(put, wrong if n == 12 else body(n)) for n in range(10, 15)]
            until(lambda: live.commits._inbox.qsize() == 5)
        answers = [each.result() for each in (first, *others)]
    assert [answer.status_code for answer in answers] == [200, 200, 200, 400, 200, 200]
    there = set(stored(live.index.path, poly))
    assert {f"new{n}" for n in range(15) if n != 12} <= there
    assert not there & {"bad", "worse", "new12"}


def until(condition):
    for _ in range(3000):
        if condition():
            return
        threading.Event().wait(0.01)
    raise AssertionError("it did not come")


def test_changes_of_one_candidate_keep_their_order():
    def pending(change):
        return Pending(change, Flow.lasting(1))

    class Named:
        def __init__(self, id):
            self.id = id

    def add(*names):
        return pending(Upsert([Named(name) for name in names], []))

    def drop(*names):
        return pending(Delete(frozenset(names)))

    one, two, three, four, five = add("a"), drop("b"), add("c"), drop("a"), add("a", "d")
    assert runs_of([one, two, three, four, five]) == [[one, three], [two, four], [five]]
    six, seven, eight = drop("a"), add("a"), drop("b")
    assert runs_of([six, seven, eight]) == [[six, eight], [seven]]
    assert runs_of([add("a"), drop("a"), add("b")])[1:] != []


def test_writers_and_readers_at_once(server, live, poly):
    """Whatever a search shows was committed as a whole; whatever was acknowledged is there."""
    names = [f"w{n}" for n in range(4)]
    stop = threading.Event()
    faults = []

    def write(name):
        with httpx.Client(base_url=server.url, timeout=60) as own:
            for version in range(6):
                texts = {"id": f"{name}/1"}, {"id": f"{name}/2"}
                given = [
                    {**each, "text": f"{name} {version}", "metadata": {"version": version}}
                    for each in texts
                ]
                good(own.put("/candidates", json={"candidates": given}))
                seen = found(own, "x", filter=f"version == {version}", top_k=20)
                if not {f"{name}/1", f"{name}/2"} <= set(seen):
                    faults.append((name, version, seen))
                if version % 2:
                    delete(own, f"{name}/1", f"{name}/2", "nothing")

    def read():
        with httpx.Client(base_url=server.url, timeout=60) as own:
            while not stop.is_set():
                body = {"context": "line", "top_k": 30, "rerank": False}
                hits = good(own.post("/search", json=body))["results"][0]["hits"]
                seen = {hit["id"]: (hit["text"], hit["metadata"].get("version")) for hit in hits}
                for name in names:
                    if seen.get(f"{name}/1") != seen.get(f"{name}/2"):
                        faults.append(seen)
                for key, (text, version) in seen.items():
                    if "/" in key and text != f"{key[:2]} {version}":
                        faults.append(seen)

    with ThreadPoolExecutor(8) as pool:
        readers = [pool.submit(read) for _ in range(2)]
        list(pool.map(write, names))
        stop.set()
        for each in readers:
            each.result()
    assert not faults
    assert set(stored(live.index.path, poly)) == set("abcdef")


def test_what_another_process_commits_is_seen(client, live, poly):
    with Index.open(live.index.path, poly) as other:
        other.add([("other", "from elsewhere")])
        assert found(client, "from elsewhere", top_k=1) == ["other"]
        other.delete(["other"])
        assert client.get("/candidates/other").status_code == 404
        upsert(client, ("mine", "from here"))
        other.refresh()
        assert other.get("mine").text == "from here"


def test_another_process_that_changes_the_index_is_waited_for(client, live, poly, monkeypatch):
    folder, fingerprint = live.index.path, poly.fingerprint()
    with ThreadPoolExecutor(1) as pool:
        with changing(folder, fingerprint):
            waiting = pool.submit(upsert, client, ("late", "in the end"))
            threading.Event().wait(0.2)
            assert not waiting.done()
        assert waiting.result()["total"] == 7
    monkeypatch.setattr(group_commit, "LONGEST_WAIT", 0.1)
    with changing(folder, fingerprint):
        answer = client.put("/candidates", json={"candidates": [{"id": "x", "text": "y"}]})
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
        assert answer.json()["error"]["code"] == "index_locked"
        assert len(found(client, "x")) == 7


def test_a_full_disk(client, live, monkeypatch):
    def full(*_, **__):
        raise StorageError("Writing failed: No space left on device.", "Free some.")

    with monkeypatch.context() as patch:
        patch.setattr(live.engine, "add", full)
        answer = client.put("/candidates", json={"candidates": [{"id": "x", "text": "y"}]})
        assert answer.status_code == 503
        assert answer.json()["error"]["code"] == "store_unavailable"
        assert len(found(client, "x")) == 6
    assert upsert(client, ("x", "y"))["total"] == 7


def test_a_request_that_nobody_waits_for_is_not_begun(live):
    async def main():
        with held(live) as entered:
            first = asyncio.create_task(live.change(Delete(frozenset("a")), Flow.lasting(60)))
            assert await asyncio.to_thread(entered.wait, 30)
            gone = asyncio.create_task(live.change(Delete(frozenset("b")), Flow.lasting(60)))
            late = asyncio.create_task(live.change(Delete(frozenset("c")), Flow.lasting(0.01)))
            await asyncio.sleep(0.05)
            gone.cancel()
            await asyncio.gather(gone, return_exceptions=True)
        with pytest.raises(Exception, match="deadline"):
            await late
        return await first

    assert asyncio.run(main()).count == 1
    assert live.engine.present("abc") == {"b", "c"}


def test_a_store_that_does_not_answer_in_time(live):
    flow = Flow.lasting(0.05)
    with pytest.raises(StorageError, match="in time"):
        asyncio.run(live.apart(lambda: threading.Event().wait(0.3), flow))
    assert flow.times.search > 0


def test_a_server_that_takes_no_changes(pipeline):
    with (
        running(create_app(pipeline, ServerConfig(read_only=True))) as server,
        httpx.Client(base_url=server.url) as client,
    ):
        for answer in (
            client.put("/candidates", json={"candidates": [{"id": "x", "text": "y"}]}),
            client.post("/candidates/delete", json={"ids": ["a"]}),
            client.delete("/candidates/a"),
        ):
            assert answer.status_code == 403
            assert answer.json()["error"]["type"] == "permission_error"
        assert good(client.get("/candidates/a"))["id"] == "a"
        assert len(found(client, "x")) == 6
