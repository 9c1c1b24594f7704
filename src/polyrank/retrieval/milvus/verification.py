"""Whether a collection is what it says of itself."""

from __future__ import annotations

import numpy as np

from polyrank.errors import IndexFolderError, StorageError
from polyrank.retrieval.milvus.collection import Collection
from polyrank.retrieval.milvus.rows import vector_of
from polyrank.retrieval.milvus.schema import IDENTIFIER, METRIC, VECTOR, Description

REBUILD = "Build the index again."


def verify(collection: Collection, description: Description) -> None:
    """Read everything and compare. Raises IndexFolderError at the first difference."""
    require_index(collection, description.index_type, IndexFolderError)
    state = collection.load_state()
    if state != "Loaded":
        raise different(collection, f"is not loaded but {state}")
    expected, found = collection.count(), 0
    width = 4 * description.dimension + 64
    for page in collection.pages("", [IDENTIFIER, VECTOR], width):
        found += len(page)
        matrix = np.stack([vector_of(row) for row in page]).astype(np.float64)
        bad = ~(np.sqrt((matrix**2).sum(axis=1)) <= description.norm)
        if matrix.shape[1] != description.dimension or bad.any():
            identifier = page[int(bad.argmax())][IDENTIFIER]
            raise different(collection, f"has a bad vector, of {identifier!r}")
    if found != expected:
        raise different(collection, f"counts {expected} candidates and has {found}")


def require_index(
    collection: Collection, index_type: str, error: type[StorageError] | type[IndexFolderError]
) -> None:
    """Raise an error if Milvus has another index than was asked for."""
    index = collection.index()
    found = (index.get("index_type"), index.get("metric_type"))
    if found != (index_type, METRIC):
        raise error(
            f"The collection {collection} has the index {found[0]} with {found[1]} instead of "
            f"{index_type} with {METRIC}.",
            REBUILD,
        )


def different(collection: Collection, how: str) -> IndexFolderError:
    """The error of a collection that is not what it says."""
    return IndexFolderError(f"The collection {collection} {how}.", REBUILD)
