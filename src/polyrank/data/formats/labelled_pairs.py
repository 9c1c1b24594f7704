"""Two texts and a label per row, to `LabelledPair`s: of any data set, of NLI, of STS.

- `pairs`: labels that are all whole numbers are classes; else they are scores from 0 to 1.
- `nli`: SNLI, MultiNLI, XNLI and KorNLI. The classes are those of Sentence-BERT (Reimers and
  Gurevych, 2019): contradiction 0, entailment 1, neutral 2. Rows whose annotators did not agree
  (label "-") are passed over.
- `sts`: STSb and KorSTS. The scores of the files go from 0 to 5. The STS benchmark's own files have
  no header: genre, file, year, number, score, sentence, sentence, and sometimes two columns of
  sources.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from polyrank.data.examples import parse_context
from polyrank.data.files import at_line
from polyrank.data.format import Beginning, Fit, Format
from polyrank.data.rows import (
    Row,
    check_columns,
    column_of,
    is_table,
    read_cells,
    read_rows,
    text_of,
    wrong_count,
)
from polyrank.data.source import Identifiers, Source
from polyrank.errors import DataError, nearest
from polyrank.records import LabelledPair

FIELDS = ("id", "first", "second", "label")
PAIR_COLUMNS = {
    "id": ("id",),
    "first": ("first", "sentence1", "text1", "question1"),
    "second": ("second", "sentence2", "text2", "question2"),
    "label": ("label", "score", "is_duplicate"),
}
NLI_COLUMNS = {
    "first": ("sentence1", "premise"),
    "second": ("sentence2", "hypothesis"),
    "label": ("gold_label", "label"),
}
STS_COLUMNS = {"first": ("sentence1",), "second": ("sentence2",), "label": ("score", "label")}
CLASSES = {"contradiction": 0, "entailment": 1, "neutral": 2}
UNDECIDED = "rows with the label '-'"
EMPTY = "rows with an empty sentence"
LARGEST = 5.0
ENOUGH = 100
"""Scores of which some must be above 1."""
STS_HEADER = ("genre", "filename", "year", "index", "score", "sentence1", "sentence2")
"""The columns of the benchmark's own files."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Rated:
    """A row whose label is not yet known to be a class or a score."""

    pair: LabelledPair
    label: float | int
    row: Row


def read_pairs(source: Source) -> Iterator[LabelledPair]:
    """Yield a pair per row; the labels decide together whether they are classes or scores.

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
        column = column_of(row, field, PAIR_COLUMNS[field], source.columns, needed=field != "id")
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


def read_nli(source: Source) -> Iterator[LabelledPair]:
    """Yield a pair per row: premise, hypothesis, class. Raises DataError, with the place."""
    check_columns(source.columns, tuple(NLI_COLUMNS))
    for row in read_rows(source):
        columns = {
            field: column_of(row, field, names, source.columns, needed=True) or ""
            for field, names in NLI_COLUMNS.items()
        }
        label = row.values[columns["label"]]
        if label == "-":
            source.passed_over[UNDECIDED] += 1
            continue
        if label not in CLASSES:
            raise row.blame(
                f"The label is {label!r}, not one of {', '.join(CLASSES)} and '-'.",
                nearest(str(label), CLASSES)
                if isinstance(label, str)
                else "Write the names: numbers stand for other classes in every data set.",
            )
        first, second = text_of(row, columns["first"]), text_of(row, columns["second"])
        if not first or not second:
            source.passed_over[EMPTY] += 1
            continue
        yield LabelledPair(first=first, second=second, label=CLASSES[label], class_name=label)


def read_sts(source: Source) -> Iterator[LabelledPair]:
    """Yield a pair per row, its score divided by 5. Raises DataError, with the place."""
    check_columns(source.columns, tuple(STS_COLUMNS))
    count, largest = 0, 0.0
    for row in sts_rows(source):
        columns = {
            field: column_of(row, field, names, source.columns, needed=True) or ""
            for field, names in STS_COLUMNS.items()
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


def sts_rows(source: Source) -> Iterator[Row]:
    """The rows, named also where the file has no header."""
    if not source.columns and is_table(source.path):
        first = next(read_cells(source.path), None)
        if first is not None and is_headerless(first.texts):
            yield from headerless(source)
            return
    yield from read_rows(source)


def is_headerless(texts: list[str]) -> bool:
    """Whether the cells of a first line are a row of the benchmark's own files."""
    return len(texts) >= len(STS_HEADER) and is_number(texts[4]) and not is_number(texts[0])


def headerless(source: Source) -> Iterator[Row]:
    """The rows of a file without a header."""
    for line, texts in read_cells(source.path):
        if len(texts) < len(STS_HEADER):
            raise wrong_count(source.path, line, len(texts), f"at least {len(STS_HEADER)}")
        values = dict(zip(STS_HEADER, texts, strict=False))
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


def has_sentence_pair(names: set[str]) -> bool:
    """Whether columns are called as in the data sets of sentence pairs."""
    return {"sentence1", "sentence2"} <= names or {"premise", "hypothesis"} <= names


def fit_nli(beginning: Beginning) -> Fit:
    """Pairs of sentences with a class by its name."""
    names, label = beginning.names, beginning.values.get("label")
    named = "gold_label" in names or label in (*CLASSES, "-")
    return Fit.COLUMNS if has_sentence_pair(names) and named else Fit.NOT


def fit_sts(beginning: Beginning) -> Fit:
    """Pairs of sentences with a score."""
    names = beginning.names
    is_sts = has_sentence_pair(names) and "score" in names and not fit_nli(beginning)
    return Fit.COLUMNS if is_sts else Fit.NOT


def fit_pairs(beginning: Beginning) -> Fit:
    """The fields, mapped or by name, or pairs of sentences with another label."""
    names = beginning.names
    if beginning.is_mapped:
        return Fit.FIELDS if {"first", "second", "label"} & set(beginning.columns) else Fit.NOT
    if {"first", "second", "label"} <= names:
        return Fit.COLUMNS
    is_other = has_sentence_pair(names) and not fit_nli(beginning) and not fit_sts(beginning)
    return Fit.COLUMNS if is_other else Fit.NOT


FORMATS = (
    Format(
        name="pairs",
        gives="pairs",
        description="two texts and a class or a score from 0 to 1",
        read=read_pairs,
        fit=fit_pairs,
        takes_columns=True,
    ),
    Format(
        name="nli",
        gives="pairs",
        description="SNLI, MultiNLI, XNLI, KorNLI",
        read=read_nli,
        fit=fit_nli,
        takes_columns=True,
    ),
    Format(
        name="sts",
        gives="pairs",
        description="STSb, KorSTS: scores from 0 to 5",
        read=read_sts,
        has_mark=lambda beginning: is_headerless(beginning.cells),
        fit=fit_sts,
        takes_columns=True,
    ),
)
