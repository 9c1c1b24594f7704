"""Haystack's own components for OpenAI, and its integrations of TEI, Cohere and Jina."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

from calls import Server, ranking, refusal, run, vectors
from haystack import Document
from haystack.components.embedders import OpenAIDocumentEmbedder, OpenAITextEmbedder
from haystack.utils import Secret
from haystack_integrations.components.embedders.cohere import (
    CohereDocumentEmbedder,
    CohereTextEmbedder,
)
from haystack_integrations.components.embedders.huggingface_api import (
    HuggingFaceAPIDocumentEmbedder,
    HuggingFaceAPITextEmbedder,
)
from haystack_integrations.components.embedders.jina import JinaDocumentEmbedder
from haystack_integrations.components.rankers.cohere import CohereRanker
from haystack_integrations.components.rankers.huggingface_api import HuggingFaceTEIRanker
from haystack_integrations.components.rankers.jina import JinaRanker

PACKAGES = ("haystack-ai", "cohere-haystack", "jina-haystack", "huggingface-api-haystack")
TEI = "text_embeddings_inference"


def documents(server: Server) -> list[Document]:
    """The texts as documents whose id is their place."""
    return [Document(id=str(n), content=text) for n, text in enumerate(server.texts)]


def embedded(server: Server, embedder: Any) -> dict[str, Any]:
    """The vectors of the documents."""
    found = embedder.run(documents(server))["documents"]
    return vectors([document.embedding for document in found], "candidate")


def reranked(server: Server, ranker: Any, model: str) -> dict[str, Any]:
    """The documents in the order of a ranker."""
    found = ranker.run(query=server.query, documents=documents(server), top_k=3)["documents"]
    return ranking([(int(each.id), each.score) for each in found], model, top_n=3)


def key(server: Server) -> Secret:
    """The key as Haystack wants it."""
    return Secret.from_token(server.key)


def openai(server: Server) -> dict[str, Any]:
    """What both of its components for OpenAI are given."""
    return {"api_base_url": f"{server.url}/v1", "api_key": key(server), "model": "bi"}


def cohere(server: Server) -> dict[str, Any]:
    """What the components for Cohere are given."""
    return {"api_base_url": server.url, "api_key": key(server)}


def tei(server: Server) -> dict[str, Any]:
    """What the components for text-embeddings-inference are given."""
    return {"api_type": TEI, "api_params": {"url": server.url}, "token": key(server)}


def jina_reranker(server: Server, model: str) -> JinaRanker:
    """The ranker, which wants the whole address."""
    return JinaRanker(model=model, api_key=key(server), base_url=f"{server.url}/v1/rerank")


run(
    {package: version(package) for package in PACKAGES},
    {
        "OpenAIDocumentEmbedder": lambda server: embedded(
            server, OpenAIDocumentEmbedder(**openai(server), progress_bar=False)
        ),
        "OpenAITextEmbedder": lambda server: vectors(
            [OpenAITextEmbedder(**openai(server)).run(server.texts[0])["embedding"]],
            "candidate", first=1,
        ),
        "HuggingFaceAPIDocumentEmbedder": lambda server: embedded(
            server, HuggingFaceAPIDocumentEmbedder(**tei(server), progress_bar=False)
        ),
        "HuggingFaceAPITextEmbedder": lambda server: vectors(
            [HuggingFaceAPITextEmbedder(**tei(server)).run(server.texts[0])["embedding"]],
            "candidate", first=1,
        ),
        "HuggingFaceTEIRanker": lambda server: reranked(
            server, HuggingFaceTEIRanker(url=server.url, token=key(server)), "cross"
        ),
        "CohereDocumentEmbedder": lambda server: embedded(
            server, CohereDocumentEmbedder(**cohere(server), model="bi", progress_bar=False)
        ),
        "CohereTextEmbedder": lambda server: vectors(
            [CohereTextEmbedder(**cohere(server), model="bi").run(server.query)["embedding"]],
            "context",
        ),
        "CohereRanker": lambda server: reranked(
            server, CohereRanker(**cohere(server), model="poly"), "poly"
        ),
        "JinaDocumentEmbedder": lambda server: embedded(
            server,
            JinaDocumentEmbedder(
                model="bi", api_key=key(server), base_url=f"{server.url}/v1/embeddings",
                progress_bar=False,
            ),
        ),
        "JinaRanker": lambda server: reranked(server, jina_reranker(server, "bi"), "bi"),
        "JinaRanker, unknown model": lambda server: refusal(
            lambda: reranked(server, jina_reranker(server, "bee"), "bi"), "RuntimeError", "bee"
        ),
        "HuggingFaceTEIRanker, wrong key": lambda server: refusal(
            lambda: reranked(
                server,
                HuggingFaceTEIRanker(url=server.url, token=Secret.from_token("wrong")),
                "cross",
            ),
            "RuntimeError", "401",
        ),
    },
)  # fmt: skip
