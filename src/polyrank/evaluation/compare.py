"""`polyrank.compare`: several models on one set of data, from models to a report. Other modules do
the steps: the task, the evaluator, the statistics, the report.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

from polyrank.data.loading import Data
from polyrank.data.memory import name_of
from polyrank.errors import UsageError
from polyrank.evaluation import report
from polyrank.evaluation.comparison import Comparison, compare_contenders
from polyrank.evaluation.evaluate import Evaluated, NumCandidates, task_of_data
from polyrank.evaluation.evaluator import BM25, Entry, Evaluator, EvaluatorSettings
from polyrank.evaluation.plot import require_matplotlib
from polyrank.evaluation.tasks import Task
from polyrank.jobs import Results
from polyrank.models.checkpoint import load_model
from polyrank.progress import Say, print_line, showing, silent
from polyrank.storage import require_replaceable

EVALUATIONS = "evaluations"
"""The folder of kept results inside that of a comparison."""
SIZES, PLOTTED = (100, 1000, 100_000), 1000
"""The numbers of candidates that a query is timed against, and the one that is plotted."""
WIDTH = 160
"""Letters of a line of the tables."""
Compared = Evaluated | Sequence[Evaluated]
"""A model, or its runs with different seeds."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ComparisonResult:
    """A comparison; `print` shows its tables."""

    comparison: Comparison
    about: Mapping[str, Any]
    """What the figures depend on: the data, the seed, the device."""
    plotted_size: int | None
    """The number of candidates of the plot; None for no plot."""

    @property
    def figures(self) -> dict[str, dict[str, float]]:
        """The means by the name of the model, then by metric."""
        means = self.comparison.means
        return {name: {one: own.mean for one, own in of.items()} for name, of in means.items()}

    def to_json(self) -> dict[str, Any]:
        """Everything but the values of single queries, JSON-ready."""
        return report.to_json(self.comparison, self.about)

    def write(self, folder: str | Path) -> list[str]:
        """Write the report with its tables and the plot to a folder; the names of the files.

        Raises StorageError, and MissingExtraError for a plot without matplotlib.
        """
        size = self.plotted_size
        if size is not None and self.comparison.unit == "pair":
            size = 1
        return report.write_report(self.comparison, Path(folder), self.about, plotted_size=size)

    def __repr__(self) -> str:
        """The tables: quality, costs and differences."""
        from rich.console import Console

        text = StringIO()
        console = Console(file=text, width=WIDTH, highlight=False)
        for table in report.terminal_tables(self.comparison):
            console.print(table)
        return "\n".join(line.rstrip() for line in text.getvalue().splitlines())


def compare(
    models: Mapping[str, Compared] | Sequence[Evaluated],
    data: Data,
    output: str | Path | None = None,
    *,
    metrics: Sequence[str] = (),
    ks: Sequence[int] = (),
    num_candidates: NumCandidates = None,
    retriever: str | None = None,
    split: str | None = None,
    columns: Mapping[str, str] | None = None,
    limit: int | None = None,
    sizes: Sequence[int] = SIZES,
    time_limit: float = 30.0,
    plot: bool = True,
    seed: int = 0,
    show_progress_bar: bool = True,
    say: Say | None = None,
) -> ComparisonResult:
    """Compare models on one set of data: quality, differences, latency, memory and training time.

    Quality has 95% bootstrap intervals, and every two models are tested with a paired randomisation
    test, Holm-corrected.

    Args:
        models: From the name of a model to the model, the folder of a saved one, or `bm25`; a list
            of these is one model with several seeds. Or a list of models, which are named by their
            folders or architectures.
        data: Records, mappings, tuples, a data set or a path, as for `load_examples`; or a
            `RetrievalSet`.
        output: A folder for the report and the plot. What was measured is kept there, so that an
            interrupted or widened comparison resumes.
        metrics: The figure to test and to plot, such as `mrr`, then any others to show; by default
            recall@1 is tested, ndcg@10 of a corpus, spearman of scores, accuracy of classes.
        ks: The k of recall@k.
        num_candidates: Of examples without candidates: how many each gets, drawn from the responses
            of the data (20), or `all`. Of a corpus: how many documents a cross-encoder reads (100).
        retriever: The name of the model that finds what cross-encoders rerank in a corpus; by
            default the first that can.
        split: The split of data that have several; by default the usual one to evaluate on.
        columns: From a field, such as `context`, to the name of the column that holds it.
        limit: Use only the first examples, queries or pairs.
        sizes: The numbers of candidates to time a query against; none for no timing.
        time_limit: Seconds of timing for each model, about.
        plot: Draw quality against latency where there is an `output`; needs matplotlib.
        seed: Seed of drawn candidates, of the intervals and of the tests.
        show_progress_bar: Show on standard error how far the comparison is.
        say: Gets the lines that are otherwise printed on standard error.

    Returns:
        The comparison; `print` shows its tables, and `write` makes a report.

    Raises:
        DataError: The data cannot be read, or hold too few responses.
        UsageError: Two models have one name, or a model cannot give what the data need.
        ModelError: A folder holds no model.
        MissingExtraError: matplotlib, `bm25` or `metrics` is needed and not installed.
    """
    entries, known = named_models(models)
    if output is not None:
        require_replaceable(Path(output), EVALUATIONS, "a comparison")
    if plot and output is not None:
        require_matplotlib()
    number = num_candidates if isinstance(num_candidates, int) else None
    at_sizes = tuple(sizes)
    plotted = PLOTTED if PLOTTED in at_sizes else max(at_sizes, default=None)
    drawn: dict[str, Any] = {"num_candidates": num_candidates, "seed": seed}
    task = task_of_data(data, split, columns, limit, metrics=metrics, ks=ks, **drawn)
    say = say or (print_line if show_progress_bar else silent)
    settings = EvaluatorSettings(
        sizes=at_sizes,
        time_limit=time_limit,
        **({} if number is None else {"num_candidates": number}),
    )
    by_name = {entry.name: entry.sources[0] for entry in entries}
    with showing(show_progress_bar):
        return run_comparison(
            task,
            entries,
            lambda source: (
                known[source] if source in known else load_model(source, trainable=False)
            ),
            output=None if output is None else Path(output),
            settings=settings,
            retriever=None if retriever is None else by_name.get(retriever, retriever),
            metric=metrics[0] if metrics else None,
            seed=seed,
            plotted_size=plotted if plot and output is not None else None,
            about={
                "data": name_of(data),
                "limit": limit,
                "seed": seed,
                "digest": task.digest,
                **report.environment("auto"),
            },
            say=say,
        )


def run_comparison(
    task: Task,
    entries: Sequence[Entry],
    load: Callable[[str], Any],
    *,
    output: Path | None,
    settings: EvaluatorSettings,
    retriever: str | None,
    metric: str | None,
    seed: int,
    plotted_size: int | None,
    about: Mapping[str, Any],
    say: Say,
) -> ComparisonResult:
    """Evaluate the entries, compare them and write the report, where there is an `output`.

    What was measured is kept in the output. Raises as `compare`.
    """
    kept = Results(None if output is None else output / EVALUATIONS)
    evaluator = Evaluator(task, load, kept, settings, say=say)
    contenders = evaluator.evaluate(entries, retriever=retriever)
    found = compare_contenders(contenders, metric=metric, seed=seed)
    result = ComparisonResult(comparison=found, about=about, plotted_size=plotted_size)
    if output is not None:
        say(f"Written to {output}: {', '.join(result.write(output))}")
    return result


def named_models(
    models: Mapping[str, Compared] | Sequence[Evaluated],
) -> tuple[list[Entry], dict[str, Any]]:
    """The entries of a comparison, and the models in memory by their sources.

    Raises UsageError where two models of a list would have one name.
    """
    if isinstance(models, (str, Path)) or not isinstance(models, (Mapping, Sequence)):
        raise UsageError(
            f"models must be a mapping or a list, got a {type(models).__name__}.",
            'Write {"bi": model, "poly": other}.',
        )
    if not isinstance(models, Mapping):
        names = [name_of_model(model) for model in models]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise UsageError(
                f"Two models would be called {twice!r}.", 'Name them: {"one": model, "two": other}.'
            )
        models = dict(zip(names, models, strict=True))
    known: dict[str, Any] = {}
    entries = []
    for name, given in models.items():
        runs: Sequence[Any] = given if isinstance(given, (list, tuple)) else [given]
        sources = []
        for number, run in enumerate(runs, start=1):
            source = str(run) if isinstance(run, (str, Path)) else source_of(run, name, number)
            if not isinstance(run, (str, Path)):
                source = source if known.get(source, run) is run else f"{name} {number}"
                known[source] = run
            sources.append(source)
        entries.append(Entry(name=name, sources=tuple(sources)))
    return entries, known


def source_of(model: Any, name: str, number: int) -> str:
    """The source of a model in memory: its folder, which may say how it was trained."""
    path = getattr(model, "path", None)
    return f"{name} {number}" if path is None else str(path)


def name_of_model(model: Any) -> str:
    """The name of a model in a list: its folder's or its architecture's."""
    if model == BM25:
        return BM25
    path = model if isinstance(model, (str, Path)) else getattr(model, "path", None)
    return str(model.architecture) if path is None else Path(path).resolve().name
