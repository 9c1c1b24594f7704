"""Contexts and responses to `Example`s: polyrank's own JSONL, and rows of any table.

Tables are question–answer files above all. Columns are found by their usual names or by
`--columns context=…,response=…`; also "id", "candidates", "gold", "negatives" and "scores", which
are lists where the file can hold them. A row with a list of responses is an example for each.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from polyrank.data.columns import (
    CONTEXT,
    FIRST,
    NEGATIVES,
    RESPONSE,
    SECOND,
    check_columns,
    column_of,
    couple_of,
    folded,
    label_of,
)
from polyrank.data.examples import FIELDS, parse_example, read_examples
from polyrank.data.format import Beginning, Fit, Format
from polyrank.data.rows import Row, read_rows
from polyrank.data.source import Identifiers, Source
from polyrank.errors import DataError
from polyrank.records import Example

USUAL = {
    "context": (*CONTEXT, *FIRST),
    "response": (*RESPONSE, *SECOND),
    "negatives": NEGATIVES,
}
"""The names of a column that is not mapped; other fields have only their own."""
FILL = "Fill it in, or remove the row."


def read_table(source: Source) -> Iterator[Example]:
    """Yield an example per row and response; rows of a file without one of both are counted.

    Raises DataError, with the place; UsageError for unknown fields.
    """
    check_columns(source.columns, FIELDS)
    identifiers = Identifiers()
    for row in read_rows(source):
        if (empty := empty_field(row, source)) is not None:
            field, column = empty
            if source.rows is not None:
                raise row.blame(f"The {field} in column {column!r} is empty.", FILL)
            source.pass_over(f"rows with an empty {field}", row.place)
            continue
        for example in examples_of(row, source):
            if example.id is not None:
                identifiers.add(example.id, row.place, row.blame)
            yield example


def examples_of(row: Row, source: Source) -> Iterator[Example]:
    """One row as an example or, with a list of responses, as one example each.

    These have the id of the row, each with its number: `id/1`, `id/2` and so on.
    """
    record = record_of(row, source)
    responses = record["response"]
    several = isinstance(responses, list) and len(responses) > 1
    for number, response in enumerate(responses if isinstance(responses, list) else [responses], 1):
        try:
            example = parse_example({**record, "response": response})
        except DataError as error:
            raise row.blame(error.problem, error.remedy) from None
        if several and example.id is not None:
            example = replace(example, id=f"{example.id}/{number}")
        yield example


def empty_field(row: Row, source: Source) -> tuple[str, str | None] | None:
    """The context or the response, whichever a row leaves empty, with its column; None for both."""
    for field in ("context", "response"):
        column = column_of(row, field, USUAL[field], source, needed=True)
        value = None if column is None else row.values[column]
        if value in (None, []) or (isinstance(value, str) and not value.strip()):
            return field, column
    return None


def record_of(row: Row, source: Source) -> dict[str, Any]:
    """The fields of a row by name."""
    record: dict[str, Any] = {}
    for field in FIELDS:
        names = USUAL.get(field, (field,))
        needed = field in ("context", "response")
        column = column_of(row, field, names, source, needed=needed)
        if column is None:
            continue
        value = row.values[column]
        if field == "response" and isinstance(value, list) and "" in value:
            raise row.blame(f"The {field} in column {column!r} is empty.", FILL)
        record[field] = value
    if isinstance(record.get("negatives"), str):
        record["negatives"] = [record["negatives"]] if record["negatives"] else []
    return record


def fit_examples(beginning: Beginning) -> Fit:
    """JSON with the fields by name; also anything unrecognised, above all a pipe."""
    if beginning.is_rows or beginning.is_folder:
        return Fit.NOT
    is_json = beginning.is_json_lines or beginning.text.startswith("{")
    if is_json and has_fields(beginning):
        return Fit.FIELDS
    is_open = beginning.suffix in (".json", "") and len(beginning.cells) == 1
    is_array = beginning.text.startswith("[")
    fits = is_json or not beginning.is_file or (is_open and not is_array)
    return Fit.NAME if fits else Fit.NOT


def fit_table(beginning: Beginning) -> Fit:
    """Rows with the fields, mapped or by name, or with usual names; and files that are tables."""
    names = beginning.names
    if beginning.is_mapped:
        is_pair = {"first", "second", "label"} & set(beginning.columns)
        return Fit.NOT if is_pair else Fit.FIELDS
    if has_fields(beginning):
        is_json = beginning.is_json_lines or beginning.text.startswith("{")
        return Fit.NOT if is_json else Fit.FIELDS
    is_labelled = couple_of(names) is not None and label_of(names) is not None
    usual = set(folded(names))
    if usual & set(USUAL["context"]) and usual & set(USUAL["response"]) and not is_labelled:
        return Fit.COMMON_COLUMNS
    is_named = beginning.suffix in (".csv", ".tsv") and beginning.has_cells
    is_table = beginning.is_rows or beginning.text.startswith("[") or is_named
    return Fit.NAME if is_table else Fit.NOT


def has_fields(beginning: Beginning) -> bool:
    """Whether there are columns with the names of the fields, and no others are mapped."""
    return {"context", "response"} <= beginning.names and not beginning.is_mapped


FORMATS = (
    Format(
        name="examples",
        gives="examples",
        description='JSONL of {"context", "response"}, polyrank\'s own',
        read=lambda source: read_examples(source.path),
        fit=fit_examples,
    ),
    Format(
        name="table",
        gives="examples",
        description="CSV, TSV, JSONL or Parquet of contexts, responses",
        read=read_table,
        fit=fit_table,
        takes_columns=True,
    ),
)
