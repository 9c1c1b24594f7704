"""Rows with a context and a response each, question–answer files above all, to `Example`s.

Columns are found by their usual names or by `--columns context=…,response=…`; also "id",
"candidates", "gold", "negatives" and "scores", which are lists where the file can hold lists.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from polyrank.data.examples import FIELDS, parse_example
from polyrank.data.formats.rows import Row, check_columns, column_of, read_rows
from polyrank.data.formats.source import Identifiers, Source
from polyrank.errors import DataError
from polyrank.records import Example

USUAL = {
    "context": ("context", "question", "query", "anchor", "prompt"),
    "response": ("response", "answer", "positive", "reply"),
    "negatives": ("negatives", "negative"),
}
"""The names that a column may have where it is not mapped; of other fields, their own."""


def read(source: Source) -> Iterator[Example]:
    """Yield an example a row. Raises DataError, with the place; UsageError for unknown fields."""
    check_columns(source.columns, FIELDS)
    identifiers = Identifiers()
    for row in read_rows(source):
        example = example_of(row, source)
        if example.id is not None:
            identifiers.add(example.id, row.place, row.blame)
        yield example


def example_of(row: Row, source: Source) -> Example:
    """One row as an example."""
    record: dict[str, Any] = {}
    for field in FIELDS:
        names = USUAL.get(field, (field,))
        needed = field in ("context", "response")
        column = column_of(row, field, names, source.columns, needed=needed)
        if column is None:
            continue
        value = row.values[column]
        if needed and (value is None or value == "" or value == []):
            raise row.blame(
                f"The {field} in column {column!r} is empty.", "Fill it in, or remove the row."
            )
        record[field] = value
    if isinstance(record.get("negatives"), str):
        record["negatives"] = [record["negatives"]]
    try:
        return parse_example(record)
    except DataError as error:
        raise row.blame(error.problem, error.remedy) from None
