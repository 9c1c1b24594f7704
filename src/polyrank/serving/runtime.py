"""What the routes call: embeddings, scores, searches and changes of the index, as coroutines.

Knows nothing of HTTP.
"""

from __future__ import annotations

import asyncio
import gc
import math
import sys
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial

from polyrank.config import require_whole
from polyrank.models.two_tower import different
from polyrank.records import Candidate, Context
from polyrank.retrieval.engine import Found
from polyrank.retrieval.filters import parse_filter
from polyrank.retrieval.rerank import pairs_of, reranked
from polyrank.serving.computation import Computation
from polyrank.serving.config import ServerConfig
from polyrank.serving.group_commit import Change, Changed, Delete, Upsert
from polyrank.serving.live_index import IndexReplacedError, LiveIndex
from polyrank.serving.pipeline import Pipeline, Served
from polyrank.serving.scheduling.flow import Flow
from polyrank.serving.scheduling.scheduler import Observer
from polyrank.serving.search_lane import Query

SWITCH_SECONDS = 0.0005
"""How long a thread keeps the interpreter while another wants it. The compute thread asks for it
before each operation of torch; with Python's 5 ms, it stands still while the event loop is busy."""


class Runtime(Computation):
    """What is served: the models at work, and the index that they search."""

    def __init__(
        self, pipeline: Pipeline, config: ServerConfig, observer: Observer | None = None
    ) -> None:
        """Start the threads that tokenise and compute.

        Args:
            pipeline: What is served at first.
            config: The limits.
            observer: Is told of each batch.
        """
        super().__init__(config, observer)
        self.pipeline = pipeline
        self.live = live_index(pipeline)
        """The index while it is served."""
        self._reloading = asyncio.Lock()

    async def start(self) -> None:
        """Run each model, so that the first request waits for nothing and batches fit its speed.

        From now on, threads of the process take shorter turns, and what is loaded is never looked
        through for garbage.
        """
        await self.run(partial(self.warm, self.pipeline), Flow.lasting(math.inf))
        sys.setswitchinterval(SWITCH_SECONDS)
        gc.collect()
        gc.freeze()  # what is loaded stays: looking through it again would hold up requests

    def close(self) -> None:
        """End the threads; what they have not done gets an error. The index is closed, too."""
        super().close()
        if self.live is not None:
            self.live.close()

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
        """What the index finds for each context, reordered by a reranker if there is one.

        Args:
            contexts: B contexts.
            flow: The request.
            top_k: Hits for each context, at least 1.
            exact: Certify that there are no better candidates.
            filter: A condition on the metadata.
            reranker: A cross-encoder that reorders what the index finds.
            num_candidates: How many it reorders, if that is more than `top_k`.

        Returns:
            What was found for each context, as `Index.search` and `RetrieveRerank.search` give it.

        Raises:
            UsageError: The filter does not fit the index, or `top_k` is below 1.
            RequestError: The server cannot answer now, or not in time.
        """
        live = self.live
        assert live is not None, "the route refuses a search without an index"
        require_whole("top_k", top_k)
        passing = None if filter is None else parse_filter(filter)
        if not contexts:
            return []
        count = top_k if reranker is None else max(num_candidates, top_k)
        with live.in_use():
            encoded = await self.encode(live.served, "context", contexts, flow)
            query = Query(count, exact, passing)
            found = await live.search(query, encoded.vectors, flow, self.scheduler)
        if reranker is None:
            return found
        rows = pairs_of(contexts, [each.hits for each in found])
        unique = list(dict.fromkeys(pair for pairs in rows for pair in pairs))
        scored = await self.score_pairs(reranker, unique, flow)
        return reranked(found, rows, dict(zip(unique, scored.scores, strict=True)), top_k)

    async def upsert(self, candidates: Sequence[Candidate], flow: Flow) -> Changed:
        """Add candidates to the index, or replace those with the same ids.

        Args:
            candidates: Candidates with different ids.
            flow: The request.

        Returns:
            What became of it, when it is on disk.

        Raises:
            DataError: A candidate does not fit the index.
            RequestError: The server cannot do it now, or not in time.
            StorageError: The disk is full, or the store does not answer.
        """
        texts, places = different(candidate.text for candidate in candidates)

        async def upsert(served: Served) -> Change:
            encoded = await self.encode(served, "candidate", texts, flow)
            return Upsert(candidates, encoded.vectors[places])

        return await self._change(upsert, flow)

    async def delete(self, identifiers: Iterable[str], flow: Flow) -> Changed:
        """Delete the candidates that are there, and return when that is on disk; as `upsert`."""
        change = Delete(frozenset(identifiers))

        async def delete(served: Served) -> Change:
            return change

        return await self._change(delete, flow)

    async def _change(self, make: Callable[[Served], Awaitable[Change]], flow: Flow) -> Changed:
        """Make a change with the model of the index, again if that was reloaded meanwhile."""
        while True:
            live = self.live
            assert live is not None, "the route refuses a change without an index"
            with live.in_use():
                change = await make(live.served)
                try:
                    return await live.change(change, flow)
                except IndexReplacedError:
                    if live is self.live:
                        raise  # else it was reloaded meanwhile, maybe with another model

    async def candidate(self, identifier: str, flow: Flow) -> Candidate | None:
        """The candidate of the index with this id, if there is one."""
        live = self.live
        assert live is not None, "the route refuses a question without an index"
        with live.in_use():
            return await live.get(identifier, flow)

    async def reload(self) -> Pipeline:
        """Load models and index anew, and serve them from then on.

        Requests that have begun end with what they began with. If something cannot be loaded,
        what was served before stays. Returns what is served now.

        Raises:
            InputError: A model or the index cannot be loaded.
            StorageError: The store of the index does not answer.
        """
        async with self._reloading:
            pipeline = await asyncio.to_thread(self.pipeline.reopened)
            await self.run(partial(self.warm, pipeline), Flow.lasting(math.inf))
            old, self.live = self.live, live_index(pipeline)
            self.pipeline = pipeline
            if old is not None:
                old.retire()
            return pipeline


def live_index(pipeline: Pipeline) -> LiveIndex | None:
    """The index of a pipeline, to be served."""
    served = pipeline.index_model
    return None if pipeline.index is None or served is None else LiveIndex(pipeline.index, served)
