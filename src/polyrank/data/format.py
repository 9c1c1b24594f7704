"""What a format declares, and the beginning of a source that identifies it.

Knows no particular format.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from itertools import islice
from types import MappingProxyType
from typing import Any, Literal

from polyrank.data.files import base_suffix, read_text_start
from polyrank.data.hub import is_hub
from polyrank.data.rows import JSON_LINES, read_rows, separator_of
from polyrank.data.source import Source
from polyrank.errors import DataError
from polyrank.records import Example, LabelledPair, RetrievalSet

Kind = Literal["examples", "pairs", "retrieval"]
Found = Iterator[Example] | Iterator[LabelledPair] | RetrievalSet

NO_VALUES: Mapping[str, Any] = MappingProxyType({})
START = 1 << 16
"""Bytes that may identify a format."""
ROWS = 100
"""Rows that may identify a format."""


class Fit(IntEnum):
    """How well a source fits a format, if no mark at its beginning decides."""

    NOT = 0
    NAME = 1
    """Its name or its separators allow the format."""
    COMMON_COLUMNS = 2
    """Its columns have names that many data sets use."""
    COLUMNS = 3
    """Its columns are those of the format."""
    FIELDS = 4
    """Its columns are the format's fields, by their names or as they are mapped."""


class Beginning:
    """The beginning of a source, which identifies its format; reads only a few records.

    A source that is not a plain file, such as a pipe, is not read.
    """

    def __init__(self, source: Source) -> None:
        self.source = source
        self.path = source.path
        self.columns = source.columns
        in_memory = source.rows is not None
        self.suffix = "" if in_memory else base_suffix(source.path)
        self.is_folder = not in_memory and source.path.is_dir()
        self.is_hub = not in_memory and is_hub(source.path)
        self.is_rows = in_memory or self.is_hub or self.suffix == ".parquet"
        """Whether its rows have named columns, whatever they hold."""
        self.is_file = not in_memory and source.path.is_file()
        self.is_json_lines = self.suffix in JSON_LINES

    @cached_property
    def text(self) -> str:
        """The first bytes of a file, unless its name says that it holds rows."""
        if not self.is_file or self.is_rows or self.is_json_lines:
            return ""
        return read_text_start(self.path, START).decode(errors="replace")

    @property
    def first_line(self) -> str:
        """The first line of the text."""
        return self.text.partition("\n")[0].rstrip("\r")

    @property
    def cells(self) -> list[str]:
        """The first line, cut at tabs."""
        return self.first_line.split("\t")

    @property
    def has_cells(self) -> bool:
        """Whether the first line seems to have several cells."""
        is_json = self.text.startswith(("[", "{"))
        return not is_json and separator_of(self.path, self.first_line) is not None

    @cached_property
    def rows(self) -> list[Mapping[str, Any]]:
        """The first rows by column.

        A row that cannot be read is left out here; the reader reports it.
        """
        has_rows = self.is_rows or (self.is_file and self.is_json_lines)
        if not (has_rows or self.has_cells or self.text.startswith(("[", "{"))):
            return []
        rows: list[Mapping[str, Any]] = []
        try:
            rows.extend(row.values for row in islice(read_rows(self.source), ROWS))
        except DataError:
            if self.is_hub or (self.source.rows is not None and not rows):
                raise
        return rows

    @property
    def values(self) -> Mapping[str, Any]:
        """The first row by column; nothing if there is none."""
        return self.rows[0] if self.rows else NO_VALUES

    @property
    def names(self) -> set[str]:
        """The names of the columns."""
        return set(self.values)

    @property
    def is_mapped(self) -> bool:
        """Whether one of the columns is mapped to a field."""
        return not self.names.isdisjoint(self.columns.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """One format: what it is, how it is recognised and read, and what it gives."""

    name: str
    gives: Kind
    description: str
    read: Callable[[Source], Found]
    has_mark: Callable[[Beginning], bool] = lambda beginning: False
    """Whether the beginning of a source has a mark that no other format has."""
    fit: Callable[[Beginning], Fit] = lambda beginning: Fit.NOT
    """How well a source without any format's mark fits."""
    takes_columns: bool = False
    """Whether its columns may be named."""
