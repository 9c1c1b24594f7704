"""Files of candidates, as lines of text, lines of JSON or tables, to `Candidate`s."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from polyrank.data.columns import RESPONSE, TEXT, folded
from polyrank.data.files import at_line, base_suffix, read_lines
from polyrank.data.json_files import json_object, read_json_lines
from polyrank.data.metadata import as_metadata, can_be_filtered
from polyrank.data.rows import read_rows
from polyrank.data.source import Source
from polyrank.records import Candidate

TABLES = (".csv", ".tsv", ".parquet")
IDS = ("id", "_id")


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
    for row in read_rows(Source(path=path)):
        known = folded(row.values)
        column = next((known[name] for name in TEXT if name in known), None)
        if column is None:
            raise row.blame(
                f"No column holds the texts: the columns are {', '.join(map(repr, row.values))}.",
                "Rename the column of the texts to text.",
            )
        id_column = next((known[name] for name in IDS if name in known), None)
        text, identifier = row.values[column], row.values[id_column] if id_column else None
        if not text:
            continue
        if id_column is None and column.casefold() in RESPONSE:
            if hash(text) in seen:
                continue
            seen.add(hash(text))
        number = int(row.place.rpartition(" ")[2])
        metadata = {
            name: value
            for name, value in row.values.items()
            if name not in (column, id_column)
            and isinstance(value, (str, int, float))
            and value != ""
            and can_be_filtered(name)
        }
        named_by = str(number if identifier in (None, "") else identifier)
        yield number, Candidate(named_by, str(text), as_metadata(metadata, row.blame))


def read_text(path: Path, number: int, line: str) -> Candidate:
    """The candidate of a line that is its text."""
    return Candidate(str(number), line)


def read_record(path: Path, number: int, line: str) -> Candidate:
    """The candidate of a line of JSON. Raises DataError, with file and line."""
    record = json_object(path, number, line)
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


def read_ids(path: Path) -> Iterator[tuple[int, str]]:
    """Yield (line number, id) of a file with one id per line; blank lines are skipped."""
    for number, line in read_lines(path):
        if line.strip():
            yield number, line


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
