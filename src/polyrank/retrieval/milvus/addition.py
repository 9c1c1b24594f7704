"""Add candidates to a collection, and remove them again if anything fails.

Milvus has no transactions, so others see the candidates arrive block by block. If anything fails
while this process lives, even a bad candidate in the middle of a file, the addition is undone: new
candidates are deleted, and replaced ones are written back from copies in memory. A killed process
leaves what it has written: whole candidates, as many as Milvus acknowledged.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from types import TracebackType

from polyrank.errors import DataError, PolyrankError, StorageError
from polyrank.progress import bar
from polyrank.records import Candidate
from polyrank.retrieval.engine import Encode
from polyrank.retrieval.milvus.collection import CANDIDATE_FIELDS, Collection
from polyrank.retrieval.milvus.schema import (
    IDENTIFIER,
    MOST_ROWS,
    VECTOR,
    Description,
    Row,
    encoded_rows,
    require_storable,
)
from polyrank.retrieval.source import Candidates
from polyrank.retrieval.store.metadata import FieldKinds


class Addition:
    """One addition, as a context manager: an error inside undoes everything."""

    def __init__(
        self, collection: Collection, candidates: Candidates, encode: Encode, *, replace: bool
    ) -> None:
        self.collection = collection
        self.encode = encode
        self.replace = replace
        self.candidates = candidates
        self.places: dict[str, int] = {}
        self.written: list[str] = []
        self.replaced: list[Row] = []

    def __enter__(self) -> Addition:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is not None and (self.written or self.replaced):
            self.undo(error)

    def run(self) -> int:
        """Add all and return their number. Raises DataError, ModelError, StorageError."""
        iterator = iter(self.candidates)
        with bar("Encoding candidates", unit="candidates") as task:
            while block := list(islice(iterator, MOST_ROWS)):
                with task.folding():
                    self.add_block(block)
                task.reach(len(self.places))
        return len(self.places)

    def add_block(self, block: Sequence[Candidate]) -> None:
        """Check and encode some candidates, then write them."""
        for candidate in block:
            place = len(self.places)
            if candidate.id in self.places:
                raise self.candidates.given_twice(candidate.id, [self.places[candidate.id], place])
            require_storable(candidate, self.blame)
            self.places[candidate.id] = place
        old = self.old_rows([candidate.id for candidate in block])
        description = self.collection.description()
        kinds = FieldKinds(description.kinds, self.blame)
        for candidate in block:
            kinds.check(candidate)
        vectors = self.encode([candidate.text for candidate in block])
        rows, norm = encoded_rows(block, vectors, description.dimension)
        self.describe(description, description.widened(norm, kinds.known))
        there = {row[IDENTIFIER] for row in old}
        self.replaced += old
        self.written += [row[IDENTIFIER] for row in rows if row[IDENTIFIER] not in there]
        self.collection.write(rows)

    def old_rows(self, identifiers: Sequence[str]) -> list[Row]:
        """The rows that will be replaced. Raises DataError if there are any without `replace`."""
        fields = [*CANDIDATE_FIELDS, VECTOR] if self.replace else [IDENTIFIER]
        rows = list(self.collection.rows(identifiers, fields))
        if rows and not self.replace:
            identifier = rows[0][IDENTIFIER]
            raise self.blame(
                identifier,
                f"The id {identifier!r} is in the index already.",
                "Give another id, or replace the candidates that are there.",
            )
        return rows

    def blame(self, identifier: str, problem: str, remedy: str) -> DataError:
        """An error about a candidate; a very long id is cut unless it is needed to find a line."""
        named = identifier if self.candidates.path else identifier[:80]
        return self.candidates.blame(named, problem, remedy)

    def describe(self, before: Description, after: Description) -> None:
        """Have the collection describe the candidates before they are written."""
        if after != before:
            known = before.properties()
            self.collection.set_properties(
                {
                    name: value
                    for name, value in after.properties().items()
                    if known.get(name) != value
                }
            )

    def undo(self, error: BaseException) -> None:
        """Undo everything. Raises StorageError if Milvus refuses."""
        try:
            self.collection.delete(self.written)
            self.collection.write(self.replaced)
        except PolyrankError as failure:
            what = error.problem if isinstance(error, PolyrankError) else f"{error!r}"
            raise StorageError(
                f"Adding failed ({what}), and up to {len(self.places)} candidates could not be "
                f"taken out again: {failure.problem}",
                "When Milvus answers again, add them once more and replace those that are there.",
            ) from error
