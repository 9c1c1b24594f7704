"""Files of candidates, as lines of text, lines of JSON or tables, to `Candidate`s."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from polyrank.data.columns import RESPONSE, TEXT, folded
from polyrank.data.files import at_line, base_suffix, read_lines
from polyrank.data.json_files import json_object, read_json_lines
from polyrank.data.metadata import as_metadata, can_be_filtered
from polyrank.data.rows import Row, read_rows
from polyrank.data.source import Source
from polyrank.errors import DataError
from polyrank.json_text import parse_json
from polyrank.records import Candidate

TABLES = (".csv", ".tsv", ".parquet")
IDS = ("id", "_id")


class Columns(NamedTuple):
    """The names of a table's columns."""

    text: str
    id: str | None
    metadata: tuple[str, ...]
    """Those that filters can name."""


def read_candidates(
    path: str | Path, start: int = 0, stop: int | None = None
) -> Iterator[Candidate]:
    """Yield the candidates of a file of any size, one by one.

    A `.jsonl` file (also compressed) holds objects with "text" and, optionally, "id" and
    "metadata". A `.csv`, `.tsv` or `.parquet` file has a column of texts with a usual name,
    optionally one of ids, and metadata in the other columns whose names filters can use; equal
    responses of a table without ids are one candidate. Any other file holds one text per line.
    Blank lines and rows without a text are skipped. Without an id, the number of the line is the
    id. Only the places from `start` to before `stop` are read, if they are given. Raises DataError,
    with file and line.
    """
    path = Path(path)
    if base_suffix(path) in TABLES:
        yield from islice((candidate for _, candidate in read_columns(path)), start, stop)
        return
    read = read_record if gives_ids(path) else read_text
    lines = ((number, line) for number, line in read_lines(path) if line.strip())
    for number, line in islice(lines, start, stop):
        yield read(path, number, line)


def read_columns(path: Path) -> Iterator[tuple[int, Candidate]]:
    """Yield the candidate of each row of a table, with the number of its line.

    Raises DataError, with file and line.
    """
    seen: set[int] = set()
    columns: Columns | None = None
    for row in read_rows(Source(path=path)):
        columns = columns or columns_of(row)
        text = row.values[columns.text]
        if not text:
            continue
        if columns.id is None and columns.text.casefold() in RESPONSE:
            if hash(text) in seen:
                continue
            seen.add(hash(text))
        number = int(row.place.rpartition(" ")[2])
        identifier = None if columns.id is None else row.values[columns.id]
        metadata = {
            name: value
            for name in columns.metadata
            if isinstance(value := row.values[name], (str, int, float)) and value != ""
        }
        named_by = str(number if identifier in (None, "") else identifier)
        yield number, Candidate(named_by, str(text), as_metadata(metadata, row.blame))


def columns_of(row: Row) -> Columns:
    """The columns of a table, by its first row. Raises DataError where none holds texts."""
    known = folded(row.values)
    text = next((known[name] for name in TEXT if name in known), None)
    if text is None:
        raise row.blame(
            f"No column holds the texts: the columns are {', '.join(map(repr, row.values))}.",
            "Rename the column of the texts to text.",
        )
    identifier = next((known[name] for name in IDS if name in known), None)
    others = (name for name in row.values if name not in (text, identifier))
    return Columns(text, identifier, tuple(filter(can_be_filtered, others)))


def read_text(path: Path, number: int, line: str) -> Candidate:
    """The candidate of a line that is its text."""
    return Candidate(str(number), line)


def read_record(path: Path, number: int, line: str) -> Candidate:
    """The candidate of a line of JSON. Raises DataError, with file and line."""
    record = json_object(path, number, line, parse=parse_json)  # a text is stored as it is
    blame = at_line(path, number)
    text = record.get("text")
    if not isinstance(text, str):
        found = "is missing" if text is None else f"is a {type(text).__name__}"
        raise blame(
            f"The field 'text' {found}; the line has {', '.join(map(repr, record))}.",
            'Write {"id": "…", "text": "…"} per line.',
        )
    identifier = record.get("id")
    if identifier is not None and not isinstance(identifier, (str, int)):
        raise blame(
            f"The field 'id' must be a text or a whole number, got {identifier!r}.",
            "Change it, or leave it out to use the line number.",
        )
    metadata = as_metadata(record.get("metadata"), blame)
    return Candidate(named(record, number), text, metadata)


def read_ids(path: Path) -> dict[str, int]:
    """The ids of a file with one per line, each with its line; blank lines are skipped.

    Raises DataError, naming both lines, if an id is given twice.
    """
    lines: dict[str, int] = {}
    for number, identifier in read_lines(path):
        if identifier in lines:
            raise DataError(
                f"The id {identifier!r} is given twice, first in line {lines[identifier]}.",
                "Give every id once.",
                path=path,
                line=number,
            )
        if identifier.strip():
            lines[identifier] = number
    return lines


def lines_with_id(path: Path, identifier: str) -> list[int]:
    """The lines of a file of candidates that have this id."""
    if base_suffix(path) in TABLES:
        return [number for number, one in read_columns(path) if one.id == identifier]
    if not gives_ids(path):
        return [int(identifier)]
    return [
        number for number, record in read_json_lines(path) if named(record, number) == identifier
    ]


def gives_ids(path: Path) -> bool:
    """Whether the candidates of a file may have ids: whether it holds objects or columns."""
    return base_suffix(path) in (".jsonl", ".json", ".ndjson", *TABLES)


def named(record: dict[str, Any], number: int) -> str:
    """The id of a line."""
    identifier = record.get("id")
    return str(number if identifier is None else identifier)
