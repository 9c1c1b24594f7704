"""Making a collection, and what may be replaced by it."""

from contextlib import suppress

from polyrank.errors import IndexFolderError, StorageError, UsageError
from polyrank.retrieval.milvus.collection import Collection
from polyrank.retrieval.milvus.schema import Description, MilvusIndex, read_description
from polyrank.retrieval.milvus.verification import require_index


def make(collection: Collection, description: Description, index: MilvusIndex) -> None:
    """Make a collection, ready to be searched; remove it again if anything fails."""
    try:
        collection.create(description, index)
        require_index(collection, index.index_type, StorageError)
        collection.load()
    except BaseException:
        with suppress(StorageError):
            collection.drop()
        raise


def require_replaceable(collection: Collection, *, overwrite: bool) -> None:
    """Raise UsageError for a collection that must not be removed."""
    if not overwrite:
        raise UsageError(
            f"There is a collection {collection} already.",
            "Choose another name, or have it replaced.",
        )
    try:
        read_description(collection.properties(), str(collection))
    except IndexFolderError as error:
        raise UsageError(
            f"The collection {collection} is no index that could be replaced.",
            "Choose another name, or remove it with Milvus's own tools.",
        ) from error
