"""Saved models → contenders: each model is evaluated and timed once, and its results are kept.

A comparison that was interrupted, or that gets another model, resumes from what is kept. Loads
models only through the function that it is given.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from polyrank.errors import UsageError
from polyrank.evaluation.comparison import Contender, Costs, Run
from polyrank.evaluation.latency import Latency, measure_latency, measure_pair_latency
from polyrank.evaluation.metrics import QueryMetrics
from polyrank.evaluation.pairs import PairResults
from polyrank.evaluation.retrieval import (
    Rankings,
    depth_for,
    judge,
    measures,
    rerank,
    retrieve,
)
from polyrank.evaluation.tasks import PairTask, RankingTask, RetrievalTask, Task, require_ranking
from polyrank.folder_files import read_json
from polyrank.jobs import Results
from polyrank.models.two_tower import TwoTower
from polyrank.progress import Say, bar, paused, silent
from polyrank.retrieval.bm25.config import BM25Config
from polyrank.retrieval.bm25.index import lexical_package

BM25 = "bm25"
"""The source that stands for the lexical baseline, which is built from the data."""

TRAINING_RECORD = "training.json"

Load = Callable[[str], Any]


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A named model and its sources: folders that differ in the seed, or `bm25`."""

    name: str
    sources: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class EvaluatorSettings:
    """How models are evaluated and timed."""

    sizes: tuple[int, ...] = (100, 1000, 100_000)
    """Numbers of candidates to time a query at; none for no timing."""
    num_queries: int = 10
    time_limit: float = 30.0
    """Seconds of timing for each model, about."""
    num_candidates: int = 100
    """How many of the candidates that another model retrieves a cross-encoder reads."""


@dataclass(frozen=True, kw_only=True)
class ModelInfo:
    """What is known about a source before it is evaluated."""

    source: str
    architecture: str
    identity: str
    """The fingerprint of the model and its precision."""
    settings: dict[str, Any]
    device: str
    parameters: int | None
    vector_bytes: int | None
    training_seconds: float | None


class Evaluator:
    """Evaluates models on a task, one model in memory at a time."""

    def __init__(
        self,
        task: Task,
        load: Load,
        results: Results,
        settings: EvaluatorSettings,
        say: Say = silent,
    ) -> None:
        self.task = task
        self.settings = settings
        self.say = say
        self.results = results
        self.load = load
        self.held: tuple[str, Any] | None = None
        self.retrieved: dict[str, Rankings] = {}

    def evaluate(
        self, entries: Sequence[Entry], *, retriever: str | None = None
    ) -> list[Contender]:
        """Evaluate and time all entries. On a task that searches, a cross-encoder reranks what
        `retriever` finds, by default the first source that can search.

        Every model is opened before the first is evaluated, so that a broken one is found at once.
        Raises ModelError for what is not a model, UsageError for one that cannot be evaluated here.
        """
        if isinstance(self.task, RetrievalTask):
            measures(self.task.metrics)
        sources = dict.fromkeys(source for entry in entries for source in entry.sources)
        known = {source: self.inspect(source) for source in sources}
        for entry in entries:
            require_same_settings(entry, [known[source] for source in entry.sources])
        first = self.first_stage(known, retriever)
        with bar("Comparing", total=len(entries), unit="models", has_rate=False) as advance:
            contenders = []
            for entry in entries:
                contenders.append(self.contender(entry, known, first))
                advance()
        return contenders

    def inspect(self, source: str) -> ModelInfo:
        """Open a source to find out what it is."""
        if source == BM25:
            lexical_package()
            if isinstance(self.task, PairTask):
                self.task.check(None, BM25)
            return ModelInfo(
                source=source,
                architecture=BM25,
                identity=f"{BM25} {BM25Config()}",
                settings={},
                device="cpu",
                parameters=None,
                vector_bytes=None,
                training_seconds=None,
            )
        model = self.load(source)
        if isinstance(self.task, PairTask):
            self.task.check(model, source)
            fingerprint = model.classes_fingerprint()
        else:
            require_ranking(model, source)
            fingerprint = model.fingerprint()
        return ModelInfo(
            source=source,
            architecture=model.architecture,
            identity=f"{fingerprint} {model.compute_dtype}",
            settings=model.identity(),
            device=str(model.device),
            parameters=model.num_parameters(),
            vector_bytes=4 * model.dimension if isinstance(model, TwoTower) else None,
            training_seconds=training_seconds(Path(source)),
        )

    def first_stage(self, known: dict[str, ModelInfo], retriever: str | None) -> ModelInfo | None:
        """What finds the candidates for cross-encoders, where a task needs it."""
        if not isinstance(self.task, RetrievalTask) or all(
            info.architecture != "cross" for info in known.values()
        ):
            return None
        if retriever is not None:
            found = known.get(retriever) or self.inspect(retriever)
            if found.architecture != "cross":
                return found
            raise UsageError(
                f"{retriever} is a cross-encoder, which cannot search a corpus.",
                "Name a bi- or poly-encoder, or bm25, that finds the candidates for it.",
            )
        able = [info for info in known.values() if info.architecture != "cross"]
        if not able:
            raise UsageError(
                "A cross-encoder cannot search a corpus: it reranks what another model finds.",
                "Add a bi- or poly-encoder, or bm25, or name one that finds the candidates.",
            )
        return able[0]

    def contender(
        self, entry: Entry, known: dict[str, ModelInfo], first: ModelInfo | None
    ) -> Contender:
        """One entry, evaluated and timed."""
        runs: tuple[Run, ...] = tuple(
            self.metrics(entry, known[source], first) for source in entry.sources
        )
        infos = [known[source] for source in entry.sources]
        seconds = [info.training_seconds for info in infos if info.training_seconds is not None]
        costs = Costs(
            parameters=infos[0].parameters,
            vector_bytes=infos[0].vector_bytes,
            training_seconds=sum(seconds) / len(seconds) if seconds else None,
            latency=self.latency(entry, infos[0]) if self.settings.sizes else {},
        )
        return Contender(
            name=entry.name,
            architecture=infos[0].architecture,
            sources=entry.sources,
            runs=runs,
            costs=costs,
        )

    def metrics(self, entry: Entry, info: ModelInfo, first: ModelInfo | None) -> Run:
        """The scores of each query, or the predictions for each pair: kept ones, or measured
        now.
        """
        stage = first if info.architecture == "cross" else None
        reranked = (stage.identity, self.settings.num_candidates) if stage else ()
        names = [] if isinstance(self.task, PairTask) else list(self.task.metrics)
        key = ("quality", self.task.digest, names, info.identity, *reranked)
        parse = PairResults.from_json if isinstance(self.task, PairTask) else QueryMetrics.from_json
        kept: Run | None = self.results.get(key, parse)
        name = entry.name if len(entry.sources) == 1 else f"{entry.name} ({info.source})"
        if kept is not None:
            self.say(f"{name}: evaluated before")
            return kept
        metrics: Run
        if isinstance(self.task, PairTask):
            self.say(f"{name}: evaluating on {len(self.task.pairs):,} labelled pairs")
            metrics = self.task.evaluate(self.open(info.source), show_progress_bar=True)
            self.results.put(key, metrics.to_json())
            return metrics
        self.say(f"{name}: evaluating on {self.task.num_queries:,} queries")
        if isinstance(self.task, RankingTask):
            metrics = self.task.evaluate(self.open(info.source), show_progress_bar=True)
        else:
            rankings = self.rankings(self.task, info, stage)
            metrics = judge(rankings, self.task.data, self.task.metrics)
        self.results.put(key, metrics.to_json())
        return metrics

    def rankings(self, task: RetrievalTask, info: ModelInfo, stage: ModelInfo | None) -> Rankings:
        """What each query finds, by the model or by a first stage and then the model."""
        finder = stage or info
        if finder.identity not in self.retrieved:
            model = self.open(finder.source)
            depth = depth_for(task.metrics)
            self.retrieved[finder.identity] = retrieve(
                model, task.data, depth=depth, show_progress_bar=True
            )
        found = self.retrieved[finder.identity]
        if stage is None:
            return found
        top = self.settings.num_candidates
        return rerank(self.open(info.source), task.data, found, top, show_progress_bar=True)

    def latency(self, entry: Entry, info: ModelInfo) -> dict[int, Latency]:
        """The time of a query at each size: kept, or measured now."""
        settings = self.settings
        machine = (info.device, torch.get_num_threads())
        how = (list(settings.sizes), settings.num_queries, settings.time_limit)
        key = ("latency", self.task.digest, info.identity, *machine, *how)
        kept: dict[int, Latency] | None = self.results.get(key, latency_from_json)
        if kept is not None:
            return kept
        with paused():
            found = self.timed(entry, info)
        self.results.put(key, [asdict(latency) for latency in found.values()])
        return found

    def timed(self, entry: Entry, info: ModelInfo) -> dict[int, Latency]:
        """The time of a query at each size, or of one pair, measured now."""
        model, task, settings = self.open(info.source), self.task, self.settings
        if isinstance(task, PairTask):
            self.say(f"{entry.name}: timing pairs")
            rounds, limit = settings.num_queries, settings.time_limit
            return {1: measure_pair_latency(model, task.pairs, num_rounds=rounds, time_limit=limit)}
        self.say(f"{entry.name}: timing queries")
        return measure_latency(
            model,
            task.contexts,
            task.texts,
            sizes=settings.sizes,
            num_queries=settings.num_queries,
            time_limit=settings.time_limit,
        )

    def open(self, source: str) -> Any:
        """The model of a source, the last one kept in memory; BM25 is built from the data."""
        if self.held is None or self.held[0] != source:
            self.held = None  # before the next one is loaded
            self.held = (source, self.task.lexical() if source == BM25 else self.load(source))
        return self.held[1]


def require_same_settings(entry: Entry, runs: Sequence[ModelInfo]) -> None:
    """Raise UsageError for runs of a model that differ in more than their weights."""
    first = runs[0]
    for run in runs[1:]:
        differ = [
            f"{name} is {first.settings.get(name)!r} and {run.settings.get(name)!r}"
            for name in dict.fromkeys((*first.settings, *run.settings))
            if first.settings.get(name) != run.settings.get(name)
        ]
        if differ:
            raise UsageError(
                f"The runs of {entry.name} differ in more than the seed: {', '.join(differ)}.",
                "Give models with different settings different names.",
            )


def training_seconds(folder: Path) -> float | None:
    """The seconds that a model's training took, if its folder says so."""
    try:
        seconds = read_json(folder / TRAINING_RECORD)["seconds"]
        return float(seconds)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def latency_from_json(record: list[dict[str, Any]]) -> dict[int, Latency]:
    """The kept times by size; raises KeyError or TypeError for anything else."""
    found = [Latency(**fields) for fields in record]
    return {latency.num_candidates: latency for latency in found}
