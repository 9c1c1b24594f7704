"""The calls of the `cohere` package."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

import cohere
from calls import Server, ranking, refusal, run, vectors


def v1(server: Server) -> cohere.Client:
    """The client of Cohere's first API."""
    return cohere.Client(base_url=server.url, api_key=server.key, max_retries=0)


def v2(server: Server, path: str = "") -> cohere.ClientV2:
    """The client of Cohere's second API."""
    return cohere.ClientV2(base_url=server.url + path, api_key=server.key, max_retries=0)


def ranked(answer: Any, model: str, **expected: Any) -> dict[str, Any]:
    """The places and scores of a rerank answer."""
    found = [(each.index, each.relevance_score) for each in answer.results]
    return ranking(found, model, **expected)


def rerank(server: Server, model: str) -> dict[str, Any]:
    """Rerank the texts with any architecture."""
    answer = v2(server).rerank(model=model, query=server.query, documents=server.texts)
    return ranked(answer, model)


def with_documents(server: Server) -> dict[str, Any]:
    """The first API takes documents as objects, and gives them back."""
    documents = [{"title": str(n), "text": text} for n, text in enumerate(server.texts)]
    answer = v1(server).rerank(
        model="cross", query=server.query, documents=documents, top_n=2, return_documents=True
    )
    assert [each.document.text for each in answer.results] == [
        server.texts[each.index] for each in answer.results
    ]
    return ranked(answer, "cross", top_n=2)


def under_v1(server: Server) -> dict[str, Any]:
    """A base address that ends in /v1, as OpenAI's does: the client appends /v2/rerank."""
    answer = v2(server, "/v1").rerank(model="cross", query=server.query, documents=server.texts)
    return ranked(answer, "cross")


def embed(server: Server, side: str, **extra: Any) -> dict[str, Any]:
    """Embed with the second API."""
    texts = [server.query] if side == "context" else server.texts
    kind = {"context": "search_query", "candidate": "search_document"}[side]
    answer = v2(server).embed(
        model="bi", texts=texts, input_type=kind, embedding_types=["float"], **extra
    )
    return vectors(answer.embeddings.float, side)


def embed_v1(server: Server) -> dict[str, Any]:
    """Embed with the first API, which cuts the texts into requests of 96."""
    answer = v1(server).embed(model="bi", texts=server.texts, input_type="search_document")
    return vectors(answer.embeddings, "candidate")


run(
    {"cohere": version("cohere")},
    {
        "ClientV2.rerank, cross": lambda server: rerank(server, "cross"),
        "ClientV2.rerank, poly": lambda server: rerank(server, "poly"),
        "ClientV2.rerank, bi": lambda server: rerank(server, "bi"),
        "ClientV2.rerank, top_n": lambda server: ranked(
            v2(server).rerank(model="poly", query=server.query, documents=server.texts, top_n=2),
            "poly", top_n=2,
        ),
        "ClientV2.rerank, base ends in /v1": under_v1,
        "Client.rerank": lambda server: ranked(
            v1(server).rerank(model="cross", query=server.query, documents=server.texts), "cross"
        ),
        "Client.rerank, objects": with_documents,
        "ClientV2.embed": lambda server: embed(server, "candidate"),
        "ClientV2.embed, query": lambda server: embed(server, "context"),
        "Client.embed": embed_v1,
        "unknown model": lambda server: refusal(
            lambda: v2(server).rerank(model="crosss", query="a", documents=["b"]),
            "NotFoundError", "404", "cross",
        ),
        "wrong key": lambda server: refusal(
            lambda: cohere.ClientV2(base_url=server.url, api_key="wrong", max_retries=0).rerank(
                model="cross", query="a", documents=["b"]
            ),
            "UnauthorizedError", "401",
        ),
        "a query for a poly-encoder's vectors": lambda server: refusal(
            lambda: v2(server).embed(
                model="poly", texts=["a"], input_type="search_query", embedding_types=["float"]
            ),
            "BadRequestError", "/rerank",
        ),
    },
)  # fmt: skip
