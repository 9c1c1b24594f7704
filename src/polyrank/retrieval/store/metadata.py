"""The metadata of a shard: an Arrow table with one column per field, null for a missing value.

A field has one kind over the whole index; whole numbers may stand in a field of numbers. Texts are
dictionary-encoded, so that a filter looks at each distinct text once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from struct import Struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polyrank.errors import DataError
from polyrank.records import NO_METADATA, Candidate, Value
from polyrank.retrieval.filters import Condition, Membership, Operator, holds
from polyrank.retrieval.store.manifest import damaged
from polyrank.tables import Table, Texts, write_block

METADATA = "metadata.arrow"
MOST_FIELDS = 256

TYPES = {
    "string": "dictionary<values=large_string, indices=int32, ordered=0>",
    "integer": "int64",
    "number": "double",
    "boolean": "bool",
}
"""The Arrow types of the kinds of fields."""

FORMS = {"string": Struct("<i"), "integer": Struct("<q"), "number": Struct("<d")}
"""What a value is in a buffer of Arrow; of a text, its place in the dictionary."""

COMPARE: Mapping[Operator, Callable[[Any, Any], Any]] = {
    "==": np.equal,
    "!=": np.not_equal,
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
}

Blame = Callable[[str, str, str], DataError]
"""Makes an error from the id of a candidate, a problem and a remedy; it says where."""


class FieldKinds:
    """The kind of every field so far."""

    def __init__(self, known: Mapping[str, str], blame: Blame) -> None:
        self.known = dict(known)
        self._blame = blame

    def check(self, candidate: Candidate) -> None:
        """Note a candidate's metadata. Raises DataError if a value has another kind."""
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
    """The kind that holds the values of both, if there is one."""
    if one == other:
        return one
    return "number" if {one, other} == {"integer", "number"} else None


class MetadataWriter:
    """Collects the metadata of a shard and writes it at the end."""

    def __init__(self, path: Path) -> None:
        self._path = path
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

    def finish(self) -> dict[str, str]:
        """Write the columns, if any, and return their kinds."""
        import pyarrow as pa

        if not self._columns:
            return {}
        kinds, arrays = {}, {}
        for name, column in sorted(self._columns.items()):
            column.extend([None] * (self._rows - len(column)))
            found = {kind_of(value) for value in column if value is not None}
            kinds[name] = "number" if len(found) > 1 else found.pop()
            arrays[name] = arrow_array(kinds[name], column)
        write_block(self._path, pa.RecordBatch.from_pydict(arrays))
        return kinds


def arrow_array(kind: str, column: Sequence[Value | None]) -> Any:
    """The values of a field as Arrow keeps them, None if missing."""
    import pyarrow as pa

    if kind == "string":
        return pa.array(column, pa.large_string()).dictionary_encode()
    if kind == "number":
        column = [None if value is None else float(value) for value in column]
    return pa.array(column, {"integer": pa.int64(), "boolean": pa.bool_()}.get(kind, pa.float64()))


class Column:
    """A field of a shard, mapped."""

    def __init__(self, table: Table, name: str, kind: str) -> None:
        self.kind = kind
        (array,) = table.arrays(name, TYPES[kind])
        self._rows = len(array)
        self._texts = Texts([array.dictionary], table.fault) if kind == "string" else None
        present, values = (array.indices if self._texts is not None else array).buffers()
        self._present = None if present is None or not array.null_count else present
        self._values = values

    def passing(self, condition: Condition) -> NDArray[np.bool_]:
        """The rows for which a condition holds: (rows,)."""
        present, values = self._between(0, self._rows)
        if self._texts is not None:
            texts = self._texts.between(0, len(self._texts))
            passing = np.array([holds(condition, text) for text in texts], np.bool_)[values]
        elif isinstance(condition, Membership):
            each = [values == comparable(value) for value in condition.values]
            passing = np.logical_or.reduce(each)
        else:
            passing = COMPARE[condition.operator](values, comparable(condition.value))
        return passing if present is None else passing & present

    def values(self, start: int, stop: int) -> list[Value | None]:
        """The values of the rows from `start` to before `stop`."""
        present, values = self._between(start, stop)
        plain: list[Any] = values.tolist()
        if self._texts is not None:
            distinct = {code: self._texts[code] for code in set(plain)}
            plain = [distinct[code] for code in plain]
        if present is None:
            return plain
        return [value if there else None for value, there in zip(plain, present, strict=True)]

    def __getitem__(self, row: int) -> Value | None:
        """The value of one row; faster than `values`."""
        if self._present is not None and not bit(self._present, row):
            return None
        if self.kind == "boolean":
            return bit(self._values, row)
        form = FORMS[self.kind]
        (value,) = form.unpack_from(self._values, row * form.size)
        return value if self._texts is None else self._texts[value]

    def _between(self, start: int, stop: int) -> tuple[NDArray[np.bool_] | None, NDArray[Any]]:
        """For some rows, which have a value (None if all), and the values: (rows,) each."""
        present = None if self._present is None else unpacked(self._present, start, stop)
        if self.kind == "boolean":
            return present, unpacked(self._values, start, stop)
        dtype = {"string": np.int32, "integer": np.int64}.get(self.kind, np.float64)
        return present, np.frombuffer(self._values, dtype, self._rows)[start:stop]


def bit(buffer: Any, place: int) -> bool:
    """One bit of a buffer of Arrow."""
    return bool(memoryview(buffer)[place >> 3] >> (place & 7) & 1)


def unpacked(buffer: Any, start: int, stop: int) -> NDArray[np.bool_]:
    """Some bits of a buffer of Arrow: (stop - start,)."""
    first = start // 8
    bits = np.frombuffer(buffer, np.uint8)[first : -(-stop // 8)]
    return np.unpackbits(bits, bitorder="little").view(np.bool_)[
        start - 8 * first : stop - 8 * first
    ]


def comparable(value: Value) -> Value:
    """A number as a float; it cannot overflow, and stored whole numbers stay exact."""
    if isinstance(value, (bool, str)):
        return value
    try:
        return float(value)
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


class Metadata:
    """The metadata of a shard."""

    def __init__(self, folder: Path, rows: int, fields: Mapping[str, str]) -> None:
        self._rows = rows
        self._columns: dict[str, Column] = {}
        if fields:
            table = Table(folder / METADATA, damaged)
            if len(table) != rows:
                raise table.fault(f"it has {len(table)} rows instead of {rows}")
            self._columns = {name: Column(table, name, kind) for name, kind in fields.items()}

    def passing(self, condition: Condition) -> NDArray[np.bool_]:
        """The rows for which a condition holds: (rows,)."""
        column = self._columns.get(condition.field)
        return np.zeros(self._rows, np.bool_) if column is None else column.passing(condition)

    def __getitem__(self, row: int) -> Mapping[str, Value]:
        """The metadata of one row; faster than `between`."""
        found = {name: column[row] for name, column in self._columns.items()}
        return {name: value for name, value in found.items() if value is not None} or NO_METADATA

    def between(self, start: int, stop: int) -> list[Mapping[str, Value]]:
        """The metadata of the rows from `start` to before `stop`."""
        rows: list[dict[str, Value]] = [{} for _ in range(stop - start)]
        for name, column in self._columns.items():
            for row, value in zip(rows, column.values(start, stop), strict=True):
                if value is not None:
                    row[name] = value
        return [row or NO_METADATA for row in rows]
