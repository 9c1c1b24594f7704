"""What commands that read data share: the format of the files and the names of their columns."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeVar

from polyrank.cli.flags import Options
from polyrank.cli.options import option
from polyrank.config import require
from polyrank.data.sampling import Share, parse_share
from polyrank.errors import UsageError
from polyrank.evaluation.metric_names import (
    CORPUS_KS,
    KS,
    NUM_DRAWN,
    NUM_RERANKED,
    PAIR_LABELS,
    parse_metric,
)
from polyrank.progress import Say, silent

if TYPE_CHECKING:
    from polyrank.cli.output import Output
    from polyrank.data.loading import Records
    from polyrank.evaluation.tasks import RankingTask, Task
    from polyrank.records import Example, LabelledPair, RetrievalSet

    Found = TypeVar("Found", list[Example], list[LabelledPair], RetrievalSet)


def listed(numbers: tuple[int, ...]) -> str:
    """Numbers as one types them."""
    return ",".join(map(str, numbers))


@dataclass(frozen=True, kw_only=True)
class DataOptions(Options):
    """Options of every command that reads data. Inherit from it."""

    format: str = option(
        "auto",
        help="The format of the data. docs/data.md lists the formats; auto detects it by the "
        "name and the first lines.",
        metavar="FORMAT",
    )
    columns: tuple[str, ...] = option(
        (),
        help="Columns of the data by field, such as context=question. For CSV, TSV, JSONL, Parquet "
        "and hub data sets.",
        metavar="FIELD=COLUMN,…",
    )


@dataclass(frozen=True, kw_only=True)
class FigureOptions(DataOptions):
    """Options of every command that measures models on data. Inherit from it."""

    data: Path = option(
        help="Examples, a BEIR folder or labelled pairs. Examples have a context, a response "
        "and, optionally, candidates; a BEIR folder has a corpus, queries and judgements.",
        unless=("mteb",),
    )
    split: str | None = option(None, help="The split to use, such as dev. By default, test.")
    limit: int | None = option(None, help="Use only the first N examples, queries or pairs.")
    num_candidates: int | Literal["all"] | None = option(
        None,
        help="The number of candidates to rank for each context. Examples without candidates get "
        f"responses from the file ({NUM_DRAWN} by default); in a corpus, a "
        f"cross-encoder gets the best that were retrieved ({NUM_RERANKED} by default). With "
        "all, every example searches all responses of the file, as in a corpus.",
    )
    ks: tuple[int, ...] = option(
        (),
        help=f"The values of K in recall@K. By default, {listed(KS)}, or {listed(CORPUS_KS)} for a "
        "corpus.",
        metavar="K,…",
    )
    except_share: float | str | None = option(
        None,
        help="Evaluate on what `polyrank train --share` with this share and seed leaves out of "
        "the same data.",
        metavar="SHARE",
    )
    share_seed: int = option(0, help="The seed of --except-share: that of the training.")
    metrics: tuple[str, ...] = option(
        (),
        help="More figures of rankings, such as ndcg@20, mrr@100, recall@1000 or map.",
        metavar="METRIC,…",
    )
    seed: int = option(0, help="The seed of the drawn candidates.")

    def check_figures(self) -> None:
        """Raise UsageError for a number below its least, or a metric that does not exist."""
        require(self.limit is None or self.limit >= 1, "--limit", "at least 1", self.limit)
        number = self.num_candidates
        fits = number in (None, "all") or number >= 1  # type: ignore[operator]
        require(fits, "--num-candidates", "at least 1, or all", number)
        require(min(self.ks, default=1) >= 1, "--ks", "whole numbers from 1", listed(self.ks))
        for name in self.metrics:
            if name not in PAIR_LABELS:
                parse_metric(name)
        share_of(self.except_share, self.share_seed)

    @property
    def num_reranked(self) -> int:
        """The candidates that a cross-encoder reads, of those retrieved from a corpus."""
        number = self.num_candidates
        return number if isinstance(number, int) else NUM_RERANKED

    def task_of(self, records: Records, output: Output) -> Task:
        """What models are measured on; warns of figures that are left out.

        Raises UsageError, DataError.
        """
        from polyrank.evaluation.evaluate import task_for
        from polyrank.evaluation.tasks import RankingTask

        task = task_for(
            records,
            lambda found: self.chosen(found, output),
            num_candidates=self.num_candidates,
            metrics=self.metrics,
            ks=self.ks,
            seed=self.seed,
            name=self.data.name,
        )
        if isinstance(task, RankingTask):
            warn_of_left_out(task, output)
        return task

    def chosen(self, records: Found, output: Output) -> Found:
        """Of everything that was read, what is evaluated: the first `limit` outside of the share.

        Of a corpus, these are queries.
        """
        share = share_of(self.except_share, self.share_seed)
        warn_of_idle_seed(share, self.share_seed, "--except-share", output)
        if not isinstance(records, list):
            rest = records if share is None else records.only(share.rest_of(records.queries))
            return rest.first(self.limit)
        return (records if share is None else share.rest_of(records))[: self.limit]


def share_of(given: float | str | None, seed: int) -> Share | None:
    """The share that was typed, if one was. Raises UsageError."""
    return None if given is None else Share(value=parse_share(given), seed=seed)


def warn_of_idle_seed(share: Share | None, seed: int, flag: str, output: Output) -> None:
    """Warn of the seed of a share that was not asked for."""
    if share is None and seed:
        output.warn(f"--share-seed has no effect without {flag}.")


def warn_of_left_out(task: RankingTask, output: Output) -> None:
    """Name each recall@K that some example has too few candidates for."""
    left_out = [f"recall@{k}" for k in task.ks if f"recall@{k}" not in task.metrics]
    if left_out:
        fewest = min(len(example.candidates or ()) for example in task.examples)
        output.warn(f"{', '.join(left_out)} left out: an example has only {fewest} candidates.")


def columns_of(options: DataOptions) -> dict[str, str]:
    """The columns by field. Raises UsageError for what is not `field=column`."""
    columns: dict[str, str] = {}
    for given in options.columns:
        field, equals, column = given.partition("=")
        if not (equals and field and column):
            raise UsageError(
                f"--columns takes field=column, got {given!r}.",
                "Write it like: --columns context=question,response=answer.",
            )
        columns[field] = column
    return columns


def load_records(
    path: str | Path,
    options: DataOptions,
    *,
    split: str | None = None,
    limit: int | None = None,
    say: Say = silent,
) -> Records:
    """Everything that a file holds: examples, labelled pairs or a `RetrievalSet`."""
    from polyrank.data.loading import load_records

    columns = columns_of(options)
    return load_records(
        path, format=options.format, split=split, columns=columns, limit=limit, say=say
    )


def load_training(
    path: str | Path,
    options: DataOptions,
    *,
    split: str | None = None,
    share: Share | None = None,
    limit: int | None = None,
    say: Say = silent,
) -> list[Example] | list[LabelledPair]:
    """What a model is trained on; of a corpus with judgements, its relevant pairs."""
    from polyrank.data.loading import load_with_corpus
    from polyrank.data.source import Source

    source = Source(path=Path(path), split=split, training=True, columns=columns_of(options))
    records, _ = load_with_corpus(source, options.format, limit, say, share=share)
    return records
