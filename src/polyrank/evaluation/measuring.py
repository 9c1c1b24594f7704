"""From saved models to contenders: each model is evaluated and timed once, and what was found kept.

A repeated or widened comparison goes on from what is kept. Knows how a model is loaded only by a
function that it is given.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from polyrank.errors import UsageError
from polyrank.evaluation.comparison import Contender, Costs
from polyrank.evaluation.figures import QueryFigures
from polyrank.evaluation.kept import Store
from polyrank.evaluation.latency import Latency, measure_latency
from polyrank.evaluation.retrieval import Rankings, judge, measures, rerank, retrieve
from polyrank.evaluation.tasks import (
    RankingTask,
    RetrievalTask,
    Task,
    architecture_of,
    require_ranking,
)
from polyrank.retrieval.lexical import lexical_package
from polyrank.retrieval.lexical_config import BM25Config

BM25 = "bm25"
"""The source that stands for the lexical baseline, which is made from the data."""

TRAINING_RECORD = "training.json"

Say = Callable[[str], None]
Load = Callable[[str], Any]


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A named model and its sources: folders that differ in the seed, or `bm25`."""

    name: str
    sources: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class MeasuringSettings:
    """How models are measured."""

    sizes: tuple[int, ...] = (100, 1000, 100_000)
    """Numbers of candidates to time a query at; none for no timing."""
    num_queries: int = 10
    time_limit: float = 30.0
    """Seconds of timing for each model, about."""
    rerank_top: int = 100
    """What a cross-encoder reads of what another model retrieves."""


@dataclass(frozen=True, kw_only=True)
class Known:
    """What is known of a source before it is measured."""

    source: str
    architecture: str
    identity: str
    """The fingerprint of the model and how precisely it computes."""
    settings: dict[str, Any]
    device: str
    parameters: int | None
    vector_bytes: int | None
    training_seconds: float | None


class Measuring:
    """Evaluates entries on a task, one model in memory at a time."""

    def __init__(
        self,
        task: Task,
        load: Load,
        store: Store,
        settings: MeasuringSettings,
        say: Say = lambda words: None,
    ) -> None:
        self.task = task
        self.settings = settings
        self.say = say
        self.store = store
        self.load = load
        self.held: tuple[str, Any] | None = None
        self.retrieved: dict[str, Rankings] = {}

    def contenders(
        self, entries: Sequence[Entry], *, retriever: str | None = None
    ) -> list[Contender]:
        """All entries, measured. On a task that searches, a cross-encoder reranks what `retriever`
        finds, by default the first source that can search.

        Every model is opened before the first is measured, so that a broken one is met at once.
        Raises ModelError for what is no model, UsageError for one that cannot be measured here.
        """
        if isinstance(self.task, RetrievalTask):
            measures()
        sources = dict.fromkeys(source for entry in entries for source in entry.sources)
        known = {source: self.look_at(source) for source in sources}
        for entry in entries:
            require_alike(entry, [known[source] for source in entry.sources])
        first = self.first_stage(known, retriever)
        return [self.contender(entry, known, first) for entry in entries]

    def look_at(self, source: str) -> Known:
        """Open a source to know what it is."""
        if source == BM25:
            lexical_package()
            return Known(
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
        require_ranking(model, source)
        dimension = getattr(model, "dimension", None)
        return Known(
            source=source,
            architecture=architecture_of(model),
            identity=f"{model.fingerprint()} {model.compute_dtype}",
            settings=model.identity(),
            device=str(model.device),
            parameters=sum(parameter.numel() for parameter in model.parameters()),
            vector_bytes=None if dimension is None else 4 * int(dimension),
            training_seconds=training_seconds(Path(source)),
        )

    def first_stage(self, known: dict[str, Known], retriever: str | None) -> Known | None:
        """What finds the candidates for cross-encoders, where a task needs it."""
        if not isinstance(self.task, RetrievalTask) or all(
            k.architecture != "cross" for k in known.values()
        ):
            return None
        if retriever is not None:
            found = known.get(retriever) or self.look_at(retriever)
            if found.architecture != "cross":
                return found
            raise UsageError(
                f"{retriever} is a cross-encoder, which cannot search a corpus.",
                "Name a bi- or poly-encoder, or bm25, that finds the candidates for it.",
            )
        able = [found for found in known.values() if found.architecture != "cross"]
        if not able:
            raise UsageError(
                "A cross-encoder cannot search a corpus: it reranks what another model finds.",
                "Add a bi- or poly-encoder, or bm25, or name one that finds the candidates.",
            )
        return able[0]

    def contender(self, entry: Entry, known: dict[str, Known], first: Known | None) -> Contender:
        """One entry, measured."""
        runs = tuple(self.figures(entry, known[source], first) for source in entry.sources)
        ours = [known[source] for source in entry.sources]
        seconds = [each.training_seconds for each in ours if each.training_seconds is not None]
        costs = Costs(
            parameters=ours[0].parameters,
            vector_bytes=ours[0].vector_bytes,
            training_seconds=sum(seconds) / len(seconds) if seconds else None,
            latency=self.latency(entry, ours[0]) if self.settings.sizes else {},
        )
        return Contender(
            name=entry.name,
            architecture=ours[0].architecture,
            sources=entry.sources,
            runs=runs,
            costs=costs,
        )

    def figures(self, entry: Entry, known: Known, first: Known | None) -> QueryFigures:
        """What each query scored, kept or found now."""
        stage = first if known.architecture == "cross" else None
        reranked = (stage.identity, self.settings.rerank_top) if stage else ()
        key = ("quality", self.task.digest, known.identity, *reranked)
        kept: QueryFigures | None = self.store.get(key, QueryFigures.from_json)
        if kept is not None:
            self.say(f"{named(entry, known)}: evaluated before")
            return kept
        self.say(f"{named(entry, known)}: evaluating on {self.task.num_queries:,} queries")
        if isinstance(self.task, RankingTask):
            figures = self.task.measure(self.open(known.source), progress=True)
        else:
            figures = judge(self.rankings(self.task, known, stage), self.task.data)
        self.store.put(key, figures.to_json())
        return figures

    def rankings(self, task: RetrievalTask, known: Known, stage: Known | None) -> Rankings:
        """What each query finds, by the model or by a first stage and then the model."""
        finder = stage or known
        if finder.identity not in self.retrieved:
            model = self.open(finder.source)
            self.retrieved[finder.identity] = retrieve(model, task.data, progress=True)
        found = self.retrieved[finder.identity]
        if stage is None:
            return found
        top = self.settings.rerank_top
        return rerank(self.open(known.source), task.data, found, top, progress=True)

    def latency(self, entry: Entry, known: Known) -> dict[int, Latency]:
        """The time of a query at each size, kept or found now."""
        settings = self.settings
        machine = (known.device, torch.get_num_threads())
        how = (list(settings.sizes), settings.num_queries, settings.time_limit)
        key = ("latency", self.task.digest, known.identity, *machine, *how)
        kept: dict[int, Latency] | None = self.store.get(key, latency_from_json)
        if kept is not None:
            return kept
        self.say(f"{entry.name}: timing queries")
        found = measure_latency(
            self.open(known.source),
            self.task.contexts,
            self.task.texts,
            sizes=settings.sizes,
            num_queries=settings.num_queries,
            time_limit=settings.time_limit,
        )
        self.store.put(key, latency_to_json(found))
        return found

    def open(self, source: str) -> Any:
        """The model of a source, the last one kept in memory; BM25 is made from the data."""
        if self.held is None or self.held[0] != source:
            self.held = None  # before the next one is loaded
            self.held = (source, self.task.lexical() if source == BM25 else self.load(source))
        return self.held[1]


def require_alike(entry: Entry, runs: Sequence[Known]) -> None:
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
                "Name models with different settings apart.",
            )


def named(entry: Entry, known: Known) -> str:
    """What progress calls a run."""
    return entry.name if len(entry.sources) == 1 else f"{entry.name} ({known.source})"


def training_seconds(folder: Path) -> float | None:
    """What the folder of a model says that its training took, if it says it."""
    try:
        seconds = json.loads((folder / TRAINING_RECORD).read_text(encoding="utf-8"))["seconds"]
        return float(seconds)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def latency_to_json(found: dict[int, Latency]) -> list[dict[str, Any]]:
    """JSON-ready: one mapping a size."""
    return [dict(vars(latency)) for latency in found.values()]


def latency_from_json(record: list[dict[str, Any]]) -> dict[int, Latency]:
    """What `latency_to_json` gave; raises KeyError or TypeError for anything else."""
    found = [Latency(**fields) for fields in record]
    return {latency.num_candidates: latency for latency in found}
