"""The runs of a table: each row with each seed, made, measured, and kept as soon as it is measured.

FOLDER/
    TABLE.md, TABLE.json              the reports
    results/                          what each run reached, by all that it depends on
    encoders/                         pre-trained encoders, which tables share
    python-docs, python-docs-corpus   data that were made
    .TABLE.json.reproducing/          the work on a table, and its models
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

from polyrank.errors import UsageError
from polyrank.evaluation.comparison import Comparison, Contender, Run, compare_contenders
from polyrank.evaluation.evaluator import Entry, Evaluator, EvaluatorSettings
from polyrank.evaluation.latency import Latency
from polyrank.evaluation.metrics import QueryMetrics
from polyrank.evaluation.pairs import PairResults
from polyrank.evaluation.report import environment
from polyrank.evaluation.tasks import PairTask, RankingTask, RetrievalTask, Task
from polyrank.jobs import Job, Results, working
from polyrank.models.checkpoint import load_model
from polyrank.models.source import HUB_ID
from polyrank.progress import Say, silent
from polyrank.reproduce.data import TableData
from polyrank.reproduce.stages import Maker, Place, seconds_of
from polyrank.reproduce.table import BM25, Overrides, Row, Scale, Table
from polyrank.training.result import processor

SIZES = (1000, 100_000)
TIME_LIMIT = 30.0
FEW_PERMUTATIONS = 10_000


@dataclass(frozen=True, kw_only=True)
class RunSettings:
    """How to run tables."""

    scale: Scale
    overrides: Overrides = field(default_factory=Overrides)
    base: str | None = None
    seeds: tuple[int, ...] = (0,)
    place: Place = field(default_factory=Place)
    keep_models: bool = False


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The result of one run."""

    figures: dict[str, float]
    """By metric; means over the queries."""
    queries: Run | None = None
    """The values of each query or labelled pair, where there are any."""
    latency: tuple[Latency, ...] = ()
    about: dict[str, Any] = field(default_factory=dict)
    """Parameters, steps, machine, date."""

    def to_json(self) -> dict[str, Any]:
        """JSON-ready, with every value."""
        return {
            "figures": self.figures,
            "queries": None if self.queries is None else self.queries.to_json(),
            "latency": [asdict(each) for each in self.latency],
            "about": self.about,
        }

    @classmethod
    def from_json(cls, record: dict[str, Any]) -> Outcome:
        """What `to_json` gave; raises KeyError, TypeError or ValueError for anything else."""
        queries = record["queries"]
        if queries is not None:
            kind = PairResults if "gold" in queries else QueryMetrics
            queries = kind.from_json(queries)
        return cls(
            figures={str(name): float(value) for name, value in record["figures"].items()},
            queries=queries,
            latency=tuple(Latency(**each) for each in record["latency"]),
            about=dict(record["about"]),
        )


@dataclass(frozen=True, kw_only=True)
class RowResult:
    """A row of a finished table: its runs, one for each seed."""

    row: Row
    runs: tuple[Outcome, ...]

    def figure(self, metric: str) -> float | None:
        """The median over the seeds of a time, the mean of anything else; None if not measured."""
        values = [run.figures[metric] for run in self.runs if metric in run.figures]
        if not values:
            return None
        is_time = metric == "seconds" or metric.startswith("ms@")
        return statistics.median(values) if is_time else statistics.fmean(values)


@dataclass(frozen=True, kw_only=True)
class TableResult:
    """A finished table."""

    table: Table
    rows: tuple[RowResult, ...]
    comparison: Comparison | None
    """Intervals and tests of the rows, where they have the same queries or pairs."""
    about: dict[str, Any]


def run_table(
    table: Table, settings: RunSettings, data: TableData, folder: Path, say: Say = silent
) -> TableResult:
    """Run what of a table is not kept in `folder` yet.

    Raises UsageError and DataError for data or a base that do not suit it.
    """
    if table.always_new and settings.base is not None:
        raise UsageError(
            f"The table {table.name} varies the size of new encoders, so it takes no base.",
            "Leave out --base, or choose another table.",
        )
    rows = table.rows(settings.scale)
    identity = {"scale": settings.scale.name, "base": settings.base, "table": table.name}
    job = Job(
        output=folder / f"{table.name}.json", doing="reproducing", noun="run", identity=identity
    )
    with working(job, other="discard") as work:
        work.keep()
        runner = Runner(table, settings, data, folder, work.folder, say)
        outcomes: dict[str, list[Outcome]] = {row.label: [] for row in rows}
        number = 0
        for seed in settings.seeds:  # outside, so that times of all rows are taken by turns
            for row in rows:
                number += 1
                name = row.label if len(settings.seeds) == 1 else f"{row.label}, seed {seed}"
                say(f"{number}/{len(rows) * len(settings.seeds)} {name}")
                outcomes[row.label].append(runner.outcome(row, seed))
    found = tuple(RowResult(row=row, runs=tuple(outcomes[row.label])) for row in rows)
    machines = sorted({machine_of(run.about) for row in found for run in row.runs})
    dates = sorted({str(run.about["date"]) for row in found for run in row.runs})
    return TableResult(
        table=table,
        rows=found,
        comparison=compared(table, found),
        about={**runner.about, "hardware": machines, "date": dates},
    )


def machine_of(about: Mapping[str, Any]) -> str:
    """What a run was computed on, and with which versions."""
    processor = f" ({about['processor']})" if "processor" in about else ""
    versions = f"polyrank {about['polyrank']}, torch {about['torch']}"
    return f"{about['device']}{processor}, {versions}"


class Runner:
    """Runs the rows of one table."""

    def __init__(
        self,
        table: Table,
        settings: RunSettings,
        data: TableData,
        folder: Path,
        work: Path,
        say: Say,
    ) -> None:
        self.table = table
        self.settings = settings
        self.data = data
        self.say = say
        self.work = work
        self.results = Results(folder / "results")
        self.maker = Maker(
            data,
            settings.scale,
            settings.overrides,
            base=settings.base,
            new=table.is_new,
            place=settings.place,
            models=folder / "models" if settings.keep_models else work / "models",
            encoders=folder / "encoders",
            say=lambda words: say(f"  {words}"),
        )

    @property
    def about(self) -> dict[str, Any]:
        """What all rows have in common, for the reports."""
        kinds = self.table.kinds(self.settings.scale)
        names = {kind: getattr(getattr(self.data, kind), "name", None) for kind in kinds}
        if "corpus" in kinds:
            source = self.data.corpus.manifest.source
            names["corpus"] = str(source.get("name"))
        return {
            "scale": self.settings.scale.name,
            "base": self.base,
            "data": names,
            "seeds": list(self.settings.seeds),
            "tested": self.num_tested,
        }

    @property
    def base(self) -> str:
        """What the models start from."""
        return self.settings.base or ("new encoders" if self.table.is_new else HUB_ID)

    @property
    def num_tested(self) -> int | None:
        """The test examples, queries or pairs, where there are any."""
        if self.table.task == "dialogues":
            return len(self.data.dialogues.test)
        if self.table.task == "questions":
            return len(self.data.questions.test.queries)
        return len(self.data.sts.test) if self.table.task == "sts" else None

    def outcome(self, row: Row, seed: int) -> Outcome:
        """The result of a run: kept, or run now."""
        seed = seed if row.stages else 0
        identity = self.maker.identity(row.stages, seed) if row.stages else [BM25]
        measured = [self.table.task, list(self.table.metrics), self.tested_digest]
        key = ("run", measured, identity, self.timed(seed))
        kept: Outcome | None = self.results.get(key, Outcome.from_json)
        if kept is not None:
            self.say("  run before")
            return kept
        source = str(self.maker.make(row.stages, seed)) if row.stages else BM25
        found = self.measure(row.label, source)
        self.results.put(key, found.to_json())
        return found

    def timed(self, seed: int) -> list[Any]:
        """What times depend on besides the model."""
        if self.table.task not in ("time", "speed"):
            return []
        return [environment(self.settings.place.device), seed]

    @property
    def tested_digest(self) -> str:
        """Tells apart what models are measured on."""
        return "" if self.table.task == "time" else self.task.digest

    @property
    def task(self) -> Task:
        """What models rank, search or score."""
        if self.table.task == "sts":
            return PairTask(pairs=self.data.sts.test)
        if self.table.task == "questions":
            return RetrievalTask(data=self.data.questions.test)
        return RankingTask(examples=self.data.dialogues.test)

    def measure(self, name: str, source: str) -> Outcome:
        """Measure a model, or BM25."""
        place = self.settings.place
        about: dict[str, Any] = {"date": str(date.today()), **environment(place.device)}
        if "cuda" not in about["device"]:
            about["processor"] = processor()
        seconds, pairs = (0.0, 0) if source == BM25 else seconds_of(Path(source))
        about |= {"trained_on": pairs, "training_seconds": seconds}
        if self.table.task == "time":
            return Outcome(figures={"seconds": 1000 * seconds / pairs}, about=about)
        sizes = SIZES if self.table.task == "speed" else ()
        evaluator = Evaluator(
            self.task,
            self.load,
            Results(self.work / "evaluations"),
            EvaluatorSettings(sizes=sizes, time_limit=TIME_LIMIT),
        )
        entry = Entry(name=name, sources=(source,))
        if self.table.task == "speed":
            times = evaluator.latency(entry, evaluator.inspect(source))
            figures = {f"ms@{size}": each.milliseconds for size, each in times.items()}
            return Outcome(figures=figures, latency=tuple(times.values()), about=about)
        [contender] = evaluator.evaluate([entry])
        [queries] = contender.runs
        about["parameters"] = contender.costs.parameters
        figures = queries.figures() if isinstance(queries, PairResults) else queries.means()
        return Outcome(figures=figures, queries=queries, about=about)

    def load(self, source: str) -> Any:
        """A model of the table."""
        place = self.settings.place
        return load_model(
            source, device=place.device, dtype=place.dtype, batch_tokens=place.batch_tokens
        )


def compared(table: Table, rows: Sequence[RowResult]) -> Comparison | None:
    """The rows with their intervals and tests, where they have queries or pairs."""
    contenders = [
        Contender(
            name=each.row.label,
            architecture="",
            sources=(),
            runs=tuple(run.queries for run in each.runs if run.queries is not None),
        )
        for each in rows
    ]
    if not all(each.runs for each in contenders):
        return None
    metric = table.metrics[0]
    return compare_contenders(contenders, metric=metric, num_permutations=FEW_PERMUTATIONS)
