"""Reading a file, a folder or a hub data set: whichever format it is in.

The formats are those that the modules of `polyrank.data.formats` declare; a module that is added
there is found, no list names it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import cast

from polyrank.data import formats
from polyrank.data.format import Beginning, Fit, Format, Found
from polyrank.data.sampling import Share
from polyrank.data.source import NO_COLUMNS, Source
from polyrank.discovery import modules_in
from polyrank.errors import DataError, UsageError, nearest
from polyrank.progress import Say, silent
from polyrank.records import Candidate, Example, LabelledPair, RetrievalSet

Records = list[Example] | list[LabelledPair] | RetrievalSet

AUTO = "auto"


FORMATS: Mapping[str, Format] = {
    format.name: format for module in modules_in(formats) for format in module.FORMATS
}


def detect(path: str | Path, *, columns: Mapping[str, str] = NO_COLUMNS) -> str:
    """The name of the format of a file, a folder or a hub data set, by its beginning.

    Raises DataError where it cannot be told.
    """
    return detect_format(Source(path=Path(path), columns=columns)).name


def detect_format(source: Source) -> Format:
    """The format whose mark a source has, or else the one that it fits best.

    Raises DataError where there is none.
    """
    beginning = Beginning(source)
    marked = next((format for format in FORMATS.values() if format.has_mark(beginning)), None)
    if marked is not None:
        return marked
    if beginning.is_folder:
        raise DataError(
            "The folder is not in BEIR's layout: corpus.jsonl, queries.jsonl, qrels/SPLIT.tsv.",
            "Give a file, such a folder, or hub:FOLDER for data files that `datasets` reads.",
            path=source.path,
        )
    best = max(FORMATS.values(), key=lambda format: format.fit(beginning))
    if best.fit(beginning) is Fit.NOT:
        raise DataError(
            "Neither its name nor its first line tells the format of the file.",
            "Name it with --format; docs/data.md lists the formats.",
            path=source.path,
        )
    return best


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
    chosen, found = read_source(source, format, say)
    if isinstance(found, RetrievalSet):
        if not found.queries:
            raise no_records(source, "question")
        records: Records = found.first(limit)
    else:
        records = take(found, source, limit)
    report(source, chosen, say)
    return records


def load_training(
    path: str | Path,
    *,
    format: str = AUTO,
    split: str | None = None,
    columns: Mapping[str, str] = NO_COLUMNS,
    share: Share | None = None,
    limit: int | None = None,
    say: Say = silent,
) -> list[Example] | list[LabelledPair]:
    """What a model is trained on: examples, or labelled pairs.

    Of a corpus with judgements, each query with each of its relevant candidates is an example.
    `share` takes a part of the records, of a corpus a part of the queries, and `limit` the first of
    these. Other arguments and errors are those of `load_records`.
    """
    source = Source(path=Path(path), split=split, training=True, columns=columns)
    records, _ = load_with_corpus(source, format, limit, say, share=share)
    return records


def load_with_corpus(
    source: Source, format: str, limit: int | None, say: Say, *, share: Share | None = None
) -> tuple[list[Example] | list[LabelledPair], list[Candidate]]:
    """What a model is trained on, and the corpus to search where the source has one.

    Arguments and errors are those of `load_training`.
    """
    chosen, found = read_source(source, format, say)
    corpus: list[Candidate] = []
    if isinstance(found, RetrievalSet):
        corpus = found.corpus
        found = (found if share is None else found.only(share.of(found.queries))).examples()
    elif share is not None:
        found = cast("Iterator[Example]", iter(share.of(found)))
    records = take(found, source, limit)
    report(source, chosen, say)
    return records, corpus


def read_source(source: Source, format: str, say: Say) -> tuple[Format, Found]:
    """The format of a source, and its reader at the beginning. Raises UsageError, DataError."""
    chosen = chosen_format(source, format)
    if source.columns and not chosen.takes_columns:
        say(f"{source.path}: --columns has no effect on the format {chosen.name}.")
    return chosen, chosen.read(source)


def chosen_format(source: Source, format: str) -> Format:
    """The format of a name, or the one that is detected. Raises UsageError for an unknown one."""
    if format not in (*FORMATS, AUTO):
        raise UsageError(f"There is no format {format!r}.", nearest(format, [*FORMATS, AUTO]))
    return detect_format(source) if format == AUTO else FORMATS[format]


def take(
    found: Iterator[Example] | Iterator[LabelledPair], source: Source, limit: int | None
) -> list[Example] | list[LabelledPair]:
    """The first records, or all. Raises DataError where there are none."""
    records: list[Example] | list[LabelledPair] = list(islice(found, limit))  # type: ignore[assignment]
    if not records:
        raise no_records(source, "example")
    return records


def no_records(source: Source, what: str) -> DataError:
    """The error of a source without a record."""
    reasons = ", ".join(f"{count:,} {why}" for why, count in source.passed_over.items())
    passed = f"; passed over: {reasons}" if reasons else ""
    return DataError(
        f"The data holds no {what}{passed}.", "Give a file that holds some.", path=source.path
    )


def report(source: Source, format: Format, say: Say) -> None:
    """Say which columns hold which fields, unless by their names, and what was passed over."""
    if any(field != column for field, column in source.found.items()):
        columns = ", ".join(f"{field}={column}" for field, column in source.found.items())
        say(f"{source.path}: read as {format.name}, {columns}.")
    for reason, count in source.passed_over.items():
        say(f"{source.path}: {count:,} {reason} passed over.")
