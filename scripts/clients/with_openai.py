"""The calls of the `openai` package."""

from __future__ import annotations

import asyncio
from importlib.metadata import version
from typing import Any

from calls import Server, refusal, run, vectors
from openai import AsyncOpenAI, OpenAI


def client(server: Server) -> OpenAI:
    """A client of the server."""
    return OpenAI(base_url=f"{server.url}/v1", api_key=server.key, max_retries=0)


def embeddings(server: Server, **extra: Any) -> list[list[float]]:
    """The vectors of the texts."""
    made = client(server).embeddings.create(model="bi", input=server.texts, **extra)
    assert [each.index for each in made.data] == list(range(len(server.texts)))
    assert made.usage.prompt_tokens > 0
    return [each.embedding for each in made.data]


def of_one_string(server: Server) -> dict[str, Any]:
    """`input` is a string, encoded as a query."""
    made = client(server).embeddings.create(
        model="bi", input=server.query, extra_body={"input_type": "query"}
    )
    return vectors([made.data[0].embedding], "context")


def asynchronous(server: Server) -> dict[str, Any]:
    """The asynchronous client, many calls at once."""

    async def call() -> list[list[float]]:
        async with AsyncOpenAI(base_url=f"{server.url}/v1", api_key=server.key) as each:
            made = await asyncio.gather(
                *(each.embeddings.create(model="bi", input=text) for text in server.texts)
            )
        return [one.data[0].embedding for one in made]

    return vectors(asyncio.run(call()), "candidate")


def models(server: Server) -> dict[str, Any]:
    """The names of the models."""
    return {"kind": "names", "got": [model.id for model in client(server).models.list()]}


run(
    {"openai": version("openai")},
    {
        "embeddings.create": lambda server: vectors(embeddings(server), "candidate"),
        "embeddings.create, float": lambda server: vectors(
            embeddings(server, encoding_format="float"), "candidate"
        ),
        "embeddings.create, dimensions": lambda server: vectors(
            embeddings(server, dimensions=16), "candidate", dimensions=16
        ),
        "embeddings.create, input_type": of_one_string,
        "embeddings.create, asynchronous": asynchronous,
        "models.list": models,
        "unknown model": lambda server: refusal(
            lambda: client(server).embeddings.create(model="bee", input="a"),
            "NotFoundError", "404", "bee", "bi",
        ),
        "wrong key": lambda server: refusal(
            lambda: client(server).with_options(api_key="wrong").models.list(),
            "AuthenticationError", "401",
        ),
        "token ids": lambda server: refusal(
            lambda: client(server).embeddings.create(model="bi", input=[[1, 2, 3]]),
            "BadRequestError", "check_embedding_ctx_length",
        ),
    },
)  # fmt: skip
