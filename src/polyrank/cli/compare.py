"""`polyrank compare`: several models on one set of data, in tables, in JSON and as a plot."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from polyrank.cli.command import command
from polyrank.cli.data import FigureOptions, load_records
from polyrank.cli.options import InferenceOptions, load, option, positional
from polyrank.cli.output import Output
from polyrank.config import require
from polyrank.display.words import span
from polyrank.errors import UsageError
from polyrank.evaluation.metric_names import PAIR_LABELS
from polyrank.storage import require_replaceable

if TYPE_CHECKING:
    from polyrank.evaluation.evaluator import Entry
    from polyrank.evaluation.tasks import Task

EVALUATIONS = "evaluations"
"""The folder of kept results inside that of a comparison."""

SIZES, PLOTTED = (100, 1000, 100_000), 1000


@dataclass(frozen=True, kw_only=True)
class CompareOptions(FigureOptions, InferenceOptions):
    """Options of `polyrank compare`."""

    models: tuple[str, ...] = positional(
        "MODEL",
        help="Folders of saved models, or bm25 for the lexical baseline. NAME=MODEL names one; "
        "NAME=MODEL,MODEL,… is one model trained with several seeds.",
    )
    output: Path = option(
        help="The folder of the comparison. It keeps what was measured, so that an interrupted "
        "or larger comparison resumes."
    )
    metrics: tuple[str, ...] = option(
        (),
        help="The figure to test and plot, such as recall@20, mrr or ndcg@10; more figures to "
        "show may follow. By default, recall@1, or ndcg@10 for a corpus. For labelled "
        "pairs, spearman, pearson, accuracy or macro_f1; by default, spearman for scores "
        "and accuracy for classes.",
        metavar="METRIC,…",
    )
    retriever: str | None = option(
        None,
        help="The model that finds what cross-encoders rerank in a corpus: a bi- or "
        "poly-encoder, or bm25. By default, the first model that can.",
        metavar="MODEL",
    )
    latency: bool = option(True, help="Measure the time of a query, or of a labelled pair.")
    sizes: tuple[int, ...] = option(
        SIZES, help="The numbers of candidates for which a query is timed."
    )
    time_limit: float = option(30.0, help="About how many seconds to time each model.")
    plot: bool = option(True, help="Draw quality against latency; needs matplotlib and --latency.")
    plot_at: int | None = option(
        None,
        help=f"The size to plot. By default, {PLOTTED}, or else the largest.",
    )
    seed: int = option(0, help="The seed of drawn candidates, intervals and tests.")

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.time_limit > 0, "--time-limit", "positive", self.time_limit)
        require(bool(self.models), "MODEL", "given at least once", "none")
        self.check_figures()
        sizes = self.sizes
        require(bool(sizes) and min(sizes) >= 1, "--sizes", "whole numbers from 1", sizes)
        require(len(set(sizes)) == len(sizes), "--sizes", "different numbers", sizes)
        at = self.plot_at
        require(at is None or at in sizes, "--plot-at", f"one of --sizes, {sizes}", at)

    @property
    def plotted(self) -> int | None:
        """The number of candidates of the plot, or None for no plot."""
        if not (self.plot and self.latency):
            return None
        return self.plot_at or (PLOTTED if PLOTTED in self.sizes else max(self.sizes))


def interrupted(options: CompareOptions) -> str:
    """The words after Ctrl-C."""
    return (
        f"What was measured is kept in {options.output}: run the same command again to resume "
        "with the other models."
    )


@command("compare", CompareOptions, interrupted=interrupted)
def compare(options: CompareOptions, output: Output) -> None:
    """Compare models: quality, significance, latency and memory.

    All are measured on one set of data. Quality comes with 95% bootstrap intervals, and every two
    models are tested with a paired randomisation test, Holm-corrected. The output folder gets
    comparison.md, comparison.json, per-query.jsonl and a plot of quality against latency,
    comparison.png and .svg.
    """
    named = parse_models(options.models)
    require_replaceable(options.output, EVALUATIONS, "a comparison")
    if options.plotted is not None:
        from polyrank.evaluation.plot import require_matplotlib

        require_matplotlib()
    task = load_task(options, output)

    from polyrank.evaluation.compare import run_comparison
    from polyrank.evaluation.evaluator import Entry, EvaluatorSettings
    from polyrank.evaluation.report import terminal_tables

    entries = [Entry(name=name, sources=sources) for name, sources in named.items()]
    found = run_comparison(
        task,
        entries,
        lambda source: load(Path(source), options),
        output=options.output,
        settings=EvaluatorSettings(
            sizes=options.sizes if options.latency else (),
            time_limit=options.time_limit,
            num_candidates=options.num_reranked,
        ),
        retriever=options.retriever,
        metric=options.metrics[0] if options.metrics else None,
        seed=options.seed,
        plotted_size=options.plotted,
        about=about(options, task, entries),
        say=output.say,
    )
    for table in terminal_tables(found.comparison):
        output.table(table)
    output.say(f"Compared in {span(output.seconds)}")
    output.result({**found.to_json(), "output": options.output})


def parse_models(given: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    """The sources of each model by its name. Raises UsageError for a name or a source twice."""
    named: dict[str, tuple[str, ...]] = {}
    for text in given:
        name, equals, rest = text.partition("=")
        if not equals or Path(text).exists():
            name, rest = Path(text).resolve().name if text != "bm25" else text, text
        sources = (rest,) if Path(rest).exists() else tuple(rest.split(","))
        if not name or not all(sources):
            raise UsageError(
                f"A model is MODEL, NAME=MODEL or NAME=MODEL,MODEL, got {text!r}.",
                "Give a name and a folder.",
            )
        if name in named:
            raise UsageError(
                f"Two models are called {name!r}: {', '.join(named[name])} and {rest}.",
                f"Give them different names, such as first={rest}.",
            )
        if len(set(sources)) < len(sources):
            raise UsageError(
                f"The model {name} names one folder twice: {rest}.", "Give each seed once."
            )
        named[name] = sources
    return named


def load_task(options: CompareOptions, output: Output) -> Task:
    """What the models are compared on; candidates are drawn once for all models."""
    records = load_records(options.data, options, split=options.split, say=output.say)

    from polyrank.records import LabelledPair, RetrievalSet

    if not isinstance(records, RetrievalSet) and isinstance(records[0], LabelledPair):
        require_pair_figures(options, output)
    return options.task_of(records, output)


def require_pair_figures(options: CompareOptions, output: Output) -> None:
    """Raise UsageError for figures that labelled pairs do not have; warn of what has no effect."""
    idle = {"--sizes": options.sizes != SIZES, "--plot-at": options.plot_at is not None}
    idle |= {"--num-candidates": options.num_candidates is not None}
    for flag in [flag for flag, is_given in idle.items() if is_given]:
        output.warn(f"{flag} has no effect on labelled pairs.")
    asked = [f"--metrics {name}" for name in options.metrics if name not in PAIR_LABELS]
    asked += ["--ks"] if options.ks else []
    if asked:
        raise UsageError(
            f"{asked[0]} is for rankings, but {options.data} holds labelled pairs.",
            f"Choose --metrics {', '.join(PAIR_LABELS)}, or leave it out.",
        )


def about(options: CompareOptions, task: Task, entries: list[Entry]) -> dict[str, Any]:
    """What the figures depend on, for the reports."""
    import shlex

    from polyrank.evaluation.report import environment

    named = [f"{entry.name}={','.join(entry.sources)}" for entry in entries]
    rest = ["--data", str(options.data), "--output", str(options.output)]
    return {
        "data": str(options.data),
        "limit": options.limit,
        "except_share": options.except_share,
        "seed": options.seed,
        "digest": task.digest,
        "dtype": options.dtype,
        **environment(options.device),
        "command": shlex.join(["polyrank", "compare", *named, *rest]),
    }
