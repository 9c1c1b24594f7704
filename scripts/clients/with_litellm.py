"""LiteLLM, by each of the providers whose calls the server answers."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

import litellm
from calls import Server, ranking, refusal, run, vectors

litellm.telemetry = False


def embedding(server: Server, model: str, path: str, **extra: Any) -> dict[str, Any]:
    """The vectors of the texts, by a provider."""
    made = litellm.embedding(
        model=model, input=server.texts, api_base=server.url + path, api_key=server.key, **extra
    )
    found = [each["embedding"] for each in made.data]
    return vectors(found, "candidate")


def rerank(server: Server, model: str, expected: str, **extra: Any) -> dict[str, Any]:
    """The order of the texts, by a provider."""
    made = litellm.rerank(
        model=model, query=server.query, documents=server.texts, top_n=3,
        api_base=server.url, api_key=server.key, **extra,
    )  # fmt: skip
    found = [(each["index"], each["relevance_score"]) for each in made.results]
    return ranking(found, expected, top_n=3)


run(
    {"litellm": version("litellm")},
    {
        "embedding, openai/": lambda server: embedding(server, "openai/bi", "/v1"),
        "embedding, hosted_vllm/": lambda server: embedding(server, "hosted_vllm/bi", "/v1"),
        "embedding, infinity/": lambda server: embedding(server, "infinity/bi", "/v1"),
        "embedding, jina_ai/": lambda server: embedding(server, "jina_ai/bi", "/v1"),
        "embedding, cohere/": lambda server: embedding(
            server, "cohere/bi", "/v2/embed", input_type="search_document"
        ),
        "rerank, cohere/": lambda server: rerank(server, "cohere/cross", "cross"),
        "rerank, hosted_vllm/": lambda server: rerank(server, "hosted_vllm/poly", "poly"),
        "rerank, infinity/": lambda server: rerank(
            server, "infinity/bi", "bi", return_documents=False  # it wants them as plain strings
        ),
        "rerank, jina_ai/": lambda server: rerank(server, "jina_ai/cross", "cross"),
        "rerank, huggingface/": lambda server: rerank(server, "huggingface/cross", "cross"),
        "unknown model": lambda server: refusal(
            lambda: litellm.embedding(
                model="openai/bee", input=["a"], api_base=f"{server.url}/v1",
                api_key=server.key, max_retries=0,
            ),
            "NotFoundError", "bee",
        ),
    },
)  # fmt: skip
