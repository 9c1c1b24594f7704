"""What the routes call: embeddings, scores and searches, as coroutines. Knows nothing of HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from polyrank.models.two_tower import TwoTower
from polyrank.records import Context
from polyrank.retrieval.engine import Found
from polyrank.retrieval.rerank import RetrieveRerank
from polyrank.serving.config import ServerConfig
from polyrank.serving.pipeline import Pipeline, Served
from polyrank.serving.scheduling.flow import Flow

T = TypeVar("T")
Side = Literal["context", "candidate"]
"""Which side of a two-tower model encodes a text."""


@dataclass(frozen=True)
class Embedded:
    """Vectors (n, d), float32, and the number of tokens that were encoded."""

    vectors: NDArray[np.float32]
    num_tokens: int


@dataclass(frozen=True)
class Scored:
    """The model's own scores, and the number of tokens that were read."""

    scores: list[float]
    num_tokens: int


class Runtime:
    """The models at work: everything that takes the cores runs in one thread."""

    def __init__(self, pipeline: Pipeline, config: ServerConfig) -> None:
        self.pipeline = pipeline
        self.config = config
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="compute")

    async def run(self, work: Callable[[], T], flow: Flow) -> T:
        """What `work` returns, run where the models compute; it should be short.

        Args:
            work: What takes the cores.
            flow: The request.

        Returns:
            Its result.
        """
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def close(self) -> None:
        """End the thread."""
        self._thread.shutdown()

    async def embed(
        self, served: Served, texts: Sequence[Context], side: Side, flow: Flow
    ) -> Embedded:
        """The vector of each text, for one side of a bi- or poly-encoder.

        Args:
            served: A bi- or poly-encoder; a bi-encoder for contexts.
            texts: n texts.
            side: `context` or `candidate`.
            flow: The request.

        Returns:
            (n, d) vectors as `encode_contexts` and `encode_candidates` give them.
        """
        model: Any = served.model
        is_context = side == "context"
        ids = model.context_ids(texts) if is_context else model.candidate_ids(texts)
        encode = model.encode_contexts if is_context else model.encode_candidates
        vectors = await self.run(lambda: encode(list(texts), convert_to_numpy=True), flow)
        return Embedded(vectors, sum(map(len, ids)))

    async def score(
        self, served: Served, context: Context, candidates: Sequence[str], flow: Flow
    ) -> Scored:
        """The score of each candidate for a context, by a model of any architecture."""
        return await self.score_pairs(served, [(context, text) for text in candidates], flow)

    async def score_pairs(
        self, served: Served, pairs: Sequence[tuple[Context, str]], flow: Flow
    ) -> Scored:
        """The score of each pair, by a model of any architecture."""
        model: Any = served.model
        if isinstance(model, TwoTower):
            ids = model.context_ids([a for a, _ in pairs]) + model.candidate_ids(
                [b for _, b in pairs]
            )
        else:
            ids = model.encode_pairs([a for a, _ in pairs], [b for _, b in pairs])[0]
        scores = await self.run(lambda: model.score_pairs(list(pairs)).tolist(), flow)
        return Scored(scores, sum(map(len, ids)))

    async def search(
        self,
        contexts: Sequence[Context],
        flow: Flow,
        *,
        top_k: int = 10,
        exact: bool = False,
        filter: str | None = None,
        reranker: Served | None = None,
        num_candidates: int = 100,
    ) -> list[Found]:
        """What the index finds for each context, reordered by a reranker if there is one."""
        index = self.pipeline.index
        assert index is not None, "the route refuses a search without an index"
        searched: Any = index
        if reranker is not None:
            searched = RetrieveRerank(index, reranker.model, num_candidates=num_candidates)
        found = await self.run(
            lambda: searched.search(list(contexts), top_k, exact=exact, filter=filter), flow
        )
        return [Found(list(hits), hits.report) for hits in found]
