"""`polyrank evaluate`: a model's figures on examples, on a retrieval set or on labelled pairs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from polyrank.cli.command import command
from polyrank.cli.data import FigureOptions, load_records, warn_of_left_out
from polyrank.cli.options import ModelOptions, load, option, positional
from polyrank.cli.output import Output
from polyrank.config import require
from polyrank.display.words import span
from polyrank.errors import UsageError
from polyrank.evaluation.metric_names import CORPUS_KS, KS

if TYPE_CHECKING:
    from rich.table import Table

    from polyrank.evaluation.pairs import ClassFigures
    from polyrank.records import Example, LabelledPair, RetrievalSet

BM25 = "bm25"


@dataclass(frozen=True, kw_only=True)
class EvaluateOptions(FigureOptions, ModelOptions):
    """Options of `polyrank evaluate`."""

    model: str = positional(
        "MODEL", help=f"The folder of a saved model, or {BM25} for the lexical baseline."
    )
    data: Path = option(
        help="Examples, a BEIR folder or labelled pairs. Examples have a context, a response "
        "and, optionally, candidates; a BEIR folder has a corpus, queries and judgements."
    )
    split: str | None = option(None, help="The split to use, such as dev. By default, test.")
    limit: int | None = option(None, help="Use only the first N examples, queries or pairs.")
    reranker: str | None = option(
        None,
        help="A cross-encoder that reranks the best candidates of the model.",
        metavar="MODEL",
    )
    seed: int = option(0, help="The seed of the drawn candidates.")
    output: Path | None = option(None, help="Write the figures of each query to this JSONL file.")

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.limit is None or self.limit >= 1, "--limit", "at least 1", self.limit)
        self.check_figures()


@command("evaluate", EvaluateOptions)
def evaluate(options: EvaluateOptions, output: Output) -> None:
    """Measure a model on a set of data.

    Examples: the candidates of each are ranked; recall@k of C candidates, and MRR. Ties count at
    chance. Examples without candidates get the same ones for the same seed. A corpus with
    judgements: every query searches it; nDCG@10, recall@k, MRR@10 and MAP. --metrics adds nDCG,
    recall and MRR at any cut. Labelled pairs: Spearman's and Pearson's correlation of scores;
    accuracy, macro F1, and precision, recall and F1 of each class for a model with a classifier.
    """
    records = load_records(options.data, options, split=options.split, say=output.say)

    from polyrank.records import Example, LabelledPair, RetrievalSet

    listed = [] if isinstance(records, RetrievalSet) else records
    examples = [record for record in listed if isinstance(record, Example)]
    if examples and options.num_candidates == "all":
        records = whole_file(options, examples, output)
    elif isinstance(records, RetrievalSet):
        records = options.chosen(records, options.limit, output)
    warn_without_effect(options, output, searches=isinstance(records, RetrievalSet))
    if isinstance(records, RetrievalSet):
        return evaluate_corpus(options, records, output)
    if examples:
        return evaluate_examples(options, examples, output)
    pairs = [record for record in records if isinstance(record, LabelledPair)]
    return evaluate_pairs(options, options.chosen(pairs, options.limit, output), output)


def warn_without_effect(options: EvaluateOptions, output: Output, *, searches: bool) -> None:
    """Name what was asked for and has no effect."""
    if not searches and options.reranker is not None:
        output.warn("--reranker has no effect: nothing is retrieved from this data.")
    is_number = isinstance(options.num_candidates, int)
    if searches and is_number and options.reranker is None:
        output.warn("--num-candidates has no effect on a corpus without --reranker.")


def evaluate_examples(options: EvaluateOptions, everything: list[Example], output: Output) -> None:
    """Rank the candidates of examples."""
    examples = with_candidates(options, everything, output)

    from polyrank.evaluation import ranking
    from polyrank.evaluation.tasks import RankingTask, require_ranking

    task = RankingTask(examples=examples, ks=options.ks or KS, others=options.metrics)
    warn_of_left_out(task, output)
    model = task.lexical() if options.model == BM25 else load(Path(options.model), options)
    require_ranking(model, options.model)
    result = ranking.evaluate_examples(
        model, examples, ks=task.ks, metrics=task.others, show_progress_bar=True
    )
    write_per_query(options.output, result.per_query.rows())
    found = f"{result.num_examples:,} examples, C = {result.candidates_text} candidates each"
    tell(options, output, found, result.named(), result.to_json())


def with_candidates(
    options: EvaluateOptions, everything: list[Example], output: Output
) -> list[Example]:
    """The examples, with candidates drawn from the whole file for those that have none."""
    from polyrank.evaluation.tasks import with_sampled_candidates

    examples = options.chosen(everything, options.limit, output)
    if all(example.candidates is not None for example in examples):
        if options.num_candidates is not None:
            output.warn("--num-candidates has no effect: every example has its own candidates.")
        return examples
    return with_sampled_candidates(examples, options.num_drawn, options.seed, source=everything)


def whole_file(options: EvaluateOptions, everything: list[Example], output: Output) -> RetrievalSet:
    """The examples as queries of all responses of the file."""
    from polyrank.evaluation.tasks import with_all_candidates

    examples = options.chosen(everything, options.limit, output)
    return with_all_candidates(examples, options.data.name, source=everything)


def evaluate_corpus(options: EvaluateOptions, data: RetrievalSet, output: Output) -> None:
    """Search a corpus with every query."""
    from polyrank.evaluation.retrieval import evaluate_retrieval
    from polyrank.evaluation.tasks import RetrievalTask

    task = RetrievalTask(data=data, ks=options.ks or CORPUS_KS, others=options.metrics)
    model = task.lexical() if options.model == BM25 else load(Path(options.model), options)
    top = options.num_reranked
    figures = evaluate_retrieval(
        model,
        data,
        reranker=None if options.reranker is None else load(Path(options.reranker), options),
        num_candidates=top,
        metrics=task.metrics,
        show_progress_bar=True,
    )
    write_per_query(options.output, figures.rows())
    reranked = ""
    if options.reranker is not None:
        reranked = f", the best {top:,} reranked by {options.reranker}"
    found = f"{len(figures.ids):,} queries of {data.split}, {len(data.corpus):,} documents"
    sizes = {"num_queries": len(figures.ids), "num_documents": len(data.corpus)}
    how = {"split": data.split, "reranker": options.reranker}
    result = {**figures.means(), **sizes, **how}
    tell(options, output, found + reranked, figures.named(), result)


def evaluate_pairs(options: EvaluateOptions, pairs: list[LabelledPair], output: Output) -> None:
    """Correlate the scores of pairs with their labels, or count the right classes."""
    from polyrank.evaluation.pairs import measure_pairs
    from polyrank.evaluation.tasks import PairTask

    for flag, given in (("--ks", options.ks), ("--metrics", options.metrics)):
        if given:
            raise UsageError(
                f"{flag} is for rankings, but {options.data} holds labelled pairs.",
                f"Leave {flag} out, or give examples or a corpus.",
            )
    if options.output is not None:
        output.warn("--output has no effect on labelled pairs: their figures are of all pairs.")
    if options.model == BM25:
        model: Any = PairTask(pairs=pairs).lexical()
    else:
        model = load(Path(options.model), options)
    results = measure_pairs(model, pairs, show_progress_bar=True)
    figures, classes = results.figures(), results.by_class()
    found = f"{len(pairs):,} labelled pairs"
    result: dict[str, Any] = {**figures, "num_pairs": len(pairs)}
    if classes:
        result["classes"] = classes
    tell(options, output, found, figures, result, class_table(classes) if classes else None)


def class_table(classes: Mapping[str, ClassFigures]) -> Table:
    """Precision, recall and F1 of each class, for people."""
    from rich.markup import escape
    from rich.table import Table

    table = Table()
    table.add_column("class", no_wrap=True)
    for name in ("precision", "recall", "F1", "pairs"):
        table.add_column(name, justify="right", no_wrap=True)
    for name, each in classes.items():
        figures = (f"{value:.4f}" for value in (each.precision, each.recall, each.f1))
        table.add_row(escape(name), *figures, f"{each.count:,}")
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
    found: str,
    named: Mapping[str, float],
    result: Mapping[str, Any],
    table: Table | None = None,
) -> None:
    """Say the figures to people, with a table of further ones, and to programs."""
    output.say(f"{options.model} on {options.data}")
    output.say(f"{found}, {span(output.seconds)}")
    for name, value in named.items():
        output.say(f"  {name:<10} {value:.4f}")
    if table is not None:
        output.table(table)
    if options.output is not None and "num_pairs" not in result:
        output.say(f"What each query scored: {options.output}")
    about = {"seed": options.seed, "per_query": options.output}
    output.result({"model": options.model, "data": options.data, **result, **about})
