"""Rows of two texts and a label, to `LabelledPair`s, and the JSONL that polyrank writes of them.

Labels that are all whole numbers are classes; else they are scores from 0 to 1.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from polyrank.data.examples import parse_context
from polyrank.data.formats.rows import Row, check_columns, column_of, read_rows
from polyrank.data.formats.source import Identifiers, Source
from polyrank.errors import DataError
from polyrank.records import LabelledPair
from polyrank.storage import write_text

FIELDS = ("id", "first", "second", "label")
USUAL = {
    "id": ("id",),
    "first": ("first", "sentence1", "text1", "question1"),
    "second": ("second", "sentence2", "text2", "question2"),
    "label": ("label", "score", "is_duplicate"),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Rated:
    """A row whose label is not yet known to be a class or a score."""

    pair: LabelledPair
    label: float | int
    row: Row


def read(source: Source) -> Iterator[LabelledPair]:
    """Yield a pair a row; the labels decide together whether they are classes or scores.

    Raises DataError, with the place; UsageError for unknown fields.
    """
    check_columns(source.columns, FIELDS)
    identifiers = Identifiers()
    rated = []
    for row in read_rows(source, named=False):
        rated.append(rated_row(row, source))
        if (identifier := rated[-1].pair.id) is not None:
            identifiers.add(identifier, row.place, row.blame)
    classes = all(isinstance(one.label, int) for one in rated)
    for one in rated:
        if classes and one.label < 0:
            raise one.row.blame(
                f"The class is {one.label}; classes are whole numbers from 0.", "Change the label."
            )
        if not classes and not 0 <= one.label <= 1:
            raise one.row.blame(
                f"The score is {one.label}, outside of 0 to 1.",
                "Divide the scores by their largest, or use --format sts for scores from 0 to 5.",
            )
        yield replace(one.pair, label=one.label if classes else float(one.label))


def rated_row(row: Row, source: Source) -> Rated:
    """One row, with the label as it stands."""
    values: dict[str, Any] = {}
    for field in FIELDS:
        column = column_of(row, field, USUAL[field], source.columns, needed=field != "id")
        values[field] = None if column is None else row.values[column]
    try:
        first = parse_context(values["first"])
    except DataError as error:
        raise row.blame(error.problem, "Give a text in the first column.") from None
    if not isinstance(values["second"], str):
        raise row.blame(
            f"The second text must be a text, got {values['second']!r}.", "Give a string."
        )
    identifier = values["id"]
    pair = LabelledPair(
        first=first,
        second=values["second"],
        label=0,
        id=None if identifier is None else str(identifier),
    )
    return Rated(pair=pair, label=number_of(row, values["label"]), row=row)


def number_of(row: Row, value: Any) -> float | int:
    """A label as a number: an `int` where it is written as a whole one."""
    if isinstance(value, bool):
        return int(value)
    for kind in (int, float):
        try:
            if isinstance(value, (kind, str)):
                return kind(value)
        except ValueError:
            continue
    raise row.blame(
        f"The label must be a number, got {value!r}.",
        "Number the classes from 0, or use --format nli for entailment, neutral, contradiction.",
    )


def write_pairs(path: Path, pairs: Iterable[LabelledPair]) -> None:
    """Write pairs as the JSONL that `read` reads, replacing the file at once.

    Raises StorageError.
    """
    lines = []
    for pair in pairs:
        record: dict[str, Any] = {} if pair.id is None else {"id": pair.id}
        record |= {"first": pair.first, "second": pair.second, "label": pair.label}
        lines.append(json.dumps(record, ensure_ascii=False) + "\n")
    write_text(path, "".join(lines))
