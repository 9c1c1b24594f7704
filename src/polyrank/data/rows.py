"""Rows of CSV, TSV, JSONL, JSON, Parquet, a hub data set or in memory, to named values.

Knows columns and the place of a row, but not what the columns mean.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from polyrank.data.files import (
    Blame,
    at_line,
    at_place,
    base_suffix,
    open_bytes,
    read_lines,
    read_text_start,
)
from polyrank.data.hub import is_hub, read_hub, with_class_names
from polyrank.data.json_files import read_json_array, read_json_lines
from polyrank.data.memory import at_row
from polyrank.data.parquet import read_batches
from polyrank.data.source import Source
from polyrank.errors import DataError

JSON_LINES = (".jsonl", ".ndjson")


class Row(NamedTuple):
    """The values of a row by column, and its place."""

    values: Mapping[str, Any]
    place: str
    blame: Blame


class Cells(NamedTuple):
    """The cells of a line of a CSV or TSV file, and the line where it begins."""

    line: int
    texts: list[str]


def read_rows(source: Source, *, named: bool = True) -> Iterator[Row]:
    """Yield the rows of a source; with `named`, the classes of a hub data set by name.

    Raises DataError, with the place, for anything that is not a row.
    """
    path = source.path
    if source.rows is not None:
        rows = source.rows.values()
        if named:
            rows = with_class_names(rows, source.rows.features)
        for number, values in enumerate(rows, start=1):
            yield Row(values, f"row {number}", at_row(source.rows.name, number))
    elif is_hub(path):
        for number, values in enumerate(read_hub(source, named=named), start=1):
            yield Row(values, f"row {number}", at_place(path, f"row {number}"))
    elif base_suffix(path) == ".parquet":
        for number, values in enumerate(read_parquet(path), start=1):
            yield Row(values, f"row {number}", at_place(path, f"row {number}"))
    elif base_suffix(path) in JSON_LINES or is_json(path):
        for line, values in read_objects(path):
            yield Row(values, f"line {line}", at_line(path, line))
    else:
        for line, values in read_table(path):
            yield Row(values, f"line {line}", at_line(path, line))


def is_table(path: Path) -> bool:
    """Whether a source consists of lines of cells, by its name and its beginning."""
    named = is_hub(path) or base_suffix(path) in (".parquet", *JSON_LINES)
    return not named and not is_json(path)


def is_json(path: Path) -> bool:
    """Whether a file begins like JSON, whatever its name."""
    return read_text_start(path, 64)[:1] in (b"{", b"[")


def read_objects(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (line, object) of JSONL, or of a JSON array of objects."""
    if read_text_start(path, 64)[:1] != b"[":
        yield from read_json_lines(path)
        return
    for line, item in read_json_array(path):
        if not isinstance(item, dict):
            raise at_line(path, line)(
                f"An item of the array is a {type(item).__name__}, not an object.",
                "Write an array of objects.",
            )
        yield line, item


def read_table(path: Path) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield (line, cells by the column names of the first line) of a CSV or TSV file.

    Raises DataError for a line with more or fewer cells than the first.
    """
    lines = read_cells(path)
    header = next(lines, None)
    if header is None:
        return
    names = [name.strip() for name in header.texts]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise at_line(path, header.line)(
            f"Two columns are called {twice!r}.", "Rename one of them, or remove it."
        )
    for line, texts in lines:
        if len(texts) != len(names):
            raise wrong_count(path, line, len(texts), str(len(names)))
        yield line, dict(zip(names, texts, strict=True))


def read_cells(path: Path) -> Iterator[Cells]:
    """Yield the cells of a file: quoted CSV, or unquoted tabs if the first line has one.

    A .csv file may be separated by tabs or semicolons, as spreadsheets write it, with quoting.
    Blank lines are skipped.
    """
    first = next((line for _, line in read_lines(path) if line.strip()), "")
    separator = separator_of(path, first) or ","
    if separator == "\t" and base_suffix(path) != ".csv":
        for number, line in read_lines(path):
            if line.strip():
                yield Cells(number, line.split("\t"))
        return
    lines = (line + "\n" for _, line in read_lines(path))
    reader = csv.reader(lines, strict=True, delimiter=separator)
    begin = 1
    try:
        for texts in reader:
            if texts:
                yield Cells(begin, texts)
            begin = reader.line_num + 1
    except csv.Error as error:
        raise at_line(path, begin)(
            f"The line is not CSV: {error}.",
            'Put cells that hold a comma, a quote or a line break in "quotes", quotes doubled; '
            "check that the file is whole.",
        ) from error


def separator_of(path: Path, first: str) -> str | None:
    """What separates the cells of a table with this first line; None for one column.

    A semicolon counts in .csv files alone, where quoted cells do not hold more commas.
    """
    if "\t" in first:
        return "\t"
    if base_suffix(path) == ".csv":
        bare = "".join(first.split('"')[::2])
        if bare.count(";") > bare.count(","):
            return ";"
    return "," if "," in first else None


def wrong_count(path: Path, line: int, got: int, expected: str) -> DataError:
    """The error for a line with too few or too many cells."""
    return at_line(path, line)(
        f"The line has {got} columns; {expected} are expected.",
        "Check the separators; if the last line is truncated, the file is incomplete.",
    )


def read_parquet(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the rows of a Parquet file. Raises DataError if it is damaged or truncated."""
    import pyarrow

    open_bytes(path).close()
    try:
        for batch in read_batches(path):
            yield from batch.to_pylist()
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
        reason = " ".join(str(error).split()).rstrip(".")
        raise DataError(
            f"The file is not a complete Parquet file: {reason}.",
            "Download or write it again; if the whole file is compressed, decompress it.",
            path=path,
        ) from error


def text_of(row: Row, column: str) -> str:
    """A text cell, without surrounding space. Raises DataError if it is not a text."""
    value = row.values[column]
    if not isinstance(value, str):
        raise row.blame(
            f"The column {column!r} must be a text, got {value!r}.", "Change it to a text."
        )
    return value.strip()
