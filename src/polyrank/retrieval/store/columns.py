"""The metadata of a shard, a column a field: one value a row, or a mark for none.

    field-000.codes, .strings    texts: a number a row, 0 for none; and the distinct texts
    field-001.integer            <i8 a row
    field-002.number             <f8 a row
    field-003.boolean            a byte a row

A field has one kind over the whole index, and whole numbers may stand in a field of numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polyrank.errors import DataError, IndexFolderError
from polyrank.records import NO_METADATA, Candidate, Value
from polyrank.retrieval.filters import Condition, Membership, Operator, holds
from polyrank.retrieval.store.manifest import REBUILD, FieldRecord
from polyrank.retrieval.store.strings import Strings, StringsWriter
from polyrank.storage import write_all

MOST_FIELDS = 256

DTYPES = {"string": "<u4", "integer": "<i8", "number": "<f8", "boolean": "u1"}
ABSENT: Mapping[str, Any] = {"string": 0, "integer": -(2**63), "number": np.nan, "boolean": 2}
COMPARE: Mapping[Operator, Callable[[Any, Any], Any]] = {
    "==": np.equal,
    "!=": np.not_equal,
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
}

Blame = Callable[[str, str, str], DataError]
"""From the id of a candidate, a problem and a remedy to the error that says where."""


class Kinds:
    """The kind of every field so far."""

    def __init__(self, known: Mapping[str, str], blame: Blame) -> None:
        self.known = dict(known)
        self._blame = blame

    def take(self, candidate: Candidate) -> None:
        """See a candidate's metadata. Raises DataError where a value is of another kind."""
        for name, value in candidate.metadata.items():
            found = kind_of(value)
            kind = wider(self.known.get(name, found), found)
            if kind is None:
                raise self._blame(
                    candidate.id,
                    f"The metadata field {name!r} is {value!r}, of the kind {found}, and before "
                    f"it was of the kind {self.known[name]}.",
                    "Give a field values of one kind, or another name.",
                )
            self.known[name] = kind
        if len(self.known) > MOST_FIELDS:
            raise self._blame(
                candidate.id,
                f"The metadata has more than {MOST_FIELDS} different fields so far.",
                "Use fewer fields.",
            )


def kind_of(value: Value) -> str:
    """The kind of a value."""
    if isinstance(value, str):
        return "string"
    if isinstance(value, bool):
        return "boolean"
    return "integer" if isinstance(value, int) else "number"


def wider(one: str, other: str) -> str | None:
    """The kind that takes the values of both, if there is one."""
    if one == other:
        return one
    return "number" if {one, other} == {"integer", "number"} else None


class ColumnsWriter:
    """Collects the metadata of a shard and writes it in the end."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._rows = 0
        self._columns: dict[str, list[Value | None]] = {}

    def extend(self, candidates: Sequence[Candidate]) -> None:
        """Append the metadata of candidates."""
        for row, candidate in enumerate(candidates, start=self._rows):
            for name, value in candidate.metadata.items():
                column = self._columns.setdefault(name, [])
                column.extend([None] * (row - len(column)))
                column.append(value)
        self._rows += len(candidates)

    def finish(self) -> dict[str, FieldRecord]:
        """Write the columns and say what they are, in the order of their files."""
        fields = {}
        for number, (name, column) in enumerate(sorted(self._columns.items())):
            column.extend([None] * (self._rows - len(column)))
            kinds = {kind_of(value) for value in column if value is not None}
            kind = "number" if len(kinds) > 1 else kinds.pop()
            path = self._folder / f"field-{number:03d}"
            if kind == "string":
                fields[name] = FieldRecord(kind=kind, values=write_texts(path, column))
            else:
                fields[name] = FieldRecord(kind=kind)
                write_column(path.with_suffix(f".{kind}"), kind, column)
        return fields


def write_texts(path: Path, column: Sequence[Value | None]) -> int:
    """Write a column of texts and return how many distinct ones there are."""
    codes: dict[str, int] = {}
    coded = [
        None if value is None else codes.setdefault(str(value), len(codes) + 1) for value in column
    ]
    write_column(path.with_suffix(".codes"), "string", coded)
    writer = StringsWriter(path.with_suffix(".strings"))
    try:
        writer.extend(text.encode("utf-8") for text in codes)
        writer.finish()
    finally:
        writer.close()
    return len(codes)


def write_column(path: Path, kind: str, column: Sequence[Value | None]) -> None:
    """Write one value a row."""
    absent = ABSENT[kind]
    values = np.array([absent if value is None else value for value in column], DTYPES[kind])
    with open(path, "wb", buffering=0) as handle:
        write_all(handle, values.tobytes())


def column_files(fields: Mapping[str, FieldRecord]) -> list[str]:
    """The names of the files of a shard's columns."""
    names = []
    for number, record in enumerate(fields.values()):
        suffixes = ("codes", "strings") if record.kind == "string" else (record.kind,)
        names += [f"field-{number:03d}.{suffix}" for suffix in suffixes]
    return names


class Column:
    """A field of a shard, mapped."""

    def __init__(self, path: Path, rows: int, record: FieldRecord) -> None:
        self.kind = record.kind
        text = self.kind == "string"
        file = path.with_suffix(".codes" if text else f".{self.kind}")
        mapped = np.memmap(file, dtype=DTYPES[self.kind], mode="r")
        if len(mapped) != rows:
            raise IndexFolderError(f"{file} has {len(mapped)} rows instead of {rows}.", REBUILD)
        self._values: NDArray[Any] = np.asarray(mapped)
        self._texts = Strings(path.with_suffix(".strings"), record.values) if text else None

    def passing(self, condition: Condition) -> NDArray[np.bool_]:
        """The rows for which a condition holds: (rows,)."""
        if self._texts is not None:
            texts = self._texts.between(0, len(self._texts))
            table = np.array([False, *(holds(condition, text) for text in texts)])
            return np.asarray(table[self._values])
        present = self._values == self._values
        if self.kind != "number":
            present = self._values != ABSENT[self.kind]
        if isinstance(condition, Membership):
            each = [self._values == comparable(value) for value in condition.values]
            return np.asarray(present & np.logical_or.reduce(each))
        compare = COMPARE[condition.operator]
        return np.asarray(present & compare(self._values, comparable(condition.value)))

    def values(self, start: int, stop: int) -> list[Value | None]:
        """The values of some rows."""
        plain: list[Any] = self._values[start:stop].tolist()
        if self._texts is not None:
            distinct = {code: self._texts[code - 1] for code in set(plain) if code}
            return [distinct.get(code) for code in plain]
        if self.kind == "number":
            return [value if value == value else None for value in plain]
        absent = ABSENT[self.kind]
        read = bool if self.kind == "boolean" else int
        return [None if value == absent else read(value) for value in plain]


def comparable(value: Value) -> Value:
    """A number as a fraction; it cannot overflow, and stored whole numbers are exact as one."""
    if isinstance(value, (bool, str)):
        return value
    try:
        return float(value)
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


class Columns:
    """The metadata of a shard."""

    def __init__(self, folder: Path, rows: int, fields: Mapping[str, FieldRecord]) -> None:
        self._rows = rows
        self._columns = {
            name: Column(folder / f"field-{number:03d}", rows, record)
            for number, (name, record) in enumerate(fields.items())
        }

    def passing(self, condition: Condition) -> NDArray[np.bool_]:
        """The rows for which a condition holds: (rows,)."""
        column = self._columns.get(condition.field)
        return np.zeros(self._rows, np.bool_) if column is None else column.passing(condition)

    def metadata(self, start: int, stop: int) -> list[Mapping[str, Value]]:
        """The metadata of some rows."""
        rows: list[dict[str, Value]] = [{} for _ in range(stop - start)]
        for name, column in self._columns.items():
            for row, value in zip(rows, column.values(start, stop), strict=True):
                if value is not None:
                    row[name] = value
        return [row or NO_METADATA for row in rows]
