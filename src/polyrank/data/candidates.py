"""Files of candidates: one text per line, or JSONL {"id", "text", "metadata"}, to `Candidate`s."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from polyrank.data.files import at_line, base_suffix, read_lines
from polyrank.data.json_files import json_object, read_json_lines
from polyrank.data.metadata import as_metadata
from polyrank.records import Candidate


def read_candidates(
    path: str | Path, start: int = 0, stop: int | None = None
) -> Iterator[Candidate]:
    """Yield the candidates of a file of any size, one by one.

    A `.jsonl` file (also compressed) holds objects with "text" and, optionally, "id" and
    "metadata"; any other file holds one text per line, and blank lines are skipped. Without an
    id, the line number is the id. Only the places from `start` to before `stop` are read, if they
    are given. Raises DataError, with file and line.
    """
    path = Path(path)
    read = read_record if gives_ids(path) else read_text
    lines = ((number, line) for number, line in read_lines(path) if line.strip())
    for number, line in islice(lines, start, stop):
        yield read(path, number, line)


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
    if not gives_ids(path):
        return [int(identifier)]
    return [
        number for number, record in read_json_lines(path) if named(record, number) == identifier
    ]


def gives_ids(path: Path) -> bool:
    """Whether the lines of a file of candidates are JSON objects, which may have ids."""
    return base_suffix(path) in (".jsonl", ".json", ".ndjson")


def named(record: dict[str, Any], number: int) -> str:
    """The id of a line."""
    identifier = record.get("id")
    return str(number if identifier is None else identifier)
