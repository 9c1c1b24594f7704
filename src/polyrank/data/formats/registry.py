"""The formats by name, and reading a file in one of them.

Knows which reader belongs to a name; knows nothing of what the readers do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Literal

from polyrank.data.examples import read_examples
from polyrank.data.formats import (
    beir,
    convai2,
    dstc7,
    natural_questions,
    nli,
    pairs,
    parlai,
    squad,
    sts,
    tab,
    table,
    ubuntu,
    wikipedia,
)
from polyrank.data.formats.beir import RetrievalSet
from polyrank.data.formats.detection import detected
from polyrank.data.formats.source import NO_COLUMNS, Source
from polyrank.errors import DataError, UsageError, nearest
from polyrank.progress import Say, silent
from polyrank.records import Example, LabelledPair

Kind = Literal["examples", "pairs", "retrieval"]
Records = list[Example] | list[LabelledPair] | RetrievalSet
Reader = Callable[[Source], Iterator[Example] | Iterator[LabelledPair] | RetrievalSet]

KINDS: Mapping[str, str] = {
    "examples": "contexts with their responses",
    "pairs": "labelled pairs",
    "retrieval": "a corpus with queries and judgements",
}
AUTO = "auto"
WITH_COLUMNS = ("table", "pairs", "nli", "sts")
"""The formats whose columns may be named."""


@dataclass(frozen=True, slots=True)
class Format:
    """One format: what it yields, what it is, and who reads it."""

    kind: Kind
    description: str
    read: Reader


def read_own(source: Source) -> Iterator[Example]:
    """Polyrank's own examples."""
    return read_examples(source.path)


FORMATS: Mapping[str, Format] = {
    "examples": Format("examples", 'JSONL of {"context", "response"}, polyrank\'s own', read_own),
    "table": Format("examples", "CSV, TSV, JSONL or Parquet of contexts, responses", table.read),
    "convai2": Format("examples", "ConvAI2, numbered lines with personas", convai2.read),
    "convai2-no-persona": Format(
        "examples", "ConvAI2, the personas left out", convai2.read_without_persona
    ),
    "parlai": Format("examples", "ParlAI's text:… labels:… lines", parlai.read),
    "ubuntu-v2": Format("examples", "Ubuntu Dialogue Corpus v2, CSV", ubuntu.read),
    "dstc7": Format("examples", "DSTC7 track 1, subtask 1, JSON", dstc7.read),
    "dstc7-augmented": Format("examples", "DSTC7, an example of every turn", dstc7.read_augmented),
    "tab": Format("examples", "lines of label, utterances, response between tabs", tab.read),
    "wikipedia": Format("examples", "articles, searched by one of their sentences", wikipedia.read),
    "pairs": Format("pairs", "two texts and a class or a score from 0 to 1", pairs.read),
    "nli": Format("pairs", "SNLI, MultiNLI, XNLI, KorNLI", nli.read),
    "sts": Format("pairs", "STSb, KorSTS: scores from 0 to 5", sts.read),
    "squad": Format("retrieval", "SQuAD as ReQA: questions, sentences", squad.read),
    "natural-questions": Format(
        "retrieval", "Natural Questions, simplified, as ReQA", natural_questions.read
    ),
    "beir": Format("retrieval", "a folder in BEIR's layout", beir.read),
}


def detect(path: str | Path, *, columns: Mapping[str, str] = NO_COLUMNS) -> str:
    """The name of the format of a file, a folder or a hub data set, by its beginning.

    Raises DataError where it cannot be told.
    """
    return detected(Source(path=Path(path), columns=columns))


def load_records(
    path: str | Path,
    *,
    format: str = AUTO,
    split: str | None = None,
    columns: Mapping[str, str] = NO_COLUMNS,
    limit: int | None = None,
    say: Say = silent,
) -> Records:
    """Everything that a file, a folder or a hub data set (`hub:NAME`) holds.

    `split` is for what has several; `columns` maps a field to the column that holds it, for
    formats of rows; `limit` takes the first records, of a corpus the first queries. `say` is told
    what was passed over. Raises DataError with the place, UsageError for an unknown format.
    """
    source = Source(path=Path(path), split=split, columns=columns)
    found = read(source, format, say)
    if isinstance(found, RetrievalSet):
        if not found.queries:
            raise nothing(source, "question")
        records: Records = first_queries(found, limit)
    else:
        records = taken(found, source, limit)
    report(source, say)
    return records


def load_training(
    path: str | Path,
    *,
    format: str = AUTO,
    split: str | None = None,
    columns: Mapping[str, str] = NO_COLUMNS,
    limit: int | None = None,
    say: Say = silent,
) -> list[Example] | list[LabelledPair]:
    """What a model is trained on: examples, or labelled pairs.

    Of a corpus with judgements, each query with each of its relevant candidates is an example.
    Arguments and errors are those of `load_records`.
    """
    source = Source(path=Path(path), split=split, training=True, columns=columns)
    found = read(source, format, say)
    records = taken(found.examples() if isinstance(found, RetrievalSet) else found, source, limit)
    report(source, say)
    return records


def load_ranking(
    path: str | Path,
    *,
    format: str = AUTO,
    split: str | None = None,
    columns: Mapping[str, str] = NO_COLUMNS,
    limit: int | None = None,
    say: Say = silent,
) -> list[Example]:
    """Examples, whose candidates are to be ranked.

    Arguments and errors are those of `load_records`; DataError also where the file holds
    something else.
    """
    found = load_records(path, format=format, split=split, columns=columns, limit=limit, say=say)
    if isinstance(found, RetrievalSet):
        raise wrong_kind(path, "retrieval")
    examples = [record for record in found if isinstance(record, Example)]
    if len(examples) < len(found):
        raise wrong_kind(path, "pairs")
    return examples


def read(
    source: Source, format: str, say: Say
) -> Iterator[Example] | Iterator[LabelledPair] | RetrievalSet:
    """Have the reader of a format begin. Raises UsageError for an unknown format."""
    if format == AUTO:
        format = detected(source)
    if format not in FORMATS:
        raise UsageError(f"There is no format {format!r}.", nearest(format, [*FORMATS, AUTO]))
    if source.columns and format not in WITH_COLUMNS:
        say(f"{source.path}: --columns has no effect on the format {format}.")
    return FORMATS[format].read(source)


def taken(
    found: Iterator[Example] | Iterator[LabelledPair], source: Source, limit: int | None
) -> list[Example] | list[LabelledPair]:
    """The first records, or all. Raises DataError where there is none."""
    records: list[Example] | list[LabelledPair] = list(islice(found, limit))  # type: ignore[assignment]
    if not records:
        raise nothing(source, "example")
    return records


def nothing(source: Source, what: str) -> DataError:
    """The error of a source without a record."""
    reasons = ", ".join(f"{count:,} {why}" for why, count in source.passed_over.items())
    passed = f"; passed over: {reasons}" if reasons else ""
    return DataError(
        f"The data holds no {what}{passed}.", "Give a file that holds some.", path=source.path
    )


def report(source: Source, say: Say) -> None:
    """Say what was passed over."""
    for reason, count in source.passed_over.items():
        say(f"{source.path}: {count:,} {reason} passed over.")


def first_queries(found: RetrievalSet, limit: int | None) -> RetrievalSet:
    """The set with only its first queries, and the whole corpus."""
    if limit is None or limit >= len(found.queries):
        return found
    queries = dict(islice(found.queries.items(), limit))
    return RetrievalSet(
        corpus=found.corpus,
        queries=queries,
        judgements={query: found.judgements[query] for query in queries},
        split=found.split,
    )


def wrong_kind(path: str | Path, kind: Kind) -> DataError:
    """The error of a file with other records than are needed."""
    return DataError(
        f"Examples are needed, each a context with its response; this holds {KINDS[kind]}.",
        "Give examples, or name the --format if it was taken for another than it is.",
        path=path,
    )
