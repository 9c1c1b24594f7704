"""`polyrank.evaluate`: one model on data of any kind. Knows which measurement suits which data;
measures nothing itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar, cast

from polyrank.data.loading import Data, load_records
from polyrank.data.memory import name_of
from polyrank.errors import UsageError, nearest
from polyrank.evaluation.evaluator import BM25
from polyrank.evaluation.metric_names import (
    CORPUS_KS,
    KS,
    NUM_DRAWN,
    NUM_RERANKED,
    PAIR_LABELS,
)
from polyrank.evaluation.metrics import QueryMetrics
from polyrank.evaluation.pairs import PairResults
from polyrank.evaluation.ranking import PairRanker, PerQuery, Ranker, evaluate_examples
from polyrank.evaluation.retrieval import Searcher, evaluate_retrieval
from polyrank.evaluation.tasks import (
    PairTask,
    RankingTask,
    RetrievalTask,
    Task,
    require_ranking,
    with_all_candidates,
    with_sampled_candidates,
)
from polyrank.models.checkpoint import load_model
from polyrank.progress import showing
from polyrank.records import Example, LabelledPair, RetrievalSet

NumCandidates = int | Literal["all"] | None
Evaluated = Ranker | Searcher | str | Path
"""A model, what searches, the folder of a saved model, or `bm25`."""
Found = TypeVar("Found", list[Example], list[LabelledPair], RetrievalSet)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class EvaluationResult:
    """The figures of one model on one set of data; `print` shows them."""

    figures: dict[str, float]
    """By the name of the figure: `recall@1`, `mrr`, `ndcg@10`, `spearman`, `accuracy`."""
    labels: dict[str, str]
    """From the name of a figure to what people call it: `R@1/20`."""
    about: str
    """What was evaluated: how many examples, queries or pairs."""
    details: QueryMetrics | PairResults
    """The values of each query, or what was said of each pair."""
    sizes: dict[str, Any]
    """How much was evaluated, as `to_json` has it: `num_examples`, `num_documents`, …"""
    per_query: PerQuery | None = None
    """Of examples with candidates: the rank of each response."""

    def __getitem__(self, name: str) -> float:
        """The figure with this name. Raises UsageError for one that was not measured."""
        if name not in self.figures:
            raise UsageError(f"There is no figure {name!r}.", nearest(name, self.figures))
        return self.figures[name]

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield what each query scored, or the label and the prediction of each pair."""
        if self.per_query is not None:
            yield from self.per_query.rows()
            return
        if isinstance(self.details, QueryMetrics):
            yield from self.details.rows()
            return
        found = self.details
        gold, said = found.named(found.gold).tolist(), found.named(found.predicted).tolist()
        for identifier, label, predicted in zip(found.ids, gold, said, strict=True):
            yield {"pair": identifier, "label": label, "predicted": predicted}

    def to_json(self) -> dict[str, Any]:
        """The figures and the sizes, JSON-ready; of classes, the figures of each too."""
        plain = {**self.figures, **self.sizes}
        if isinstance(self.details, PairResults) and self.details.classes is not None:
            classes = self.details.by_class()
            plain["classes"] = {name: asdict(each) for name, each in classes.items()}
        return plain

    def __repr__(self) -> str:
        """One line per figure and, if there are classes, one line per class."""
        lines = [self.about]
        lines += [f"  {self.labels[name]:<10} {value:.4f}" for name, value in self.figures.items()]
        if isinstance(self.details, PairResults):
            for name, each in self.details.by_class().items():
                lines.append(
                    f"  {name}: precision {each.precision:.4f}, recall {each.recall:.4f}, "
                    f"F1 {each.f1:.4f} ({each.count:,} pairs)"
                )
        return "\n".join(lines)


def evaluate(
    model: Evaluated,
    data: Data,
    *,
    metrics: Sequence[str] = (),
    ks: Sequence[int] = (),
    num_candidates: NumCandidates = None,
    reranker: PairRanker | str | Path | None = None,
    split: str | None = None,
    columns: Mapping[str, str] | None = None,
    limit: int | None = None,
    seed: int = 0,
    show_progress_bar: bool = False,
) -> EvaluationResult:
    """Measure a model on examples, on a corpus with judgements or on labelled pairs.

    Examples: recall@k of C candidates and MRR; ties count at chance. A corpus: every query searches
    it; nDCG@10, recall@k, MRR@10 and MAP. Labelled pairs: correlations of scores, or accuracy and
    F1 of classes.

    Args:
        model: A bi-, poly- or cross-encoder, the folder of a saved one, or `bm25`; for a corpus
            also whatever has a `search`, such as a `RetrieveRerank`.
        data: Records, mappings, tuples, a data set or a path, as for `load_examples`; or a
            `RetrievalSet`.
        metrics: Further figures of rankings, such as `ndcg@5` or `recall@1000`.
        ks: The k of recall@k; by default 1, 2, 5 and 10, in a corpus 1 to 100.
        num_candidates: Of examples without candidates: how many each gets, its response and others
            that are drawn from the responses of the data (20), or `all` of them. Of a corpus: how
            many of the documents found the reranker reads (100).
        reranker: A cross-encoder, or its folder, that reorders what is found in a corpus.
        split: The split of data that have several; by default the usual one to evaluate on.
        columns: From a field, such as `context`, to the name of the column that holds it.
        limit: Use only the first examples, queries or pairs.
        seed: Seed of the drawn candidates.
        show_progress_bar: Show on standard error how far the evaluation is.

    Returns:
        The figures by name; `print` shows them.

    Raises:
        DataError: The data cannot be read, or hold too few responses.
        UsageError: There is no such metric, or the model cannot give what the data need.
        ModelError: The folder holds no model, or a score is not a number.
        MissingExtraError: A corpus needs the extra `metrics`, and `bm25` the extra `bm25`.
    """
    drawn: dict[str, Any] = {"num_candidates": num_candidates, "seed": seed}
    task = task_of_data(data, split, columns, limit, metrics=metrics, ks=ks, **drawn)
    with showing(show_progress_bar):
        return measure(
            task,
            model,
            name=name_of(model) or "The model",
            reranker=reranker,
            num_candidates=num_candidates,
            show_progress_bar=show_progress_bar,
        )


def measure(
    task: Task,
    model: Evaluated,
    *,
    name: str,
    reranker: PairRanker | str | Path | None,
    num_candidates: NumCandidates,
    show_progress_bar: bool,
) -> EvaluationResult:
    """The figures of a model, which errors call by its name, on a task. Raises as `evaluate`."""
    ranker: Any = opened(model, task)
    if reranker is not None and not isinstance(task, RetrievalTask):
        raise UsageError(
            "A reranker was given, but nothing is retrieved from these data.",
            "Leave reranker out, or give a corpus, such as num_candidates='all' makes.",
        )
    if isinstance(task, PairTask):
        pairs = task.evaluate(ranker, show_progress_bar=show_progress_bar)
        return EvaluationResult(
            figures=pairs.figures(),
            labels=pairs.labels(),
            about=f"{len(task.pairs):,} labelled pairs",
            details=pairs,
            sizes={"num_pairs": len(task.pairs)},
        )
    require_ranking(ranker, name)
    if isinstance(task, RankingTask):
        ranked = evaluate_examples(
            ranker,
            task.examples,
            ks=task.ks,
            metrics=task.others,
            show_progress_bar=show_progress_bar,
        )
        about = f"{ranked.num_examples:,} examples, C = {ranked.candidates_text} candidates each"
        return EvaluationResult(
            figures=ranked.figures,
            labels=ranked.query_metrics().labels(),
            about=about,
            details=ranked.query_metrics(),
            sizes={one: value for one, value in ranked.to_json().items() if "num_" in one},
            per_query=ranked.per_query,
        )
    top = num_candidates if isinstance(num_candidates, int) else NUM_RERANKED
    data = task.data
    found = evaluate_retrieval(
        ranker,
        data,
        reranker=None if reranker is None else opened(reranker, task),
        num_candidates=top,
        metrics=task.metrics,
        show_progress_bar=show_progress_bar,
    )
    about = f"{len(found.ids):,} queries of {data.split}, {len(data.corpus):,} documents"
    sizes = {"num_queries": len(found.ids), "num_documents": len(data.corpus)}
    return EvaluationResult(
        figures=found.means(),
        labels=found.labels(),
        about=about + ("" if reranker is None else f", the best {top:,} reranked"),
        details=found,
        sizes={**sizes, "split": data.split},
    )


def task_for(
    records: list[Example] | list[LabelledPair] | RetrievalSet,
    select: Callable[[Any], Any],
    *,
    num_candidates: NumCandidates = None,
    metrics: Sequence[str] = (),
    ks: Sequence[int] = (),
    seed: int = 0,
    name: str = "data",
) -> Task:
    """What models are evaluated on: those of the records, or of the queries, that `select` takes.

    Candidates are drawn from the responses of all records. `name` is the split's where these become
    a corpus. Raises UsageError for metrics that such data do not have, DataError.
    """
    others = tuple(metrics)
    if isinstance(records, RetrievalSet):
        return RetrievalTask(data=select(records), ks=tuple(ks) or CORPUS_KS, others=others)
    if records and isinstance(records[0], LabelledPair):
        asked = [f"metrics = {one}" for one in others if one not in PAIR_LABELS]
        asked += ["ks"] if ks else []
        if asked:
            raise UsageError(
                f"{asked[0]} is for rankings, but {name} holds labelled pairs.",
                f"Leave it out: {', '.join(PAIR_LABELS)} are measured where they can be.",
            )
        return PairTask(pairs=select(records))
    everything = cast("list[Example]", records)
    chosen = select(everything)
    if num_candidates == "all":
        corpus = with_all_candidates(chosen, name, source=everything)
        return RetrievalTask(data=corpus, ks=tuple(ks) or CORPUS_KS, others=others)
    number = NUM_DRAWN if num_candidates is None else num_candidates
    examples = with_sampled_candidates(chosen, number, seed, source=everything)
    return RankingTask(examples=examples, ks=tuple(ks) or KS, others=others)


def task_of_data(
    data: Data,
    split: str | None,
    columns: Mapping[str, str] | None,
    limit: int | None,
    **options: Any,
) -> Task:
    """What models are evaluated on: the first `limit` of the data; `options` are `task_for`'s."""
    records = load_records(data, split=split, columns=columns)
    name = Path(name_of(data) or "data").name
    return task_for(records, lambda found: first_of(found, limit), name=name, **options)


def first_of(found: Found, limit: int | None) -> Found:
    """The first records, or a corpus with only its first queries."""
    return found[:limit] if isinstance(found, list) else found.first(limit)


def opened(model: Any, task: Task) -> Any:
    """A model, or the one in a folder; BM25 is built from the data."""
    if model == BM25:
        return task.lexical()
    if isinstance(model, (str, Path)):
        return load_model(model, trainable=False)
    return model
