"""The page at /: its files, what it is told of the server, and the attention that it shows."""

from __future__ import annotations

import asyncio
import contextlib
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import torch
from fastapi import APIRouter, Request
from fastapi.responses import Response
from pydantic import Field
from starlette.staticfiles import StaticFiles

from polyrank._version import __version__
from polyrank.errors import PolyrankError
from polyrank.evaluation.metric_names import PAIR_LABELS, label_of
from polyrank.evaluation.report import read_report
from polyrank.models.attention import attention_map
from polyrank.serving.attention import Kind, described
from polyrank.serving.bodies import JsonRoute, written
from polyrank.serving.dependencies import FlowOf, RuntimeOf
from polyrank.serving.failures import ERRORS, RequestError
from polyrank.serving.live_index import LiveIndex
from polyrank.serving.pipeline import Pipeline, Served
from polyrank.serving.schemas.base import Body, OwnBody, Text, Texts, example, require_items
from polyrank.serving.selection import model_named, others

router = APIRouter(tags=["Page"], route_class=JsonRoute, responses=ERRORS)

FILES = Path(__file__).parents[1] / "page"
GENERIC: list[str | list[str]] = [
    "How do I read a file line by line?",
    "What is the difference between a list and a tuple?",
    ["My laptop has no sound.", "Is it muted?", "No, and headphones do work."],
]
"""Contexts to try where there is no index to take them from."""
SAMPLES = ["Open the file and loop over it.", "Sort it with a key.", "Check that it is plugged in."]
"""Candidates to try where there is no index."""
SAMPLED, SHOWN, LONGEST = 400, 4, 90
"""How many candidates of an index are looked at for examples, how many become one, and the most
characters of one."""
static = StaticFiles(directory=FILES)


@router.api_route("/", methods=["GET", "HEAD"], include_in_schema=False)
async def page(request: Request) -> Response:
    """The page."""
    return await file(request, "index.html")


@router.api_route("/page/{name}", methods=["GET", "HEAD"], include_in_schema=False)
async def file(request: Request, name: str) -> Response:
    """A file of the page."""
    response = await static.get_response(name, request.scope)
    response.headers["cache-control"] = "no-cache"  # kept, but asked for again by its ETag
    return response


@router.get("/page.json")
async def about(request: Request, runtime: RuntimeOf) -> dict[str, Any]:
    """Tell the page what is served: the models, the index, examples and the comparison."""
    pipeline = runtime.pipeline
    index, examples = await asyncio.to_thread(shown_index, runtime.live)
    return {
        "version": __version__,
        "models": [model_json(each) for each in pipeline.models.values()],
        "index": index,
        "reranker": pipeline.reranker.name if pipeline.reranker else None,
        "examples": examples,
        "candidates": SAMPLES,
        "max_items": runtime.config.max_items,
        "keeps_vectors": runtime.config.candidate_cache_mb > 0,
        "comparison": request.app.state.comparison,
    }


def model_json(served: Served) -> dict[str, Any]:
    """What the page shows of a model."""
    model: Any = served.model
    return {
        "name": served.name,
        "architecture": served.architecture,
        "num_vectors": getattr(model, "num_vectors", None),
        "context_vectors": getattr(model.config, "context_vectors", None),
        "num_parameters": model.num_parameters(),
        "engine": None if model.engine is None else model.engine.name,
        "ranks": getattr(model.config, "task", "rank") in ("rank", "regress"),
    }


def shown_index(live: LiveIndex | None) -> tuple[dict[str, Any] | None, list[str | list[str]]]:
    """What the page shows of the index, and contexts to try: the beginnings of some candidates."""
    if live is None:
        return None, GENERIC
    texts: list[str] = []
    number: int | None = None
    with live.in_use(), contextlib.suppress(PolyrankError):  # a store that is down; searches say so
        number = len(live.index)
        texts = [candidate.text for candidate in islice(live.index, SAMPLED)]
    shown = {"name": live.index.path.name, "model": live.served.name, "num_candidates": number}
    beginnings = dict.fromkeys(map(beginning, texts))
    fitting = [text for text in beginnings if 8 <= len(text) <= LONGEST]
    step = max(len(fitting) // SHOWN, 1)
    return shown, list(fitting[::step][:SHOWN]) or GENERIC


def beginning(text: str) -> str:
    """The first sentence of a text, or its first line."""
    line = " ".join(text.strip().split("\n", 1)[0].split())
    for end in (". ", "? ", "! ", ": "):
        line = line.split(end, 1)[0] + (end[0] if end in line and end != ": " else "")
    return line


def read_comparison(folder: Path | None) -> dict[str, Any] | None:
    """What the page shows of a comparison; None without one. Raises UsageError."""
    if folder is None:
        return None
    result = read_report(folder)
    metric = result["metric"]
    unit = "pairs" if "num_pairs" in result else "queries"
    return {
        "metric": PAIR_LABELS.get(metric) or label_of(metric, None),
        "unit": unit,
        "num": result.get(f"num_{unit}"),
        "models": [
            {
                "name": each["name"],
                "architecture": each["architecture"],
                **{name: each["figures"][metric][name] for name in ("mean", "low", "high")},
                "latency": each["latency"],
            }
            for each in result["models"]
        ],
    }


class AttentionRequest(OwnBody):
    """A context, and the candidates whose attention is asked for."""

    model_config = example(context="How do I open a file?", candidates=["Use open()."])

    model: str | None = Field(None, description="A poly-encoder; by default the first one served.")
    context: Text | Texts = Field(description="A text, or the turns of a dialogue, oldest first.")
    candidates: Texts = Field(description="The texts whose attention over the codes is given.")


class TokenBody(Body):
    """A token of the context as the model reads it."""

    text: str
    kind: Kind
    turn: int | None = Field(description="The number of its turn, from 0; None if it is in none.")
    joined: bool = Field(description="Whether it continues the word before it.")


class CandidateBody(Body):
    """A candidate: its score, and how much it takes of each context vector."""

    text: str
    score: float
    weights: list[float] = Field(description="One for each context vector; they sum to 1.")


class AttentionBody(Body):
    """The attention behind the scores of a poly-encoder."""

    model: str
    tokens: list[TokenBody]
    context_vectors: Literal["learnt", "first", "last", "last_and_first"]
    even_share: float = Field(description="The share of each code that is spread evenly.")
    codes: list[list[float]] | None = Field(
        description="For each context vector, a weight for each token; null if it cannot be read."
    )
    note: str | None = Field(description="Why there are no codes.")
    candidates: list[CandidateBody]


@router.post("/attention", response_model=AttentionBody)
async def attention(body: AttentionRequest, runtime: RuntimeOf, flow: FlowOf) -> Response:
    """Give the attention of a poly-encoder: over the tokens of a context, and over its codes.

    These are the weights of the model's own computation for these texts. They do not explain why
    a candidate ranks where it does.
    """
    served = poly_of(runtime.pipeline, body.model)
    model: Any = served.model
    require_items("candidates", len(body.candidates), runtime.config.max_items)
    embedded = await runtime.encode(served, "candidate", body.candidates, flow)
    vectors = torch.from_numpy(embedded.vectors)
    found = await runtime.run(lambda: attention_map(model, body.context, vectors), flow)
    about_it = described(model, body.context, body.candidates, found)
    return written({"model": served.name, **about_it})


def poly_of(pipeline: Pipeline, name: str | None) -> Served:
    """The poly-encoder that was asked for, or the first. Raises RequestError."""
    served = pipeline.first(["poly"]) if name is None else model_named(pipeline, name)
    if served is None or served.architecture != "poly":
        named = f"The model {served.name!r} is not" if served else "No served model is"
        raise RequestError(
            400,
            f"{named} a poly-encoder, and other models have no codes.",
            f"{others(pipeline, ('poly',), 'for attention').capitalize()}.",
            code="model_not_suitable",
            param="model",
        )
    return served
