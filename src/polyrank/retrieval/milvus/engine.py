"""The engine of an index whose candidates lie in a collection of Milvus.

Ids, texts, metadata and vectors are in Milvus; scores are computed here. One process at a time may
write to a collection; any number may search it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import torch
from torch import Tensor

from polyrank.errors import DataError, IndexFolderError, UsageError, not_numbers
from polyrank.records import Candidate, Hit
from polyrank.retrieval.engine import Encode, Found, SearchReport
from polyrank.retrieval.filters import Filter, require_fields
from polyrank.retrieval.milvus.addition import Addition
from polyrank.retrieval.milvus.address import MilvusAddress
from polyrank.retrieval.milvus.collection import CANDIDATE_FIELDS, Collection
from polyrank.retrieval.milvus.connection import Connection, Timeouts
from polyrank.retrieval.milvus.expression import expression
from polyrank.retrieval.milvus.schema import (
    IDENTIFIER,
    MOST_BYTES,
    TEXT,
    Description,
    MilvusIndex,
    candidate_of,
    metadata_of,
    require_model,
)
from polyrank.retrieval.milvus.search import Outcome, Searcher
from polyrank.retrieval.source import Candidates
from polyrank.scoring.poly import Attention

CANDIDATE_BYTES = 2048
"""The assumed bytes of a candidate's text and metadata when pages are cut."""


class MilvusEngine:
    """A collection of candidates. Get one by `create` or `open`; close it."""

    def __init__(
        self, connection: Connection, collection: Collection, description: Description
    ) -> None:
        self._connection = connection
        self._collection = collection
        self._description = description
        self._state = (description, -1)

    @classmethod
    def create(
        cls,
        address: MilvusAddress,
        *,
        fingerprint: str,
        dimension: int,
        num_vectors: int,
        attention: Attention = "basic",
        index: MilvusIndex | None = None,
        timeouts: Timeouts | None = None,
    ) -> MilvusEngine:
        """Make an empty collection for the vectors of a model, in place of an index of its name.

        `timeouts` come from the environment by default. Raises UsageError if something else has the
        name, StorageError if Milvus does not answer or makes another index.
        """
        index = index or MilvusIndex()
        description = Description(
            fingerprint=fingerprint,
            dimension=dimension,
            num_vectors=num_vectors,
            attention=attention,
            index_type=index.index_type,
            lists=index.lists,
        )
        connection = Connection(address, timeouts)
        try:
            collection = Collection(connection, address.collection)
            collection.remove_index()
            collection.create(description, index)
        except BaseException:
            connection.close()
            raise
        return cls(connection, collection, description)

    @classmethod
    def open(
        cls,
        address: MilvusAddress,
        *,
        fingerprint: str | None = None,
        timeouts: Timeouts | None = None,
    ) -> MilvusEngine:
        """Open a collection; if a fingerprint is given, that model must have made it.

        Raises IndexFolderError if there is none or if another model made it, StorageError if
        Milvus does not answer.
        """
        if address.path is not None and not address.path.exists():
            raise IndexFolderError(f"There is no {address.path}.", "Check the path.")
        connection = Connection(address, timeouts)
        try:
            collection = Collection(connection, address.collection)
            if not collection.exists():
                raise IndexFolderError(
                    f"There is no collection {address}.", "Check the name, or build the index."
                )
            description = collection.description()
            if fingerprint is not None:
                require_model(description, fingerprint, str(collection))
            collection.load()
        except BaseException:
            connection.close()
            raise
        return cls(connection, collection, description)

    @property
    def manifest(self) -> None:
        """None: a collection has no manifest."""

    @property
    def num_bytes(self) -> None:
        """None: the candidates are in Milvus."""

    def publish(self, name: str) -> None:
        """Give the complete collection another name, replacing an index of that name.

        Raises UsageError if something else has the name. Between two requests there is no index of
        that name, but the old one is removed only when the new one is complete.
        """
        Collection(self._connection, name).remove_index()
        self._collection.rename(name)
        self._collection.load()

    def __len__(self) -> int:
        return self._collection.count()

    def __iter__(self) -> Iterator[Candidate]:
        for page in self._collection.pages("", CANDIDATE_FIELDS, CANDIDATE_BYTES):
            yield from map(candidate_of, page)

    def get(self, identifier: str) -> Candidate | None:
        """The candidate with this id, if there is one."""
        if not is_storable(identifier):
            return None
        rows = list(self._collection.rows([identifier], CANDIDATE_FIELDS))
        return candidate_of(rows[0]) if rows else None

    def present(self, identifiers: Iterable[str]) -> set[str]:
        """Those of the ids that candidates have."""
        return self._collection.present(list(filter(is_storable, dict.fromkeys(identifiers))))

    def search(
        self,
        contexts: Tensor,
        top_k: int,
        *,
        exact: bool,
        filter: Filter | None,
        metadata: bool = False,
    ) -> list[Found]:
        """The best `top_k` of the candidates that pass the filter, for each context (B, m, d).

        An exact search is certified for the candidates as each request saw them. Raises
        UsageError for a filter on a field that no candidate has or a vector of another dimension,
        ModelError if scores are not numbers, IndexFolderError if another model has made the
        collection anew, StorageError if Milvus does not answer.
        """
        contexts = contexts.detach().to("cpu", torch.float32)
        require_contexts(contexts, self._description.dimension)
        self._read_description()  # another process may have added longer vectors or fields
        if filter is not None:
            require_fields(filter, self._description.kinds)
        passing = "" if filter is None else expression(filter)
        if passing is False or not len(contexts):
            nothing = SearchReport(strategy="scan", num_candidates=0, num_scored=0, certified=True)
            return [Found([], nothing) for _ in contexts]
        passing = "" if passing is True else passing
        searcher = Searcher(self._collection, self._description, passing)
        return self._with_texts(searcher.search(contexts, top_k, exact=exact), metadata)

    def _with_texts(self, ranked: Sequence[Outcome], metadata: bool) -> list[Found]:
        """Hits with their texts; candidates deleted meanwhile are left out."""
        wanted = {identifier for ranking, _ in ranked for _, identifier in ranking.best}
        fields = CANDIDATE_FIELDS if metadata else (IDENTIFIER, TEXT)
        rows = {row[IDENTIFIER]: row for row in self._collection.rows(sorted(wanted), fields)}
        found = []
        for ranking, report in ranked:
            there = [(score, rows[name]) for score, name in ranking.best if name in rows]
            hits = [Hit(row[IDENTIFIER], score, row[TEXT]) for score, row in there]
            asked = [metadata_of(row) for _, row in there] if metadata else ()
            found.append(Found(hits, report, asked))
        return found

    def add(self, candidates: Iterable[Candidate], encode: Encode, *, replace: bool) -> int:
        """Add candidates and return their number; if anything fails, remove those added.

        Raises DataError for an id given twice, for one already in the index unless `replace` is
        on, and for a candidate that Milvus cannot hold; ModelError for vectors that are not
        numbers; StorageError if Milvus does not answer. Errors name the line of a candidate if
        `Candidates` knows its file. `addition` says what a killed process leaves.
        """
        if not isinstance(candidates, Candidates):
            candidates = Candidates(candidates)
        with Addition(self._collection, candidates, encode, replace=replace) as addition:
            count = addition.run()
        self._read_description()
        return count

    def delete(self, identifiers: Sequence[str]) -> int:
        """Delete candidates by id and return their number.

        Raises DataError for an unknown id, and deletes nothing then.
        """
        wanted = list(dict.fromkeys(identifiers))
        there = self.present(wanted)
        unknown = [identifier for identifier in wanted if identifier not in there]
        if unknown:
            more = f" and {len(unknown) - 1} more" if len(unknown) > 1 else ""
            raise DataError(
                f"The index has no candidate {unknown[0]!r}{more}.",
                "Check the ids; nothing was deleted.",
            )
        self._collection.delete(wanted)
        return len(wanted)

    def compact(self) -> None:
        """Have Milvus flush its memory to disk, index it and merge what it has written."""
        self._collection.compact()

    def refresh(self) -> bool:
        """Whether others have changed the collection since the last call.

        Judged by its number of candidates and its fields. Searches see what others wrote even
        without this.
        """
        self._read_description()
        before, self._state = self._state, (self._description, len(self))
        return before != self._state

    def _read_description(self) -> None:
        """Read it again. Raises IndexFolderError if another model has made the collection anew."""
        description = self._collection.description()
        if description.fingerprint != self._description.fingerprint:
            raise IndexFolderError(
                f"The collection {self._collection} was built again by another model since it was "
                "opened.",
                "Open the index again.",
            )
        self._description = description

    def verify(self) -> None:
        """Read everything and compare it with the collection's description.

        Milvus has no checksums to compare with. Raises IndexFolderError at the first difference.
        """
        self._read_description()
        self._collection.verify(self._description)

    def close(self) -> None:
        """Close the connection; stop embedded Milvus if nobody in this process uses the file."""
        self._connection.close()


def require_contexts(contexts: Tensor, dimension: int) -> None:
    """Raise an error for contexts that cannot be compared with the candidates."""
    if contexts.shape[-1] != dimension:
        raise UsageError(
            f"The index holds vectors of {dimension} dimensions, got contexts of "
            f"{contexts.shape[-1]}.",
            "Use the model that the index was made with.",
        )
    if not contexts.isfinite().all():
        raise not_numbers("The scores of a context")


def is_storable(identifier: str) -> bool:
    """Whether a candidate in Milvus can have this id."""
    try:
        return len(identifier.encode()) <= MOST_BYTES
    except UnicodeEncodeError:
        return False
