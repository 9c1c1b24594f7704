"""POST /search: the hits of `Index.search` and `RetrieveRerank.search`, over a socket."""

from concurrent.futures import ThreadPoolExecutor

import httpx2 as httpx
import pytest
from running import running

from polyrank.retrieval.index import Index
from polyrank.retrieval.rerank import RetrieveRerank
from polyrank.serving.app import create_app
from polyrank.serving.config import ServerConfig
from polyrank.serving.pipeline import Pipeline

SOME = [
    (
        f"c{n}",
        f"{'sort' if n % 3 else 'print'} the line {n % 40} in python",
        {"n": n, "odd": n % 2 == 1},
    )
    for n in range(60)
]
CONTEXTS = ["how do i sort a list", "the wifi", "print it", "read a file in python"]
DIALOGUE = ["the sound is off", "which kernel", "the old kernel"]


@pytest.fixture(scope="module")
def served(bi, poly, cross, tmp_path_factory):
    """A server of an index that the tests here only read."""
    index = Index.build(poly, SOME, tmp_path_factory.mktemp("search") / "index")
    pipeline = Pipeline({"bi": bi, "poly": poly, "cross": cross}, index=index, reranker="cross")
    with running(create_app(pipeline, ServerConfig(max_items=50))) as server:
        yield server


@pytest.fixture(scope="module")
def own(served, poly):
    """The same index, opened in Python."""
    path = served.app.state.runtime.pipeline.index.path
    with Index.open(path, poly) as index:
        yield index


@pytest.fixture
def client(served):
    with httpx.Client(base_url=served.url) as opened:
        yield opened


def search(client, **body):
    answer = client.post("/search", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def refused(client, status=400, **body):
    answer = client.post("/search", json=body)
    assert answer.status_code == status, answer.text
    return answer.json()["error"]


def plain(hits):
    return [(hit.id, pytest.approx(hit.score, abs=1e-5), hit.text) for hit in hits]


def got(result):
    return [(hit["id"], hit["score"], hit["text"]) for hit in result["hits"]]


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("filter", [None, "n >= 20 and odd == true"])
@pytest.mark.parametrize("context", [CONTEXTS[0], DIALOGUE])
def test_the_hits_are_those_of_the_index(client, own, context, filter, exact):
    (hits,) = own.search([context], 7, filter=filter, exact=exact)
    body = search(client, context=context, top_k=7, filter=filter, exact=exact, rerank=False)
    (result,) = body["results"]
    assert got(result) == plain(hits)
    assert result["report"] == {
        "strategy": hits.report.strategy,
        "num_candidates": 20 if filter else 60,
        "num_scored": hits.report.num_scored,
        "certified": True,
        "num_reranked": 0,
    }
    for hit in result["hits"]:
        assert hit["metadata"] == dict(own.get(hit["id"]).metadata)
    assert (body["model"], body["reranker"]) == ("poly", None)
    assert set(body["times"]) == {"queue", "tokenise", "model", "search"}
    assert min(body["times"].values()) >= 0 < body["times"]["search"]


def test_several_contexts_are_answered_in_their_order(client, own):
    contexts = [*CONTEXTS, DIALOGUE]
    body = search(client, contexts=contexts, top_k=3, rerank=False)
    assert [got(each) for each in body["results"]] == [plain(h) for h in own.search(contexts, 3)]


def test_the_reranker_orders_what_is_found(client, own, cross):
    pipeline = RetrieveRerank(own, cross, num_candidates=9)
    contexts = [*CONTEXTS, DIALOGUE]
    body = search(client, contexts=contexts, top_k=4, num_candidates=9)
    assert [got(each) for each in body["results"]] == [
        plain(h) for h in pipeline.search(contexts, 4)
    ]
    assert body["reranker"] == "cross"
    for result in body["results"]:
        assert result["report"]["num_reranked"] == 9
        for hit in result["hits"]:
            assert hit["metadata"] == dict(own.get(hit["id"]).metadata)


def test_ties_are_broken_as_in_python(client, own):
    (hits,) = own.search([CONTEXTS[0]], 60)
    scores = [hit.score for hit in hits]
    assert len(set(scores)) < 60  # texts that occur twice
    (result,) = search(client, context=CONTEXTS[0], top_k=60, rerank=False)["results"]
    assert [hit["id"] for hit in result["hits"]] == [hit.id for hit in hits]
    (result,) = search(client, context=CONTEXTS[0], top_k=11, rerank=False)["results"]
    assert [hit["id"] for hit in result["hits"]] == [hit.id for hit in hits[:11]]


def test_more_hits_than_candidates_are_all_of_them(client):
    (result,) = search(client, context="x", top_k=400, rerank=False)["results"]
    assert len(result["hits"]) == 60
    (result,) = search(client, context="x", filter="n > 1000", rerank=True)["results"]
    assert (result["hits"], result["report"]["num_candidates"]) == ([], 0)


def test_many_at_once_get_their_own_hits(client, served, own):
    contexts = [f"{word} the {thing}" for word in ("sort", "print", "read") for thing in "abcdef"]
    asked = [(each, k, f) for each in contexts for k in (2, 5) for f in (None, "odd == true")]
    right = [own.search([context], k, filter=f)[0] for context, k, f in asked]

    def ask(one):
        context, top_k, filter = one
        with httpx.Client(base_url=served.url, timeout=60) as opened:
            return search(opened, context=context, top_k=top_k, filter=filter, rerank=False)

    with ThreadPoolExecutor(12) as pool:
        answers = list(pool.map(ask, asked))
    assert [got(answer["results"][0]) for answer in answers] == [plain(hits) for hits in right]


def test_contexts_of_several_requests_are_one_search(served, poly, monkeypatch):
    """While one search is under way, others of the same kind gather."""
    live = served.app.state.runtime.live
    sizes, search_together = [], live.engine.search

    def counted(contexts, *given, **named):
        sizes.append(len(contexts))
        return search_together(contexts, *given, **named)

    monkeypatch.setattr(live.engine, "search", counted)
    many = {"contexts": CONTEXTS * 10, "top_k": 2, "rerank": False}
    with ThreadPoolExecutor(8) as pool, httpx.Client(base_url=served.url, timeout=60) as opened:
        list(pool.map(lambda _: search(opened, **many), range(8)))
    assert sum(sizes) == 320
    assert max(sizes) > 1
    assert len(sizes) < 320


@pytest.mark.parametrize(
    ("body", "param", "words"),
    [
        ({}, "context", "neither is there"),
        ({"context": "a", "contexts": ["b"]}, "context", "both are there"),
        ({"context": ""}, "context", ""),
        ({"context": []}, "context", ""),
        ({"contexts": ["a", ["", ""]]}, "contexts", "contexts[1] is empty"),
        ({"contexts": []}, "contexts", ""),
        ({"context": "a", "topk": 3}, "topk", "Did you mean 'top_k'?"),
        ({"context": 3}, "context", "3"),
        ({"context": ["a", 3]}, "context", "3"),
        ({"context": "a", "top_k": 0}, "top_k", "top_k"),
        ({"context": "a", "top_k": "3"}, "top_k", "top_k"),
        ({"context": "a", "top_k": True}, "top_k", "top_k"),
        ({"context": "a", "num_candidates": -1}, "num_candidates", "num_candidates"),
        ({"context": "a", "exact": "yes"}, "exact", "exact"),
        ({"context": "a", "filter": "n >"}, "filter", "cannot be read"),
        ({"context": "a", "filter": "m == 1"}, "filter", "no field 'm'"),
        ({"context": "a", "filter": 'n == "one"'}, "filter", "'n'"),
        ({"context": "a", "filter": "__import__('os')"}, "filter", "cannot be read"),
        ({"context": "a", "filter": "(" * 3000}, "filter", "filter"),
    ],
)
def test_what_cannot_be_understood(client, body, param, words):
    error = refused(client, **body)
    assert error["type"] == "invalid_request_error"
    assert error["param"].split("[")[0].split(".")[0] == param
    assert words in error["message"]


def test_too_much(client):
    assert "51 items" in refused(client, 413, contexts=["a"] * 51, top_k=1)["message"]
    assert "hits" in refused(client, 413, contexts=["a"] * 50, top_k=11, rerank=False)["message"]


def test_a_server_without_an_index_or_a_reranker(models, poly, tmp_path):
    with httpx.Client(base_url=models.url) as client:
        assert refused(client, 404, context="a")["code"] == "no_index"
        body = {"candidates": [{"id": "a", "text": "b"}]}
        assert client.put("/candidates", json=body).status_code == 404
    index = Index.build(poly, ["a", "b"], tmp_path / "only")
    with (
        running(create_app(Pipeline({}, index=index), ServerConfig())) as server,
        httpx.Client(base_url=server.url) as client,
    ):
        body = search(client, context="a")
        assert (body["model"], body["reranker"]) == ("only", None)
        assert refused(client, context="a", rerank=True)["code"] == "no_reranker"


def test_an_index_with_a_structure(poly, tmp_path):
    texts = [f"line {n} of the file {n % 97}" for n in range(1200)]
    path = tmp_path / "index"
    index = Index.build(poly, texts, path, backend="hnsw")
    with (
        Index.open(path, poly) as own,
        running(create_app(Pipeline({"poly": poly}, index=index), ServerConfig())) as server,
        httpx.Client(base_url=server.url) as client,
    ):
        for exact in (False, True):
            (result,) = search(client, context="the line 7", top_k=5, exact=exact)["results"]
            (hits,) = own.search(["the line 7"], 5, exact=exact)
            assert got(result) == plain(hits)
            assert result["report"]["certified"] is exact
