"""kill -9 while clients change the index: whatever was acknowledged is there after a restart."""

import os
import random
import signal
import threading

import httpx2 as httpx
import numpy as np
import pytest
from running import Process

from polyrank.retrieval.index import Index

KILLS = int(os.environ.get("POLYRANK_HOSTILE_KILLS", "2"))
"""More of them take about three seconds each."""
WRITERS = 4
SEED = os.environ.get("POLYRANK_HOSTILE_SEED", "0")
FEWEST = 12
"""Changes that are acknowledged before a kill."""
THINGS = ["file", "list", "kernel", "screen", "line", "package", "driver", "boot"]


class Writer:
    """A client that changes candidates of its own, and knows what it was told."""

    def __init__(self, name):
        self.names = [f"{name}/{n}" for n in range(8)]
        self.draw = random.Random(f"{SEED} {name}")
        self.known = {}
        """The text of each candidate that must be there."""
        self.version = 0
        self.acknowledged = 0
        self.open = None
        """The candidates of the change that was under way at a kill, with their texts; None is a
        deletion."""

    def text(self):
        self.version += 1
        return f"the {self.draw.choice(THINGS)} {self.version} of {self.draw.choice(THINGS)}"

    def run(self, url):
        """Make change after change, until the server is gone."""
        with httpx.Client(base_url=url, timeout=60) as client:
            while True:
                chosen = self.draw.sample(self.names, self.draw.randint(1, 3))
                is_deletion = self.draw.random() < 0.3
                self.open = {name: None if is_deletion else self.text() for name in chosen}
                try:
                    answer = self.send(client, is_deletion)
                except httpx.TransportError:
                    return
                assert answer.status_code == 200, answer.text
                there = set(chosen) & set(self.known)
                if is_deletion:
                    assert answer.json()["deleted"] == len(there)
                self.known.update(self.open)
                self.known = {name: text for name, text in self.known.items() if text is not None}
                self.open = None
                self.acknowledged += 1

    def send(self, client, is_deletion):
        if is_deletion:
            return client.post("/candidates/delete", json={"ids": list(self.open)})
        given = [
            {"id": name, "text": text, "metadata": {"version": self.version}}
            for name, text in self.open.items()
        ]
        return client.put("/candidates", json={"candidates": given})

    def settle(self, there):
        """Compare with what is there; the open change must be there as a whole or not at all."""
        own = {name: text for name, text in there.items() if name in self.names}
        made = {**self.known, **(self.open or {})}
        made = {name: text for name, text in made.items() if text is not None}
        assert own in (self.known, made)
        self.known, self.open = own, None


def stored(path, poly):
    """The texts on disk; the index must be whole, and each vector that of its text."""
    with Index.open(path, poly) as index:
        index.verify()
        cache = index.engine.cache
        rows = cache.live_rows(0)
        found = [cache.candidate(int(row)) for row in rows]
        vectors = poly.encode_candidates_for_scoring([each.text for each in found]).numpy()
        np.testing.assert_allclose(cache.gather(rows).numpy(), vectors, atol=1e-5)
        return {each.id: each.text for each in found}


def require_found(url, known):
    """A search shows exactly the candidates that are there."""
    with httpx.Client(base_url=url, timeout=60) as client:
        body = {"context": "the file of the kernel", "top_k": 200, "exact": True}
        (result,) = client.post("/search", json=body).json()["results"]
    assert {hit["id"]: hit["text"] for hit in result["hits"]} == known


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs kill -9")
def test_what_was_acknowledged_survives_kills(poly, tmp_path, record_property):
    record_property("cases", KILLS)
    path = tmp_path / "index"
    Index.build(poly, [("fixed", "how do i read a file")], path).close()
    writers = [Writer(f"w{n}") for n in range(WRITERS)]
    draw = random.Random(SEED)
    arguments = ("--index", str(path), "--device", "cpu", "--dtype", "float32")
    for number in range(KILLS + 1):
        server = Process(*arguments, log=tmp_path / f"{number}.log")
        try:
            url = server.facts()["url"]
            known = {"fixed": "how do i read a file"}
            for writer in writers:
                known |= writer.known
            require_found(url, known)
            if number == KILLS:
                return
            threads = [threading.Thread(target=each.run, args=(url,)) for each in writers]
            before = sum(each.acknowledged for each in writers)
            for thread in threads:
                thread.start()
            while sum(each.acknowledged for each in writers) < before + FEWEST:
                assert any(thread.is_alive() for thread in threads)
                threading.Event().wait(0.005)
            threading.Event().wait(draw.random() * 0.1)
        finally:
            server.kill()
        for thread in threads:
            thread.join()
        there = stored(path, poly)
        assert there.pop("fixed") == "how do i read a file"
        for writer in writers:
            writer.settle(there)
