"""What OpenAI's clients call: embeddings and models."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

from polyrank.serving.dependencies import RuntimeOf

router = APIRouter(tags=["OpenAI"])


@router.get("/v1/models")
async def models(runtime: RuntimeOf) -> dict[str, Any]:
    """List the models that are served."""
    return {
        "object": "list",
        "data": [
            {
                "id": served.name,
                "object": "model",
                "created": served.since,
                "owned_by": "polyrank",
                "architecture": served.architecture,
            }
            for served in runtime.pipeline.models.values()
        ],
    }
