"""What the reader of a format gets: where the records are, and which of them are wanted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from polyrank.data.files import Blame
from polyrank.data.memory import MemoryRows

NO_COLUMNS: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, kw_only=True)
class Source:
    """One file, folder or hub data set, or rows in memory, as a reader takes it."""

    path: Path
    """Where it is; for rows in memory, what errors call them."""
    rows: MemoryRows | None = None
    """The rows, if they are in memory; then there is nothing at the path."""
    split: str | None = None
    """The split of a source that has several, such as `train`; None for the usual one."""
    training: bool = False
    """Whether the usual split is the one to train on or the one to evaluate on."""
    columns: Mapping[str, str] = field(default_factory=lambda: NO_COLUMNS)
    """From the name of a field, such as `context`, to the name of the column that holds it."""
    found: dict[str, str] = field(default_factory=dict)
    """From the name of a field to the column that was found for it; readers record it here."""
    passed_over: Counter[str] = field(default_factory=Counter)
    """How many rows were skipped, by reason; readers count here."""
    first_passed: dict[str, str] = field(default_factory=dict)
    """The place of the first row that was skipped, by reason, if known."""

    def pass_over(self, reason: str, place: str) -> None:
        """Take note of a row that is left out."""
        self.passed_over[reason] += 1
        self.first_passed.setdefault(reason, place)


class Identifiers:
    """The ids that were seen, each with its place; a repeated id is an error."""

    def __init__(self) -> None:
        self.places: dict[str, str] = {}

    def add(self, identifier: str, place: str, blame: Blame) -> None:
        """Record an id. Raises the error that `blame` makes if it is known."""
        if identifier in self.places:
            raise blame(
                f"The id {identifier!r} is also that of {self.places[identifier]}.",
                "Give each its own id; if several files were joined, renumber them.",
            )
        self.places[identifier] = place
