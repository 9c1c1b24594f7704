"""The server that teams write by themselves: FastAPI and `SentenceTransformer.encode`.

It batches nothing, and it encodes one request after another: several at once in FastAPI's threads
would fight for the cores.

python -m benchmarks.plain_server FOLDER --port 8001
"""

from __future__ import annotations

import argparse
import base64
from typing import Any, Literal

import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel
from sentence_transformers import SentenceTransformer


class Body(BaseModel):
    """What OpenAI's clients send."""

    model: str
    input: str | list[str]
    encoding_format: Literal["float", "base64"] = "float"


def create_app(folder: str) -> FastAPI:
    """An app that encodes with the model of a folder."""
    model = SentenceTransformer(folder, device="cpu")
    app = FastAPI()

    @app.get("/health")
    async def health() -> dict[str, str]:
        return {"status": "ok"}

    @app.post("/v1/embeddings")
    async def embeddings(body: Body) -> dict[str, Any]:
        texts = [body.input] if isinstance(body.input, str) else body.input
        vectors = model.encode(texts, normalize_embeddings=True, show_progress_bar=False)
        if body.encoding_format == "base64":
            encoded: list[Any] = [base64.b64encode(vector.tobytes()).decode() for vector in vectors]
        else:
            encoded = vectors.tolist()
        data = [
            {"object": "embedding", "index": index, "embedding": one}
            for index, one in enumerate(encoded)
        ]
        return {"object": "list", "data": data, "model": body.model, "usage": {}}

    return app


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder")
    parser.add_argument("--port", type=int, default=8001)
    options = parser.parse_args()
    uvicorn.run(create_app(options.folder), port=options.port, log_level="warning")


if __name__ == "__main__":
    main()
