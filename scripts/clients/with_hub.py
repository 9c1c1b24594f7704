"""The `InferenceClient` of `huggingface_hub`, which calls text-embeddings-inference at /."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

from calls import Server, refusal, run, vectors
from huggingface_hub import InferenceClient


def client(server: Server, path: str = "") -> InferenceClient:
    """A client of the server."""
    return InferenceClient(model=server.url + path, token=server.key)


def extracted(server: Server, path: str = "") -> list[list[float]]:
    """The vectors of the texts."""
    return client(server, path).feature_extraction(server.texts).tolist()  # type: ignore[arg-type]


def of_a_query(server: Server) -> dict[str, Any]:
    """`prompt_name` says that it is a query."""
    found = client(server).feature_extraction(server.query, prompt_name="query", truncate=True)
    return vectors(found.tolist(), "context")


def similarity(server: Server) -> dict[str, Any]:
    """The similarity of one text to others."""
    found = client(server, "/similarity").sentence_similarity(
        server.texts[0], other_sentences=server.texts
    )
    return {"kind": "similarity", "got": found}


run(
    {"huggingface_hub": version("huggingface_hub")},
    {
        "feature_extraction": lambda server: vectors(extracted(server), "candidate"),
        "feature_extraction at /embed": lambda server: vectors(
            extracted(server, "/embed"), "candidate"
        ),
        "feature_extraction, query": of_a_query,
        "sentence_similarity": similarity,
        "wrong key": lambda server: refusal(
            lambda: InferenceClient(model=server.url, token="wrong").feature_extraction("a"), "401"
        ),
    },
)  # fmt: skip
