"""Two texts and a label per row, to `LabelledPair`s: of any data set, of NLI, of STS.

- `pairs`: labels that are all whole numbers are classes; else they are scores from 0 to 1.
- `nli`: SNLI, MultiNLI, XNLI and KorNLI. The classes are those of Sentence-BERT (Reimers and
  Gurevych, 2019): contradiction 0, entailment 1, neutral 2. Rows whose annotators did not agree
  (label "-") are skipped.
- `sts`: STSb and KorSTS. The scores of the files go from 0 to 5. The STS benchmark's own files have
  no header: genre, file, year, number, score, sentence, sentence, and sometimes two columns of
  sources.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from polyrank.data.columns import (
    FIRST,
    SECOND,
    check_columns,
    column_of,
    couple_of,
    is_number,
    label_of,
)
from polyrank.data.examples import parse_context
from polyrank.data.files import at_line
from polyrank.data.format import Beginning, Fit, Format
from polyrank.data.rows import (
    Row,
    is_table,
    read_cells,
    read_rows,
    text_of,
    wrong_count,
)
from polyrank.data.source import Identifiers, Source
from polyrank.errors import DataError, nearest
from polyrank.records import LabelledPair

TEXTS_AND_LABEL = ("first", "second", "label")
FIELDS = ("id", *TEXTS_AND_LABEL)
LABELS = {
    "pairs": ("label", "gold_label", "score", "is_duplicate"),
    "nli": ("gold_label", "label"),
    "sts": ("score", "label"),
}
"""The names of a label by format, the preferred first."""
SCORE = "score"
"""A column of this name holds scores, not classes, unless it is mapped."""
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
    """A row whose label may still be a class or a score."""

    pair: LabelledPair
    label: float | int
    is_score: bool
    """Whether it is known to be a score."""
    row: Row


def read_pairs(source: Source) -> Iterator[LabelledPair]:
    """Yield a pair per row; all labels together decide whether they are classes or scores.

    Raises DataError, with the place; UsageError for unknown fields.
    """
    check_columns(source.columns, FIELDS)
    identifiers = Identifiers()
    rated = []
    for row in read_rows(source, named=False):
        rated.append(rated_row(row, source))
        if (identifier := rated[-1].pair.id) is not None:
            identifiers.add(identifier, row.place, row.blame)
    classes = all(isinstance(one.label, int) and not one.is_score for one in rated)
    for one in rated:
        if classes and one.label < 0:
            raise one.row.blame(
                f"The class is {one.label}; classes are whole numbers from 0.", "Change the label."
            )
        if not classes and not 0 <= one.label <= 1:
            raise one.row.blame(
                f"The score is {one.label}; it must be from 0 to 1.",
                "Divide the scores by their largest, or use --format sts for scores from 0 to 5.",
            )
        yield replace(one.pair, label=one.label if classes else float(one.label))


def rated_row(row: Row, source: Source) -> Rated:
    """One row, with the label as it is in the file."""
    columns = columns_of(row, source, "pairs")
    values: dict[str, Any] = {field: row.values[column] for field, column in columns.items()}
    try:
        first = parse_context(values["first"])
    except DataError as error:
        raise row.blame(error.problem, "Give a text in the first column.") from None
    if not isinstance(values["second"], str):
        raise row.blame(
            f"The second text must be a text, got {values['second']!r}.", "Give a string."
        )
    identifier = values.get("id")
    pair = LabelledPair(
        first=first,
        second=values["second"],
        label=0,
        id=None if identifier is None else str(identifier),
    )
    label = number_of(row, values["label"])
    is_score = columns["label"] == SCORE and "label" not in source.columns
    return Rated(pair=pair, label=label, is_score=is_score, row=row)


def columns_of(row: Row, source: Source, format: str) -> dict[str, str]:
    """The columns of a row by field; the two texts are one couple of names."""
    couple = couple_of(row.values)
    names: dict[str, tuple[str, ...]] = {
        "id": ("id",) if format == "pairs" else (),
        "first": FIRST if couple is None else couple[:1],
        "second": SECOND if couple is None else couple[1:],
        "label": LABELS[format],
    }
    found = {
        field: column_of(row, field, names[field], source, needed=field != "id") for field in FIELDS
    }
    return {field: column for field, column in found.items() if column is not None}


def number_of(row: Row, value: Any) -> float | int:
    """A label as a number: an `int` if it is written as a whole number."""
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
    check_columns(source.columns, TEXTS_AND_LABEL)
    for row in read_rows(source):
        columns = columns_of(row, source, "nli")
        label = row.values[columns["label"]]
        if label == "-":
            source.passed_over[UNDECIDED] += 1
            continue
        if not isinstance(label, str) or label not in CLASSES:
            raise row.blame(
                f"The label is {label!r}, not one of {', '.join(CLASSES)} and '-'.",
                nearest(str(label), CLASSES)
                if isinstance(label, str)
                else "Write the names: each data set numbers its classes differently.",
            )
        first, second = text_of(row, columns["first"]), text_of(row, columns["second"])
        if not first or not second:
            source.passed_over[EMPTY] += 1
            continue
        yield LabelledPair(first=first, second=second, label=CLASSES[label], class_name=label)


def read_sts(source: Source) -> Iterator[LabelledPair]:
    """Yield a pair per row, its score divided by 5. Raises DataError, with the place."""
    check_columns(source.columns, TEXTS_AND_LABEL)
    count, largest = 0, 0.0
    bare = has_no_header(source)
    named = replace(source, found={}) if bare else source
    for row in headerless(source) if bare else read_rows(source):
        columns = columns_of(row, named, "sts")
        score = score_of(row, row.values[columns["label"]])
        count, largest = count + 1, max(largest, score)
        yield LabelledPair(
            first=text_of(row, columns["first"]),
            second=text_of(row, columns["second"]),
            label=score / LARGEST,
        )
    if count >= ENOUGH and largest <= 1:
        raise DataError(
            f"None of the {count:,} scores is above 1, but they should go from 0 to 5.",
            "Use --format pairs for scores from 0 to 1.",
            path=source.path,
        )


def has_no_header(source: Source) -> bool:
    """Whether a source is one of the benchmark's own files, whose columns have no names."""
    if source.columns or source.rows is not None or not is_table(source.path):
        return False
    first = next(read_cells(source.path), None)
    return first is not None and is_headerless(first.texts)


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


def score_of(row: Row, value: Any) -> float:
    """A score from 0 to 5. Raises DataError."""
    is_score = isinstance(value, (int, float, str)) and not isinstance(value, bool)
    if not is_score or not is_number(str(value)) or not 0 <= float(value) <= LARGEST:
        raise row.blame(
            f"The score must be a number from 0 to {LARGEST:g}, got {value!r}.",
            "Check the columns; use --format pairs for scores from 0 to 1.",
        )
    return float(value)


def fit_nli(beginning: Beginning) -> Fit:
    """Two texts with a class by its name."""
    known: tuple[Any, ...] = (*CLASSES, "-")
    if couple_of(beginning.names) is None:
        return Fit.NOT
    label = label_of(beginning.names)
    named = any(row.get(label or "") in known for row in beginning.rows)
    return Fit.COLUMNS if "gold_label" in beginning.names or named else Fit.NOT


def fit_sts(beginning: Beginning) -> Fit:
    """Two texts with scores above 1; whole numbers only if the column is called score."""
    names = beginning.names
    label = SCORE if SCORE in names else label_of(names)
    if couple_of(names) is None or label is None or fit_nli(beginning):
        return Fit.NOT
    scores = [float(row[label]) for row in beginning.rows if is_number(row.get(label))]
    is_graded = label == SCORE or not all(score.is_integer() for score in scores)
    return Fit.COLUMNS if is_graded and max(scores, default=LARGEST) > 1 else Fit.NOT


def fit_pairs(beginning: Beginning) -> Fit:
    """The fields, mapped or by name, or two texts with another label."""
    names = beginning.names
    if beginning.is_mapped:
        return Fit.FIELDS if set(TEXTS_AND_LABEL) & set(beginning.columns) else Fit.NOT
    if names.issuperset(TEXTS_AND_LABEL):
        return Fit.FIELDS
    is_other = couple_of(names) is not None and label_of(names) is not None
    is_known = fit_nli(beginning) or fit_sts(beginning)
    return Fit.COLUMNS if is_other and not is_known else Fit.NOT


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
