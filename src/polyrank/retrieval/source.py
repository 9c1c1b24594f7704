"""Where candidates come from: a file, or any iterable.

Knows how candidates are named and how errors give their place; knows nothing of vectors.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, TypeAlias

from polyrank.data.candidates import lines_with_id, read_candidates
from polyrank.data.files import Blame
from polyrank.data.metadata import as_metadata
from polyrank.errors import DataError, UsageError
from polyrank.records import NO_METADATA, Candidate

Item: TypeAlias = str | Candidate | tuple[str, str] | tuple[str, str, Any]

Source: TypeAlias = str | Path | Iterable[Item]
"""A file of candidates, or an iterable of texts (named by their place, from 0), of pairs (id, text)
or of (id, text, metadata)."""


class Candidates:
    """The candidates of a source, checked one by one, and where each came from.

    `start` and `stop` select the candidates of a file at these places, `stop` excluded.
    """

    def __init__(self, source: Source, *, start: int = 0, stop: int | None = None) -> None:
        if isinstance(source, (bytes, Mapping)) or not isinstance(source, (str, Path, Iterable)):
            raise UsageError(
                f"candidates must be a file or a list of candidates, got {source!r:.40}.",
                "Give a path, or a list of texts, of pairs (id, text), or of Candidate.",
            )
        self._items: Iterable[Item] = () if isinstance(source, (str, Path)) else source
        self.path = Path(source) if isinstance(source, (str, Path)) else None
        self._places = start, stop

    def __iter__(self) -> Iterator[Candidate]:
        """Yield the candidates; a one-time iterable only once. Raises DataError."""
        if self.path is not None:
            yield from read_candidates(self.path, *self._places)
            return
        for place, item in enumerate(self._items):
            parts: Any = (str(place), item) if isinstance(item, str) else item
            if (
                not isinstance(parts, tuple)
                or len(parts) not in (2, 3)
                or not all(isinstance(part, str) for part in parts[:2])
            ):
                raise DataError(
                    f"The candidate at place {place} is {item!r}, not a text or a pair (id, text).",
                    "Give a list of texts, of pairs of texts, or of Candidate.",
                )
            metadata = parts[2] if len(parts) == 3 else NO_METADATA
            yield Candidate(parts[0], parts[1], as_metadata(metadata, self.at(place)))

    def at(self, place: int) -> Blame:
        """A function that makes errors about the candidate at a place."""
        return lambda problem, remedy: DataError(f"At place {place}: {problem}", remedy)

    def blame(self, identifier: str, problem: str, remedy: str) -> DataError:
        """An error about the candidate with this id; for a file it names the line."""
        if self.path is None:
            return DataError(f"The candidate {identifier!r}: {problem}", remedy)
        lines = lines_with_id(self.path, identifier)
        return DataError(problem, remedy, path=self.path, line=lines[0] if lines else None)

    def given_twice(self, identifier: str, rows: list[int]) -> DataError:
        """The error for an id given twice; it names the lines of a file, else the places from 0."""
        remedy = "Give every candidate an id of its own, or leave out all ids."
        lines = [] if self.path is None else lines_with_id(self.path, identifier)
        if len(lines) < 2:
            places = f"{rows[0]} and {rows[1]}"
            return DataError(
                f"The id {identifier!r} is given twice, at the places {places}.", remedy
            )
        problem = f"The id {identifier!r} is given twice, first in line {lines[0]}."
        return DataError(problem, remedy, path=self.path, line=lines[1])


def in_blocks(candidates: Iterable[Candidate], rows: int) -> Iterator[list[Candidate]]:
    """Cut into lists of `rows`; the last may be shorter."""
    iterator = iter(candidates)
    while block := list(islice(iterator, rows)):
        yield block
