"""LangChain: OpenAIEmbeddings, Cohere's and Jina's integrations, Infinity's."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

from calls import Server, ranking, refusal, run, vectors
from infinity_client import Client
from langchain_cohere import CohereEmbeddings, CohereRerank
from langchain_community.document_compressors.infinity_rerank import InfinityRerank
from langchain_community.embeddings import InfinityEmbeddings
from langchain_core.documents import Document
from langchain_openai import OpenAIEmbeddings

PACKAGES = (
    "langchain-openai",
    "langchain-cohere",
    "langchain-community",
    "infinity_client",
)


def openai(server: Server, **extra: Any) -> OpenAIEmbeddings:
    """OpenAI's embeddings; without the switch, LangChain sends the ids of OpenAI's tokeniser."""
    return OpenAIEmbeddings(
        model="bi", base_url=f"{server.url}/v1", api_key=server.key,
        check_embedding_ctx_length=False, **extra,
    )  # fmt: skip


def compressed(server: Server, compressor: Any, model: str) -> dict[str, Any]:
    """The documents in the order of a reranker."""
    documents = [
        Document(page_content=text, metadata={"place": n}) for n, text in enumerate(server.texts)
    ]
    found = compressor.compress_documents(documents, server.query)
    return ranking(
        [(each.metadata["place"], each.metadata["relevance_score"]) for each in found],
        model,
        top_n=3,
    )


def cohere(server: Server) -> CohereEmbeddings:
    """Cohere's embeddings."""
    return CohereEmbeddings(model="bi", base_url=server.url, cohere_api_key=server.key)


def infinity(url: str) -> InfinityEmbeddings:
    """Infinity's embeddings, which send no key."""
    return InfinityEmbeddings(model="bi", infinity_api_url=f"{url}/v1")


run(
    {package: version(package) for package in PACKAGES},
    {
        "OpenAIEmbeddings.embed_documents": lambda server: vectors(
            openai(server).embed_documents(server.texts), "candidate"
        ),
        "OpenAIEmbeddings.embed_query": lambda server: vectors(
            [
                openai(server, model_kwargs={"extra_body": {"input_type": "query"}}).embed_query(
                    server.query
                )
            ],
            "context",
        ),
        "CohereEmbeddings.embed_documents": lambda server: vectors(
            cohere(server).embed_documents(server.texts), "candidate"
        ),
        "CohereEmbeddings.embed_query": lambda server: vectors(
            [cohere(server).embed_query(server.query)], "context"
        ),
        "CohereRerank": lambda server: compressed(
            server,
            CohereRerank(model="cross", base_url=server.url, cohere_api_key=server.key, top_n=3),
            "cross",
        ),
        "InfinityRerank": lambda server: compressed(
            server,
            InfinityRerank(
                model="poly", top_n=3,
                client=Client(
                    base_url=server.url, headers={"Authorization": f"Bearer {server.key}"}
                ),
            ),
            "poly",
        ),
        "InfinityEmbeddings": lambda server: vectors(
            infinity(server.open_url).embed_documents(server.texts), "candidate"
        ),
        "InfinityEmbeddings, where a key is needed": lambda server: refusal(
            lambda: infinity(server.url).embed_documents(server.texts), "401"
        ),
    },
)  # fmt: skip
