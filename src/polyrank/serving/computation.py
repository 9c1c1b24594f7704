"""Models at work: texts in, vectors and scores out. Knows nothing of indexes or HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
import torch
from numpy.typing import NDArray

from polyrank.models.answers import key_of
from polyrank.models.cross_encoder import CrossEncoder
from polyrank.models.two_tower import TwoTower, different
from polyrank.records import Context
from polyrank.serving.candidate_cache import CandidateCache, keys_of
from polyrank.serving.config import MB, ServerConfig
from polyrank.serving.items import blocks_of, estimated, tokenised, warming
from polyrank.serving.pipeline import Pipeline, Served
from polyrank.serving.scheduling.flow import Flow
from polyrank.serving.scheduling.jobs import Work
from polyrank.serving.scheduling.lanes import ContextLane, TokenLane, require_numbers
from polyrank.serving.scheduling.scheduler import Observer, Scheduler
from polyrank.serving.scheduling.sizing import Speed
from polyrank.serving.scheduling.tokenising import Texts, Tokenising

T = TypeVar("T")
ModelLane = TokenLane | ContextLane
Side = Literal["context", "candidate"]
"""Which side of a two-tower model encodes a text."""

Part = tuple[Served, str, Sequence[Any]]
"""A model, one of its graphs, and the texts for it."""

WARMING = (("a", 1), (" ".join("a" * 99), 4), ("a", 1))
"""Texts, and how many of each, that a lane runs at the start."""

FEW_KEYS = 500
"""The keys of more candidates are computed in a thread; those of this many take about 1 ms."""


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


class Computation:
    """The models at work: everything that takes the cores runs in one thread."""

    def __init__(self, config: ServerConfig, observer: Observer | None = None) -> None:
        """Start the threads that tokenise and compute.

        Args:
            config: The limits.
            observer: Is told of each batch.
        """
        self.config = config
        self.scheduler = Scheduler(max_queue_tokens=config.max_queue_tokens, observer=observer)
        self.candidate_cache = CandidateCache(round(config.candidate_cache_mb * MB))
        self._tokenising = Tokenising(self.scheduler)
        self._lanes: WeakKeyDictionary[Served, dict[str, ModelLane]] = WeakKeyDictionary()
        self._fingerprints: WeakKeyDictionary[Served, str] = WeakKeyDictionary()

    async def drain(self) -> None:
        """Wait until everything that was accepted is done."""
        await self.scheduler.drain()

    def close(self) -> None:
        """End the threads; what they have not done gets an error."""
        self._tokenising.close()
        self.scheduler.close()

    def warm(self, pipeline: Pipeline) -> None:
        """Run every lane of a pipeline, so that the first request waits for nothing."""
        for served in pipeline.models.values():
            model: Any = served.model
            graphs = ["pair"]
            if isinstance(model, TwoTower):
                self._fingerprints[served] = model.fingerprint()
                graphs = ["context", "candidate"]
                if not model.gives_unit_length:
                    graphs += ["context_projected", "candidate_projected"]
            for lane in [self.lane(served, graph) for graph in graphs]:
                batches = [warming(model, lane.graph, text, count) for text, count in WARMING]
                for items in batches:
                    lane.run(items)
                lane.speed = Speed()  # the first runs are slow, and make the copy for inference
                for items in batches:
                    lane.run(items)

    def lane(self, served: Served, graph: str) -> ModelLane:
        """The lane of a model's graph; it lives as long as the model is served or waited for."""
        lanes = self._lanes.setdefault(served, {})
        if graph not in lanes:
            name, model = f"{served.name} {graph}", served.model
            if isinstance(model, CrossEncoder) and model.reads_once:
                lanes[graph] = ContextLane(name, model)
            else:
                lanes[graph] = TokenLane(name, model, graph)
        return lanes[graph]

    async def run(self, work: Callable[[], T], flow: Flow) -> T:
        """What `work` returns, run where the models compute; it should be short.

        Args:
            work: What takes the cores.
            flow: The request.

        Returns:
            Its result.
        """
        result: T = await self.scheduler.call(flow, work)
        return result

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
        graph = side if model.gives_unit_length else f"{side}_projected"
        embedded = await self.encode(served, graph, texts, flow)
        if side == "context" and not model.has_many_vectors:
            return Embedded(embedded.vectors[:, 0], embedded.num_tokens)
        return embedded

    async def encode(
        self, served: Served, graph: str, texts: Sequence[Any], flow: Flow
    ) -> Embedded:
        """What a graph of a model makes of each text.

        Args:
            served: The model.
            graph: Which results (see `engines.record`); those of `context` and `candidate` are what
                an index takes.
            texts: n texts; of the graph `pair`, n pairs.
            flow: The request.

        Returns:
            The results (n, …), and the tokens.
        """
        if not texts:
            nothing: Any = self.lane(served, graph).results(0)
            return Embedded(nothing, 0)

        def finish(work: Work) -> Embedded:
            return Embedded(work.results, sum(work.costs))

        embedded: Embedded = await self._compute(flow, [(served, graph, texts)], finish)
        return embedded

    async def score(
        self, served: Served, context: Context, candidates: Sequence[str], flow: Flow
    ) -> Scored:
        """The score of each candidate for a context, by a model of any architecture."""
        return await self.score_pairs(served, [(context, text) for text in candidates], flow)

    async def score_pairs(
        self, served: Served, pairs: Sequence[tuple[Context, str]], flow: Flow
    ) -> Scored:
        """The score of each pair, by a model of any architecture; equal texts are read once."""
        if not pairs:
            return Scored([], 0)
        if isinstance(served.model, TwoTower):
            return await self._score_by_vectors(served, served.model, pairs, flow)
        model: Any = served.model
        model.require_scores()
        unique, places = different((key_of(context), text) for context, text in pairs)
        if model.reads_once:
            return await self._score_by_blocks(served, unique, places, flow)
        embedded = await self.encode(served, "pair", unique, flow)
        return Scored(embedded.vectors[places].tolist(), embedded.num_tokens)

    async def _score_by_blocks(
        self, served: Served, pairs: Sequence[Any], places: Sequence[int], flow: Flow
    ) -> Scored:
        """The scores at some `places` of different pairs, each context read with blocks of its
        candidates.
        """
        blocks = blocks_of(served.model, pairs)
        texts = [(pairs[rows[0]][0], [pairs[row][1] for row in rows]) for rows in blocks]

        def finish(work: Work) -> Scored:
            scores = np.empty(len(pairs), dtype=np.float32)
            scores[np.concatenate(blocks)] = np.concatenate(work.results)
            return Scored(scores[places].tolist(), sum(work.costs))

        scored: Scored = await self._compute(flow, [(served, "pair", texts)], finish)
        return scored

    async def _score_by_vectors(
        self,
        served: Served,
        model: TwoTower,
        pairs: Sequence[tuple[Context, str]],
        flow: Flow,
    ) -> Scored:
        contexts, firsts = different(key_of(context) for context, _ in pairs)
        candidates, seconds = different(text for _, text in pairs)
        keys = await self._keys(served, candidates)
        known = self.candidate_cache.get_many(keys, model.dimension)
        missing = [candidates[place] for place in known.missing]

        def finish(left: Work, right: Work | None = None) -> Scored:
            vectors = np.empty((len(candidates), model.dimension), dtype=np.float32)
            vectors[known.places] = known.vectors
            num_tokens = sum(left.costs) + known.num_tokens
            if right is not None:
                vectors[known.missing] = right.results
                fresh = [keys[place] for place in known.missing]
                self.candidate_cache.put_many(fresh, right.results, right.costs)
                num_tokens += sum(right.costs)
            both = torch.from_numpy(left.results), torch.from_numpy(vectors)
            scores = model.score_places(*both, firsts, seconds)
            require_numbers(scores.numpy(), f"The scores of the model {served.name}")
            return Scored(scores.tolist(), num_tokens)

        parts: list[Part] = [(served, "context", contexts)]
        if missing:
            parts.append((served, "candidate", missing))
        scored: Scored = await self._compute(flow, parts, finish)
        return scored

    async def _keys(self, served: Served, candidates: Sequence[str]) -> list[bytes]:
        """The keys of candidates in the cache."""
        fingerprint = self._fingerprints.get(served)
        if fingerprint is None:  # reads all weights
            fingerprint = await asyncio.to_thread(served.model.fingerprint)
            self._fingerprints[served] = fingerprint
        if len(candidates) <= FEW_KEYS:
            return keys_of(fingerprint, candidates)
        return await asyncio.to_thread(keys_of, fingerprint, candidates)

    async def _compute(
        self,
        flow: Flow,
        parts: Sequence[Part],
        finish: Callable[..., Any],
    ) -> Any:
        """Tokenise texts, run models on them, and make something of the results.

        Args:
            flow: The request.
            parts: What to run, each with at least one text.
            finish: Takes the finished work of each part, in the compute thread.

        Returns:
            What `finish` returns.
        """
        estimates = [estimated(s.model, graph, texts) for s, graph, texts in parts]
        works: list[Work] = []
        job = self.scheduler.job(
            flow, tokens=sum(map(sum, estimates)), finish=lambda: finish(*works)
        )
        works += [job.work(self.lane(s, graph), len(texts)) for s, graph, texts in parts]
        for work, estimate, (served, graph, texts) in zip(works, estimates, parts, strict=True):
            encode = partial(tokenised, served.model, graph)
            self._tokenising.add(Texts(work, texts, estimate, encode))
        return await self.scheduler.result(job)
