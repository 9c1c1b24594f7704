"""The integrations of LlamaIndex: text-embeddings-inference, OpenAI-like, Cohere and Jina."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

from calls import Server, ranking, refusal, run, vectors
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode
from llama_index.embeddings.openai_like import OpenAILikeEmbedding
from llama_index.embeddings.text_embeddings_inference import TextEmbeddingsInference
from llama_index.postprocessor.cohere_rerank import CohereRerank
from llama_index.postprocessor.jinaai_rerank import JinaRerank
from llama_index.postprocessor.tei_rerank import TextEmbeddingInference

PACKAGES = (
    "llama-index-embeddings-text-embeddings-inference",
    "llama-index-postprocessor-tei-rerank",
    "llama-index-embeddings-openai-like",
    "llama-index-postprocessor-cohere-rerank",
    "llama-index-postprocessor-jinaai-rerank",
)


def reranked(server: Server, postprocessor: Any, model: str) -> dict[str, Any]:
    """Nodes of the texts, in the order of a postprocessor."""
    nodes = [
        NodeWithScore(node=TextNode(text=text, id_=str(n)), score=0.0)
        for n, text in enumerate(server.texts)
    ]
    found = postprocessor.postprocess_nodes(nodes, QueryBundle(server.query))
    return ranking([(int(each.node.id_), each.score) for each in found], model, top_n=3)


def tei(server: Server, **extra: Any) -> TextEmbeddingsInference:
    """The embeddings of text-embeddings-inference."""
    return TextEmbeddingsInference(
        model_name="bi", base_url=server.url, auth_token=server.key, **extra
    )


def openai_like(server: Server, **extra: Any) -> OpenAILikeEmbedding:
    """The embeddings of servers that speak OpenAI's API."""
    return OpenAILikeEmbedding(
        model_name="bi", api_base=f"{server.url}/v1", api_key=server.key, max_retries=0, **extra
    )


run(
    {package: version(package) for package in PACKAGES},
    {
        "TextEmbeddingsInference": lambda server: vectors(
            tei(server).get_text_embedding_batch(server.texts), "candidate"
        ),
        "TextEmbeddingsInference, query": lambda server: vectors(
            [tei(server, endpoint="/embed?prompt_name=query").get_query_embedding(server.query)],
            "context",
        ),
        "tei_rerank": lambda server: reranked(
            server,
            TextEmbeddingInference(top_n=3, base_url=server.url, auth_token=server.key),
            "cross",
        ),
        "OpenAILikeEmbedding": lambda server: vectors(
            openai_like(server).get_text_embedding_batch(server.texts), "candidate"
        ),
        "OpenAILikeEmbedding, query": lambda server: vectors(
            [
                openai_like(
                    server, additional_kwargs={"extra_body": {"input_type": "query"}}
                ).get_query_embedding(server.query)
            ],
            "context",
        ),
        "CohereRerank": lambda server: reranked(
            server,
            CohereRerank(model="poly", top_n=3, api_key=server.key, base_url=server.url),
            "poly",
        ),
        "JinaRerank": lambda server: reranked(
            server,
            JinaRerank(model="bi", top_n=3, base_url=f"{server.url}/v1", api_key=server.key),
            "bi",
        ),
        "JinaRerank, unknown model": lambda server: refusal(
            lambda: reranked(
                server,
                JinaRerank(model="bee", base_url=f"{server.url}/v1", api_key=server.key),
                "bi",
            ),
            "RuntimeError", "bee",
        ),
    },
)  # fmt: skip
