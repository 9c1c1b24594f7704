"""Which column of a row holds which field: a mapped one, or one with a usual name.

Knows the names that data sets use, but not what the values are used for.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from polyrank.data.files import at_line
from polyrank.data.rows import Row, is_table
from polyrank.data.source import Source
from polyrank.errors import UsageError, nearest

CONTEXT = ("context", "question", "query", "anchor", "prompt", "q", "질문", "문의")
RESPONSE = ("response", "answer", "positive", "pos", "reply", "a", "답변", "응답", "대답")
TEXT = ("text", "candidate", "passage", "document", "content", "sentence", *RESPONSE)
"""The names of the one text of a candidate."""
NEGATIVES = ("negatives", "negative", "neg")
COUPLES = (
    ("first", "second"),
    ("sentence1", "sentence2"),
    ("sen1", "sen2"),
    ("text1", "text2"),
    ("question1", "question2"),
    ("premise", "hypothesis"),
)
"""The names of two texts of one row: with a label a labelled pair, otherwise a context and its
response."""
FIRST, SECOND = zip(*COUPLES, strict=True)
LABELS = ("label", "gold_label", "score", "is_duplicate")
SENTENCE_ENDS = (".", "?", "!", "。", "？", "！", "…")
NOT_TEXTS = ("id", "idx", "index", "guid")
"""Columns that are never suggested for a text or a label."""


def couple_of(names: Iterable[str]) -> tuple[str, str] | None:
    """The first couple of names that a row has."""
    known = set(names)
    return next((couple for couple in COUPLES if known.issuperset(couple)), None)


def label_of(names: Iterable[str]) -> str | None:
    """The usual name of a label among a row's columns."""
    known = set(names)
    return next((name for name in LABELS if name in known), None)


def check_columns(columns: Mapping[str, str], fields: Sequence[str]) -> None:
    """Raise UsageError if a mapped field is not one of the format's."""
    for field in columns:
        if field not in fields:
            raise UsageError(f"columns: there is no field {field!r}.", nearest(field, fields))


def column_of(
    row: Row, field: str, names: Sequence[str], source: Source, *, needed: bool
) -> str | None:
    """The column of a row that holds a field: the mapped one, or the first of `names` it has.

    The source records it. Raises DataError if a mapped or needed column is missing.
    """
    if field in source.columns:
        column = source.columns[field]
        if column in row.values:
            return column
        raise row.blame(
            f"There is no column {column!r} for {field!r}.", nearest(column, map(str, row.values))
        )
    known = folded(row.values)
    found = next((known[name] for name in names if name in known), None)
    if found is not None:
        source.found.setdefault(field, found)
    elif needed:
        listed = ", ".join(map(repr, row.values))
        may_lack = source.rows is None and not source.columns and is_table(source.path)
        if may_lack and lacks_header(row.values):
            raise at_line(source.path, 1)(
                f"The first line should name the columns, and reads {listed}.",
                f"Put a line with names above it, such as: {','.join(header_for(row.values))}",
            )
        raise row.blame(
            f"No column holds the {field}: the columns are {listed}.",
            how_to_name(row.values, in_python=source.rows is not None),
        )
    return found


def folded(names: Iterable[str]) -> dict[str, str]:
    """The names of columns by their spelling in small letters, and by their own."""
    own = [str(name) for name in names]
    return {name.casefold(): name for name in reversed(own)} | {name: name for name in own}


def lacks_header(names: Iterable[str]) -> bool:
    """Whether the names of columns seem to be texts: a sentence, or several long ones."""
    return any(name.strip().endswith(SENTENCE_ENDS) or name.count(" ") > 3 for name in names)


def header_for(values: Mapping[str, Any]) -> list[str]:
    """Names for the columns of a table that has none."""
    known = ["context", "response"]
    return [*known, *(f"column{number}" for number in range(3, len(values) + 1))][: len(values)]


def how_to_name(values: Mapping[str, Any], *, in_python: bool = False) -> str:
    """The remedy for unknown column names: the columns to type."""
    typed = columns_in_python if in_python else columns_flag
    names = [name for name in map(str, values) if "," not in name and name not in NOT_TEXTS]
    numbers = [name for name in names if is_number(values[name])]
    texts = [name for name in names if is_text(values[name]) and name not in numbers]
    context = next((name for name in CONTEXT if name in texts), None) or like("context", texts)
    response = next((name for name in RESPONSE if name in texts), None) or like("response", texts)
    rest = [name for name in texts if name not in (context, response)]
    context = context or next(iter(rest), None)
    response = response or next((name for name in rest if name != context), None)
    if context is None or response is None:
        usual = typed(context="COLUMN", response="COLUMN")
        return f"Name them: {usual}; for labelled pairs: first, second and label."
    remedy = f"Name them: {typed(context=context, response=response)}"
    label = label_of(names) or next(iter(numbers), None)
    if label is None or label in (context, response):
        return f"{remedy}."
    return f"{remedy}; for labelled pairs: {typed(first=context, second=response, label=label)}."


def like(field: str, names: Sequence[str]) -> str | None:
    """The column whose name is closest to a field's."""
    return next((name for name in names if nearest(name, [field]).startswith("Did")), None)


def columns_in_python(**columns: str) -> str:
    """A mapping as the argument of a call."""
    return f"columns={columns!r}"


def columns_flag(**columns: str) -> str:
    """A mapping as a flag."""
    mapping = ",".join(f"{field}={column}" for field, column in columns.items())
    return f"--columns {shlex.quote(mapping)}"


def is_text(value: Any) -> bool:
    """Whether a value is a text, or a list of texts."""
    return isinstance(value, str) or (isinstance(value, list) and all(map(is_text, value)))


def is_number(value: Any) -> bool:
    """Whether a value is a number, or a text that is one."""
    try:
        return isinstance(value, (int, float, str)) and float(value) == float(value)
    except ValueError:
        return False
