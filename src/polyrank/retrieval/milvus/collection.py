"""One collection in Milvus: the requests of an index, each within the limits of a server.

Every request asks for the consistency level Strong, so that it sees all that was written before.
Knows requests; knows nothing of scores.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from polyrank.errors import IndexFolderError, StorageError, UsageError
from polyrank.retrieval.milvus.address import MilvusAddress
from polyrank.retrieval.milvus.connection import Connection, client_class
from polyrank.retrieval.milvus.expression import among, both, quoted
from polyrank.retrieval.milvus.schema import (
    IDENTIFIER,
    META,
    METRIC,
    TEXT,
    VECTOR,
    Description,
    MilvusIndex,
    Row,
    collection_schema,
    index_parameters,
    read_description,
    requests,
    vector_of,
)

CANDIDATE_FIELDS = (IDENTIFIER, TEXT, META)
REBUILD = "Build the index again."

MOST_HITS = 16_384
"""The most hits per search, and rows per page, that a server returns."""

HITS_AT_ONCE = 1 << 18
"""Hits of all searches of one request."""

IDS_AT_ONCE = 1000
ID_BYTES = 1 << 20
PAGE_BYTES = 32 << 20
STRONG = "Strong"


class Nearest(NamedTuple):
    """The result of one search: ids and their inner products, largest first."""

    ids: list[str]
    products: NDArray[np.float64]


class Collection:
    """A collection by its name. Raises StorageError whenever Milvus does not answer."""

    def __init__(self, connection: Connection, name: str) -> None:
        self.connection = connection
        self.name = name
        self._replaces: bool | None = None

    def __str__(self) -> str:
        return str(self.address)

    @property
    def address(self) -> MilvusAddress:
        """The address of the collection."""
        return replace(self.connection.address, collection=self.name)

    def exists(self) -> bool:
        """Whether there is such a collection."""
        return bool(self._ask("Looking for the collection", "has_collection"))

    def create(self, description: Description, index: MilvusIndex) -> None:
        """Make an empty collection, ready to be searched; remove it again if anything fails."""
        try:
            self._create(description, index)
            self.require_index(index.index_type, StorageError)
            self.load()
        except BaseException:
            with suppress(StorageError):
                self.drop()
            raise

    def _create(self, description: Description, index: MilvusIndex) -> None:
        """Make the collection and its index.

        The collection is empty, so nobody waits for the index: pymilvus would wait half a second,
        with a request that embedded Milvus does not know.
        """
        client = client_class()
        self._ask(
            "Creating the collection",
            "create_collection",
            schema=collection_schema(client, description.dimension),
            properties=description.properties(),
            consistency_level=STRONG,
        )
        parameters = index_parameters(client, index)
        self._ask("Creating the index", "create_index", parameters, sync=False)

    def load(self) -> None:
        """Load the collection into Milvus's memory, where it is searched."""
        self._ask("Loading the collection", "load_collection", timeout=self._long)

    def drop(self) -> None:
        """Remove the collection."""
        self._ask("Removing the collection", "drop_collection")

    def rename(self, name: str) -> None:
        """Give the collection another name, which must be free."""
        self._ask("Renaming the collection", "rename_collection", name)
        self.name = name

    def remove_index(self) -> None:
        """Remove the collection, if there is one. Raises UsageError if it is not an index."""
        if not self.exists():
            return
        try:
            self.description()
        except IndexFolderError as error:
            raise UsageError(
                f"The collection {self} exists and is not an index, so it is not replaced.",
                "Choose another name, or remove it with Milvus's own tools.",
            ) from error
        self.drop()

    def require_index(
        self, index_type: str, error: type[StorageError] | type[IndexFolderError]
    ) -> None:
        """Raise an error if Milvus made another index than requested."""
        index = self.index()
        found = (index.get("index_type"), index.get("metric_type"))
        if found != (index_type, METRIC):
            raise error(
                f"The collection {self} has the index {found[0]} with {found[1]} instead of "
                f"{index_type} with {METRIC}.",
                REBUILD,
            )

    def description(self) -> Description:
        """The description of the collection. Raises IndexFolderError if it is not an index."""
        return read_description(self.properties(), str(self))

    def verify(self, description: Description) -> None:
        """Read everything and compare. Raises IndexFolderError at the first difference."""
        self.require_index(description.index_type, IndexFolderError)
        state = self.load_state()
        if state != "Loaded":
            raise self.damaged(f"is not loaded but {state}")
        expected, found = self.count(), 0
        width = 4 * description.dimension + 64
        for page in self.pages("", [IDENTIFIER, VECTOR], width):
            found += len(page)
            matrix = np.stack([vector_of(row) for row in page]).astype(np.float64)
            bad = ~(np.sqrt((matrix**2).sum(axis=1)) <= description.norm)
            if matrix.shape[1] != description.dimension or bad.any():
                identifier = page[int(bad.argmax())][IDENTIFIER]
                raise self.damaged(f"has a bad vector, of {identifier!r}")
        if found != expected:
            raise self.damaged(f"counts {expected} candidates and has {found}")

    def damaged(self, how: str) -> IndexFolderError:
        """The error for a collection that differs from its description."""
        return IndexFolderError(f"The collection {self} {how}.", REBUILD)

    def properties(self) -> Mapping[str, Any]:
        """The properties of the collection."""
        answer = self._ask("Reading the collection", "describe_collection")
        return dict(answer.get("properties") or {})

    def set_properties(self, properties: Mapping[str, str]) -> None:
        """Set these properties and keep the others."""
        self._ask(
            "Describing the collection",
            "alter_collection_properties",
            properties=dict(properties),
        )

    def index(self) -> Mapping[str, Any]:
        """Milvus's description of the vector index."""
        return dict(self._ask("Reading the index", "describe_index", VECTOR) or {})

    def load_state(self) -> str:
        """The load state of the collection: `Loaded` if all is well."""
        state = self._ask("Reading the collection", "get_load_state")["state"]
        return str(getattr(state, "name", state))

    def count(self, expression: str = "") -> int:
        """The number of candidates that match an expression; of all, without one."""
        rows = self._query("Counting candidates", expression, ["count(*)"])
        return int(rows[0]["count(*)"])

    def search(
        self,
        vectors: NDArray[np.float32],
        limit: int,
        expression: str,
        parameters: Mapping[str, Any],
    ) -> list[Nearest]:
        """The `limit` candidates with the largest inner products, for each vector (n, d)."""
        found: list[Nearest] = []
        step = max(1, HITS_AT_ONCE // limit)
        for start in range(0, len(vectors), step):
            answer = self._ask(
                "Searching",
                "search",
                data=list(vectors[start : start + step]),
                anns_field=VECTOR,
                limit=limit,
                filter=expression,
                search_params={"metric_type": METRIC, "params": dict(parameters)},
                output_fields=[IDENTIFIER],
                consistency_level=STRONG,
            )
            for hits in answer:
                products = np.array([hit["distance"] for hit in hits], np.float64)
                found.append(Nearest([hit[IDENTIFIER] for hit in hits], products))
        return found

    def rows(self, identifiers: Sequence[str], fields: Sequence[str]) -> Iterator[Row]:
        """These fields of the candidates with these ids; unknown ids are skipped."""
        for block in id_blocks(identifiers):
            yield from self._query("Reading candidates", among(block), fields)

    def present(self, identifiers: Sequence[str]) -> set[str]:
        """Those of the ids that exist."""
        return {row[IDENTIFIER] for row in self.rows(identifiers, [IDENTIFIER])}

    def pages(
        self, expression: str, fields: Sequence[str], row_bytes: int
    ) -> Iterator[Sequence[Row]]:
        """Every candidate that matches an expression, by id, in pages.

        pymilvus has an iterator for this, but it fails on ids with quotes or backslashes.
        """
        rows = max(1, min(MOST_HITS, PAGE_BYTES // row_bytes))
        after = ""
        while True:
            page = self._query(
                "Reading candidates",
                both(after, expression),
                fields,
                limit=rows,
                iterator="True",
                reduce_stop_for_best="True",
            )
            if page:
                yield page
                after = f"{IDENTIFIER} > {quoted(page[-1][IDENTIFIER])}"
            if len(page) < rows:
                return

    def write(self, rows: Iterable[Row]) -> None:
        """Write rows; a row replaces the one with the same id.

        Embedded Milvus merges an upserted row with the old one and would keep its metadata, but an
        inserted row replaces it. On a server it is the other way round.
        """
        for block in requests(rows):
            method = "insert" if self._insert_replaces() else "upsert"
            answer = self._ask("Writing candidates", method, list(block))
            written = answer.get("insert_count", answer.get("upsert_count"))
            if written != len(block):
                raise StorageError(
                    f"{self} took {written} of {len(block)} candidates.",
                    "Read the log of the Milvus server, then build the index again.",
                )

    def delete(self, identifiers: Sequence[str]) -> None:
        """Delete the candidates with these ids."""
        for block in id_blocks(identifiers):
            self._ask("Deleting candidates", "delete", filter=among(block))

    def compact(self) -> None:
        """Have Milvus flush its memory to disk and merge what it has written."""
        self._ask("Flushing the collection", "flush", timeout=self._long)
        self._ask("Compacting the collection", "compact", timeout=self._long)

    @property
    def _long(self) -> float:
        return self.connection.timeouts.collection

    def _insert_replaces(self) -> bool:
        if self._replaces is None:
            work = f"Reading the version of {self}"
            version = self.connection.ask(work, "get_server_version")
            self._replaces = "lite" in str(version).lower()
        return self._replaces

    def _query(
        self, work: str, expression: str, fields: Sequence[str], **options: Any
    ) -> Sequence[Row]:
        rows: Sequence[Row] = self._ask(
            work,
            "query",
            filter=expression,
            output_fields=list(fields),
            consistency_level=STRONG,
            **options,
        )
        return rows

    def _ask(self, work: str, method: str, *arguments: Any, **options: Any) -> Any:
        work = f"{work} in {self}"
        return self.connection.ask(work, method, self.name, *arguments, **options)


def id_blocks(identifiers: Sequence[str]) -> Iterator[list[str]]:
    """Cut ids into lists that fit into an expression each."""
    block: list[str] = []
    size = 0
    for identifier in identifiers:
        weight = len(identifier.encode("utf-8", "surrogatepass")) + 4
        if block and (len(block) == IDS_AT_ONCE or size + weight > ID_BYTES):
            yield block
            block, size = [], 0
        block.append(identifier)
        size += weight
    if block:
        yield block
