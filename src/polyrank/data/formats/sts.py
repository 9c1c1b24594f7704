"""Semantic textual similarity, STSb and KorSTS in TSV or JSONL, to pairs with scores from 0 to 1.

The scores of the files go from 0 to 5. The STS benchmark's own files have no header: genre, file,
year, number, score, sentence, sentence, and sometimes two columns of sources.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from polyrank.data.formats.rows import (
    Row,
    check_columns,
    column_of,
    is_table,
    read_cells,
    read_rows,
    text_of,
    wrong_count,
)
from polyrank.data.formats.source import Source, at_line
from polyrank.errors import DataError
from polyrank.records import LabelledPair

LARGEST = 5.0
ENOUGH = 100
"""Scores of which some must be above 1."""
COLUMNS = ("genre", "filename", "year", "index", "score", "sentence1", "sentence2")
USUAL = {"first": ("sentence1",), "second": ("sentence2",), "label": ("score", "label")}


def read(source: Source) -> Iterator[LabelledPair]:
    """Yield a pair a row, its score divided by 5. Raises DataError, with the place."""
    check_columns(source.columns, tuple(USUAL))
    count, largest = 0, 0.0
    for row in rows_of(source):
        columns = {
            field: column_of(row, field, names, source.columns, needed=True) or ""
            for field, names in USUAL.items()
        }
        score = score_of(row, row.values[columns["label"]])
        count, largest = count + 1, max(largest, score)
        yield LabelledPair(
            first=text_of(row, columns["first"]),
            second=text_of(row, columns["second"]),
            label=score / LARGEST,
        )
    if count >= ENOUGH and largest <= 1:
        raise DataError(
            f"None of the {count:,} scores is above 1, where they should go from 0 to 5.",
            "Use --format pairs for scores from 0 to 1.",
            path=source.path,
        )


def rows_of(source: Source) -> Iterator[Row]:
    """The rows, named also where the file has no header."""
    if not source.columns and is_table(source.path):
        first = next(read_cells(source.path), None)
        if first is not None and is_headerless(first.texts):
            yield from headerless(source)
            return
    yield from read_rows(source)


def is_headerless(texts: list[str]) -> bool:
    """Whether the cells of a first line are a row of the benchmark's own files."""
    return len(texts) >= len(COLUMNS) and is_number(texts[4])


def headerless(source: Source) -> Iterator[Row]:
    """The rows of a file without a header."""
    for line, texts in read_cells(source.path):
        if len(texts) < len(COLUMNS):
            raise wrong_count(source.path, line, len(texts), f"at least {len(COLUMNS)}")
        values = dict(zip(COLUMNS, texts, strict=False))
        yield Row(values, f"line {line}", at_line(source.path, line))


def is_number(text: str) -> bool:
    """Whether a text is a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def score_of(row: Row, value: Any) -> float:
    """A score from 0 to 5. Raises DataError."""
    is_score = isinstance(value, (int, float, str)) and not isinstance(value, bool)
    if not is_score or not is_number(str(value)) or not 0 <= float(value) <= LARGEST:
        raise row.blame(
            f"The score must be a number from 0 to {LARGEST:g}, got {value!r}.",
            "Check the columns; use --format pairs for scores from 0 to 1.",
        )
    return float(value)
