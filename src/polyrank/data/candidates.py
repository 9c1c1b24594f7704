"""Files of candidates: one text a line, or JSONL {"id", "text"}, to `Candidate` records."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from polyrank.data.files import base_suffix, read_json_lines, read_lines
from polyrank.errors import DataError
from polyrank.records import Candidate


def read_candidates(path: str | Path) -> Iterator[Candidate]:
    """Yield the candidates of a file of any size, one by one.

    A `.jsonl` file (also compressed) holds objects with "text" and, optionally, "id"; any other
    file holds one text a line, and blank lines are passed over. Without an id, a candidate is
    named by its line number. Raises DataError, with file and line.
    """
    path = Path(path)
    if base_suffix(path) not in (".jsonl", ".json", ".ndjson"):
        for number, line in read_lines(path):
            if line.strip():
                yield Candidate(str(number), line)
        return
    for number, record in read_json_lines(path):
        text = record.get("text")
        if not isinstance(text, str):
            found = "is missing" if text is None else f"is a {type(text).__name__}"
            raise DataError(
                f"The field 'text' {found}; the line has {', '.join(map(repr, record))}.",
                'Write {"id": "…", "text": "…"} a line.',
                path=path,
                line=number,
            )
        identifier = record.get("id")
        if identifier is not None and not isinstance(identifier, (str, int)):
            raise DataError(
                f"The field 'id' must be a text or a whole number, got {identifier!r}.",
                "Change it, or leave it out to name the candidate by its line number.",
                path=path,
                line=number,
            )
        yield Candidate(str(number if identifier is None else identifier), text)
