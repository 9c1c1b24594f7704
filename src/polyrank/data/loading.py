"""Reading a file, a folder, a hub data set or rows in memory: whichever format they are in.

The modules of `polyrank.data.formats` declare the formats; a new module there is found
automatically.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, cast

from polyrank.data import formats
from polyrank.data.files import read_text_start
from polyrank.data.format import Beginning, Fit, Format, Found
from polyrank.data.hub import PREFIX, chosen_split
from polyrank.data.memory import ACCEPTED, MemoryRows, SizedRows, splits_of
from polyrank.data.sampling import Share
from polyrank.data.source import NO_COLUMNS, Source
from polyrank.discovery import modules_in
from polyrank.errors import DataError, UsageError, nearest
from polyrank.progress import Say, silent
from polyrank.records import Candidate, Example, LabelledPair, RetrievalSet

Records = list[Example] | list[LabelledPair] | RetrievalSet
Data = str | Path | Iterable[Any] | SizedRows | RetrievalSet
"""What records can be read from: a path, rows in memory, or a corpus with judgements."""

AUTO = "auto"


FORMATS: Mapping[str, Format] = {
    format.name: format for module in modules_in(formats) for format in module.FORMATS
}


def detect(path: str | Path, *, columns: Mapping[str, str] = NO_COLUMNS) -> str:
    """Detect the format of a file, a folder or a hub data set by its beginning.

    Raises DataError if it is not recognised.
    """
    return detect_format(Source(path=Path(path), columns=columns)).name


def detect_format(source: Source) -> Format:
    """The format whose mark a source has, otherwise the one that fits best.

    Raises DataError if there is none.
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
    is_text = beginning.is_file and not beginning.is_rows
    if is_text and not read_text_start(source.path, 64):
        raise DataError("The file is empty.", "Give a file with examples.", path=source.path)
    best = max(FORMATS.values(), key=lambda format: format.fit(beginning))
    if best.fit(beginning) is Fit.NOT:
        if beginning.suffix in (".csv", ".tsv"):
            raise DataError(
                f"The table has only one column, {beginning.first_line!r}.",
                "Give it a column of contexts and one of responses, separated by commas, "
                "semicolons or tabs, and a first line with their names, such as context,response.",
                path=source.path,
            )
        raise DataError(
            "The format is not recognised from the file's name or first line.",
            "Name it with --format; docs/data.md lists the formats.",
            path=source.path,
        )
    return best


def load_records(
    data: Data,
    *,
    format: str = AUTO,
    split: str | None = None,
    columns: Mapping[str, str] | None = None,
    limit: int | None = None,
    say: Say = silent,
    name: str = "data",
) -> Records:
    """Everything that some data hold, to evaluate on; a corpus with judgements as it is.

    Args:
        data: As for `load_examples`, or a `RetrievalSet`.
        format: As for `load_examples`.
        split: The split of data that have several; by default the usual one to evaluate on.
        columns: As for `load_examples`.
        limit: Take only the first records, of a corpus the first queries.
        say: Gets a line on how the data were read, and what was skipped.
        name: What errors call data in memory.

    Returns:
        Examples, labelled pairs or a corpus with queries and judgements.

    Raises:
        DataError: Something cannot be read; the error names the place.
        UsageError: There is no such format, split or field.
    """
    if isinstance(data, RetrievalSet):
        return data.first(limit)
    source = source_of(data, name, split=split, columns=columns, limit=limit)
    given = given_records(source)
    if given is not None:
        return given
    chosen, found = read_source(source, format, say)
    if isinstance(found, RetrievalSet):
        if not found.queries:
            raise no_records(source, "question")
        records: Records = found.first(limit)
    else:
        records = take(found, source, limit)
    report(source, chosen, say)
    return records


def load_examples(
    data: Data,
    *,
    columns: Mapping[str, str] | None = None,
    split: str | None = None,
    format: str = AUTO,
    limit: int | None = None,
    say: Say = silent,
    name: str = "examples",
) -> list[Example] | list[LabelledPair]:
    """Examples or labelled pairs to train on, from a file or from rows in memory.

    Columns are found by their usual names, such as `question` and `answer`, or `sentence1`,
    `sentence2` and `label`. Of a corpus with judgements, each query with each of its relevant
    candidates is an example.

    Args:
        data: The path of a file or folder, `hub:NAME`, a data set of the library `datasets`, or
            whatever can be iterated: a list, a generator, a data set of torch. Its rows are
            records, mappings such as `{"context": …, "response": …}`, or tuples: `(context,
            response)`, `(context, response, negative, …)`, `(text, text, label)`.
        columns: From a field, such as `context`, to the name of the column that holds it.
        split: The split of data that have several; by default the one to train on.
        format: The format of a file, one of docs/data.md; `auto` goes by its beginning.
        limit: Take only the first examples; no more rows are read from a generator.
        say: Gets a line on how the data were read, and what was skipped.
        name: What errors call data in memory.

    Returns:
        The examples, or the labelled pairs.

    Raises:
        DataError: Something cannot be read; the error names the line or the row.
        UsageError: There is no such format, split or field.
    """
    how: dict[str, Any] = {"split": split, "format": format, "limit": limit, "name": name}
    records, _ = examples_and_corpus(data, columns=columns, say=say, **how)
    return records


def examples_and_corpus(
    data: Data,
    *,
    columns: Mapping[str, str] | None = None,
    split: str | None = None,
    format: str = AUTO,
    limit: int | None = None,
    say: Say = silent,
    name: str = "examples",
) -> tuple[list[Example] | list[LabelledPair], list[Candidate]]:
    """The examples of `load_examples`, and the corpus to search where the data have one.

    Arguments and errors are those of `load_examples`.
    """
    if isinstance(data, RetrievalSet):
        return list(islice(data.examples(), limit)), data.corpus
    source = source_of(data, name, split=split, training=True, columns=columns, limit=limit)
    given = given_records(source)
    if given is not None:
        return given, []
    return load_with_corpus(source, format, limit, say)


def source_of(
    data: Data,
    name: str,
    *,
    split: str | None = None,
    training: bool = False,
    columns: Mapping[str, str] | None = None,
    limit: int | None = None,
) -> Source:
    """Where the data are read from: a path, or rows in memory, of which `limit` are read at most.

    Raises DataError for a text that is not a path, UsageError for a split that is not there.
    """
    columns = NO_COLUMNS if columns is None else columns
    if isinstance(data, (str, Path)):
        require_path(data, name)
        return Source(path=Path(data), split=split, training=training, columns=columns)
    source = Source(path=Path(name), split=split, training=training, columns=columns)
    splits = splits_of(data)
    if splits is not None:
        data = splits[chosen_split(source, split, splits)]
    elif split is not None:
        raise UsageError(
            f"{name} has no splits, but split = {split} was given.",
            "Leave split out, or give a file, a folder or a data set with splits.",
        )
    return replace(source, rows=MemoryRows(data, name, limit))


def require_path(data: str | Path, name: str) -> None:
    """Raise DataError for a text that is not a path."""
    if isinstance(data, Path) or data.startswith(PREFIX):
        return
    try:
        exists = Path(data).exists()
    except (OSError, ValueError):  # too long for a path
        exists = False
    if not exists:
        raise DataError(f"{name} is a text, and there is no file {data[:80]!r}.", ACCEPTED)


def given_records(source: Source) -> list[Example] | list[LabelledPair] | None:
    """The records of a source that already holds records; None if it has to be read."""
    return None if source.rows is None else source.rows.records()


def load_with_corpus(
    source: Source, format: str, limit: int | None, say: Say, *, share: Share | None = None
) -> tuple[list[Example] | list[LabelledPair], list[Candidate]]:
    """What a model is trained on, and the corpus to search if the source has one.

    `share` takes a part of the records, of a corpus a part of the queries, and `limit` the first of
    these. Raises DataError, UsageError.
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
    """The format of a source, and its reader from the beginning. Raises UsageError, DataError."""
    chosen = chosen_format(source, format)
    if source.columns and not chosen.takes_columns:
        say(f"{source.path}: --columns has no effect on the format {chosen.name}.")
    return chosen, chosen.read(source)


def chosen_format(source: Source, format: str) -> Format:
    """The format by its name, or the detected one. Raises UsageError for an unknown name."""
    if format not in (*FORMATS, AUTO):
        raise UsageError(f"There is no format {format!r}.", nearest(format, [*FORMATS, AUTO]))
    return detect_format(source) if format == AUTO else FORMATS[format]


def take(
    found: Iterator[Example] | Iterator[LabelledPair], source: Source, limit: int | None
) -> list[Example] | list[LabelledPair]:
    """The first records, or all. Raises DataError if there are none."""
    records: list[Example] | list[LabelledPair] = list(islice(found, limit))  # type: ignore[assignment]
    if not records:
        raise no_records(source, "example")
    return records


def no_records(source: Source, what: str) -> DataError:
    """The error for a source without records."""
    reasons = ", ".join(counted(count, why) for why, count in source.passed_over.items())
    passed = f"; skipped: {reasons}" if reasons else ""
    return DataError(
        f"The data hold no {what}{passed}.", "Give data that hold some.", path=source.path
    )


def report(source: Source, format: Format, say: Say) -> None:
    """Say which columns hold which fields, unless by the same names, and what was skipped."""
    if any(field != column for field, column in source.found.items()):
        columns = ", ".join(f"{field}={column}" for field, column in source.found.items())
        say(f"{source.path}: read as {format.name}, {columns}.")
    for reason, count in source.passed_over.items():
        first = source.first_passed.get(reason)
        where = "" if first is None else f", the first in {first}"
        say(f"{source.path}: skipped {counted(count, reason)}{where}.")


def counted(count: int, reason: str) -> str:
    """How many records were skipped, and why; `reason` begins with a plural such as `rows`."""
    return f"{count:,} {reason.replace('s ', ' ', 1) if count == 1 else reason}"
