"""Records and rows that are in memory or come one by one: lists, data sets, generators.

A row is a mapping by column, or a tuple: (context, response), (context, response, negative, …) or
(first text, second text, label). Knows nothing of what the columns mean.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from numbers import Real
from pathlib import Path
from typing import Any, Protocol

from polyrank.data.files import Blame, at_place
from polyrank.errors import DataError
from polyrank.records import Example, LabelledPair, RetrievalSet

START = 100
"""Rows that are kept to detect the format before they are read."""
ACCEPTED = 'Give [("a context", "its response"), …], [{"context": …, "response": …}, …] or a path.'
RECORDS = (Example, LabelledPair)


class SizedRows(Protocol):
    """Rows by number, as in a torch data set."""

    def __len__(self) -> int:
        """How many rows there are."""
        ...

    def __getitem__(self, place: int, /) -> Any:
        """The row at a place, from 0."""
        ...


class MemoryRows:
    """What a list, a data set or a generator yields. Rows that identify the format are reread."""

    def __init__(self, data: Any, name: str, limit: int | None = None) -> None:
        """`name` is what errors call the data; `limit` is how many items are read at most."""
        self.name = name
        self.features: Mapping[str, Any] = getattr(data, "features", None) or {}
        self.start: list[Any] = []
        self.rest = islice(items_of(data, name), limit)

    def __iter__(self) -> Iterator[Any]:
        yield from self.start
        for item in self.rest:
            if len(self.start) < START:
                self.start.append(item)
            yield item

    def records(self) -> list[Example] | list[LabelledPair] | None:
        """The items, if they are already records; None if they are rows.

        Raises DataError for records of two kinds, or for anything else among them.
        """
        kind = next((type(item) for item in self), None)
        if kind not in RECORDS:
            return None
        found: list[Any] = []
        for number, item in enumerate(self, start=1):
            if type(item) is not kind:
                raise at_row(self.name, number)(
                    f"The record is {described(item)}, and those before it are of the kind "
                    f"{kind.__name__}.",
                    "Give records of one kind.",
                )
            found.append(checked(item, number, self.name))
        return found

    def values(self) -> Iterator[dict[str, Any]]:
        """Yield the values of each row by column. Raises DataError for anything else."""
        for number, item in enumerate(self, start=1):
            values = values_of(item)
            if values is None:
                raise at_row(self.name, number)(
                    f"The row is {described(item)}; a mapping or a tuple was expected.",
                    ACCEPTED,
                )
            yield values


def checked(record: Any, number: int, name: str) -> Any:
    """A record whose texts are texts; turns that are a list become a tuple. Raises DataError."""
    is_pair = isinstance(record, LabelledPair)
    fields = ("first", "second") if is_pair else ("context", "response")
    first, second = (getattr(record, field) for field in fields)
    if isinstance(first, list):
        first = tuple(first)
        record = replace(record, **{fields[0]: first})
    turns = first if isinstance(first, tuple) and first else (first,)
    for field, text in ((fields[0], turns), (fields[1], (second,))):
        wrong = [one for one in text if not isinstance(one, str)]
        if wrong:
            raise at_row(name, number)(
                f"The field {field!r} must be a text, got {described(wrong[0])}.",
                "Give a text, or a list of turns as the context.",
            )
    return record


def at_row(name: str, number: int) -> Blame:
    """A maker of errors that name a row of data in memory."""
    return at_place(Path(name), f"row {number}")


def is_streamed(data: Any) -> bool:
    """Whether the data come one by one, so that nobody knows how many there are."""
    return (
        not isinstance(data, (str, Path))
        and not isinstance(data, RetrievalSet)
        and not hasattr(data, "__len__")
    )


def name_of(data: object) -> str | None:
    """What reports call some data: their path; None for data in memory."""
    return str(data) if isinstance(data, (str, Path)) else None


def items_of(data: Any, name: str) -> Iterator[Any]:
    """Yield what the data hold. Raises DataError for what holds nothing, such as a number."""
    if isinstance(data, Mapping):
        raise DataError(
            f"{name} is a single mapping; a list was expected.", "Write [{…}] for one row."
        )
    if isinstance(data, RECORDS):
        raise DataError(
            f"{name} is a single record; a list was expected.", "Write [record] for one."
        )
    if isinstance(data, Iterable):
        yield from data
    elif hasattr(data, "__len__") and hasattr(data, "__getitem__"):  # a data set of torch
        yield from (data[place] for place in range(len(data)))
    else:
        raise DataError(
            f"{name} is a value of the type {type(data).__name__}, which holds no rows.", ACCEPTED
        )


def values_of(item: Any) -> dict[str, Any] | None:
    """A row by column, with lists instead of tuples; None for anything that is not a row."""
    if isinstance(item, Mapping):
        return {str(name): as_list(value) for name, value in item.items()}
    if not isinstance(item, (tuple, list)) or len(item) < 2:
        return None
    first, second, *rest = map(as_list, item)
    if not rest:
        return {"context": first, "response": second}
    if len(rest) == 1 and isinstance(rest[0], Real):
        return {"first": first, "second": second, "label": rest[0]}
    negatives = rest[0] if len(rest) == 1 and isinstance(rest[0], list) else rest
    return {"context": first, "response": second, "negatives": negatives}


def as_list(value: Any) -> Any:
    """A tuple as a list, as files have it; other values as they are."""
    return list(value) if isinstance(value, tuple) else value


def described(item: Any) -> str:
    """What an item is, in a few words."""
    if isinstance(item, str):
        return f"the single text {item[:40]!r}"
    return f"a value of the type {type(item).__name__}"


def splits_of(data: Any) -> Mapping[str, Any] | None:
    """The splits of a data set that has several, by name; None for anything else."""
    if not isinstance(data, Mapping) or not data:
        return None
    is_set = all(hasattr(part, "features") and isinstance(part, Iterable) for part in data.values())
    return data if is_set else None
