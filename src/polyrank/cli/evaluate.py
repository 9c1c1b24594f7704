"""`polyrank evaluate`: a model's figures on examples, on a retrieval set or on labelled pairs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from polyrank.cli.command import command
from polyrank.cli.data import FigureOptions, load_records
from polyrank.cli.flags import flags_of
from polyrank.cli.options import InferenceOptions, SourceOptions, load, option, positional
from polyrank.cli.output import Output
from polyrank.display.words import span
from polyrank.errors import UsageError

if TYPE_CHECKING:
    from rich.table import Table

    from polyrank.data.loading import Records
    from polyrank.evaluation.evaluate import EvaluationResult

BM25 = "bm25"
RERANKING = ("data", "num_candidates")


@dataclass(frozen=True, kw_only=True)
class EvaluateOptions(FigureOptions, SourceOptions, InferenceOptions):
    """Options of `polyrank evaluate`."""

    model: str = positional(
        "MODEL", help=f"The folder of a saved model, or {BM25} for the lexical baseline."
    )
    reranker: str | None = option(
        None,
        help="A cross-encoder that reranks the best candidates of the model.",
        metavar="MODEL",
    )
    output: Path | None = option(
        None,
        help="Write the figures of each query to this JSONL file; with --mteb, MTEB's results to "
        "this folder.",
    )
    mteb: tuple[str, ...] = option(
        (),
        split=False,
        metavar="TASK",
        help="Evaluate on a task or a benchmark of MTEB, such as SciFact, instead of --data; "
        "repeat it for several.",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_figures()


@command("evaluate", EvaluateOptions)
def evaluate(options: EvaluateOptions, output: Output) -> None:
    """Measure a model on a set of data.

    Examples: the candidates of each are ranked; recall@k of C candidates, and MRR. Ties count at
    chance. Examples without candidates get the same ones for the same seed. A corpus with
    judgements: every query searches it; nDCG@10, recall@k, MRR@10 and MAP. --metrics adds nDCG,
    recall and MRR at any cut. Labelled pairs: Spearman's and Pearson's correlation of scores;
    accuracy, macro F1, and precision, recall and F1 of each class for a model with a classifier.
    With --mteb, the main score of each task of MTEB, in its own JSON.
    """
    if options.mteb:
        evaluate_on_mteb(options, output)
        return
    records = load_records(options.data, options, split=options.split, say=output.say)

    from polyrank.evaluation.evaluate import measure
    from polyrank.evaluation.tasks import PairTask, RetrievalTask

    require_figures(options, records)
    warn_of_own_candidates(options, records, output)
    task = options.task_of(records, output)
    searches = isinstance(task, RetrievalTask)
    warn_without_effect(options, output, searches=searches)
    if isinstance(task, PairTask) and options.output is not None:
        output.warn("--output has no effect on labelled pairs: their figures are of all pairs.")
    reranker = options.reranker if searches else None
    result = measure(
        task,
        BM25
        if options.model == BM25
        else load(Path(options.model), options, revision=options.revision),
        name=options.model,
        reranker=None if reranker is None else load(Path(reranker), options),
        num_candidates=options.num_reranked,
        show_progress_bar=True,
    )
    tell(options, output, result, of_pairs=isinstance(task, PairTask), searches=searches)


def evaluate_on_mteb(options: EvaluateOptions, output: Output) -> None:
    """Measure the model on tasks of MTEB, and say the main score of each."""
    for flag in flags_of(FigureOptions):
        if getattr(options, flag.name) not in (flag.default, None) and flag.name not in RERANKING:
            output.warn(f"{flag.shown} has no effect with --mteb.")
    if options.model == BM25:
        raise UsageError(
            f"{BM25} is not a model for MTEB.", "Give a model, or evaluate with --data."
        )

    from polyrank.interop.mteb import as_json, evaluate

    reranker = options.reranker
    result = evaluate(
        load(Path(options.model), options, revision=options.revision),
        list(options.mteb),
        output=options.output,
        reranker=None if reranker is None else load(Path(reranker), options),
        num_candidates=options.num_reranked,
        show_progress_bar=not output.json,
    )
    output.say(f"{options.model} on MTEB, the main score of each task, {span(output.seconds)}")
    for task in result.task_results:
        output.say(f"  {task.task_name:<30} {task.get_score():.4f}")
    if options.output is not None:
        output.say(f"MTEB's results: {options.output}")
    tasks = [as_json(task) for task in result.task_results]
    output.result({"model": options.model, "mteb": tasks, "output": options.output})


def require_figures(options: EvaluateOptions, records: Records) -> None:
    """Raise UsageError for figures of rankings that labelled pairs do not have."""
    from polyrank.records import LabelledPair

    if not isinstance(records, list) or not isinstance(records[0], LabelledPair):
        return
    for flag, given in (("--ks", options.ks), ("--metrics", options.metrics)):
        if given:
            raise UsageError(
                f"{flag} is for rankings, but {options.data} holds labelled pairs.",
                f"Leave {flag} out, or give examples or a corpus.",
            )


def warn_without_effect(options: EvaluateOptions, output: Output, *, searches: bool) -> None:
    """Name what was asked for and has no effect."""
    if not searches and options.reranker is not None:
        output.warn("--reranker has no effect: nothing is retrieved from this data.")
    if options.revision is not None and options.model == BM25:
        output.warn(f"--revision has no effect on {BM25}.")
    is_number = isinstance(options.num_candidates, int)
    if searches and is_number and options.reranker is None:
        output.warn("--num-candidates has no effect on a corpus without --reranker.")


def warn_of_own_candidates(options: EvaluateOptions, records: Records, output: Output) -> None:
    """Warn of a number of candidates where every example has its own."""
    from polyrank.records import Example

    if isinstance(options.num_candidates, int) and isinstance(records, list):
        own = [isinstance(one, Example) and one.candidates is not None for one in records]
        if all(own):
            output.warn("--num-candidates has no effect: every example has its own candidates.")


def class_table(classes: Mapping[str, Mapping[str, Any]]) -> Table:
    """Precision, recall and F1 of each class, for people."""
    from rich.markup import escape
    from rich.table import Table

    table = Table()
    table.add_column("class", no_wrap=True)
    for name in ("precision", "recall", "F1", "pairs"):
        table.add_column(name, justify="right", no_wrap=True)
    for name, each in classes.items():
        figures = (f"{each[figure]:.4f}" for figure in ("precision", "recall", "f1"))
        table.add_row(escape(name), *figures, f"{each['count']:,}")
    return table


def write_per_query(path: Path | None, rows: Iterable[Mapping[str, Any]]) -> None:
    """One JSON object a query, replacing the file at once; nothing without a path."""
    import json

    from polyrank.storage import write_text

    if path is not None:
        lines = (json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        write_text(path, "".join(lines))


def tell(
    options: EvaluateOptions,
    output: Output,
    result: EvaluationResult,
    *,
    of_pairs: bool,
    searches: bool,
) -> None:
    """Say the figures to people, and to programs; what each query scored goes to a file."""
    if not of_pairs:
        write_per_query(options.output, result.rows())
    plain = result.to_json()
    reranked = f" by {options.reranker}" if searches and options.reranker is not None else ""
    output.say(f"{options.model} on {options.data}")
    output.say(f"{result.about}{reranked}, {span(output.seconds)}")
    for name, value in result.figures.items():
        label = name if of_pairs else result.labels[name]
        output.say(f"  {label:<10} {value:.4f}")
    if "classes" in plain:
        output.table(class_table(plain["classes"]))
    if options.output is not None and not of_pairs:
        output.say(f"What each query scored: {options.output}")
    how = {"reranker": options.reranker} if searches else {}
    about = {"seed": options.seed, "per_query": options.output}
    output.result({"model": options.model, "data": options.data, **plain, **how, **about})
