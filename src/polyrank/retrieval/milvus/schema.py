"""What a collection is: its fields, its index, and what it says of itself.

A collection describes itself in its properties, which begin with `polyrank.`: the model's
fingerprint, the dimension, the attention, the kinds of the metadata fields. Milvus merges
properties name by name, so that a new field touches no other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast

from polyrank.config import require
from polyrank.errors import IndexFolderError, UsageError, nearest
from polyrank.scoring.poly import Attention

VERSION = 1
MOST_BYTES = 65_535
"""Bytes of UTF-8 that Milvus holds in a text, in an id, and in all metadata of a candidate."""

IDENTIFIER, TEXT, VECTOR, META = "id", "text", "vector", "$meta"
SPACE = "polyrank."
FIELD = SPACE + "field."
METRIC = "IP"

INDEX_TYPES: Mapping[str, tuple[str, ...]] = {
    "FLAT": (),
    "HNSW": ("M", "efConstruction"),
    "HNSW_SQ": ("M", "efConstruction", "sq_type"),
    "IVF_FLAT": ("nlist",),
    "IVF_SQ8": ("nlist",),
    "AUTOINDEX": (),
}
"""Every index type that embedded Milvus and servers both build, and its parameters. Embedded
Milvus takes any other word without a complaint and searches by brute force."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MilvusIndex:
    """The index of the vectors. Only under FLAT are exact searches more than a scan.

    `links` and `construction` are M and efConstruction of HNSW, `lists` is nlist of IVF.
    """

    index_type: str = "HNSW"
    links: int = 16
    construction: int = 200
    lists: int = 1024

    def __post_init__(self) -> None:
        if self.index_type not in INDEX_TYPES:
            raise UsageError(
                f"Milvus has no index type {self.index_type!r} that polyrank can use.",
                nearest(self.index_type.upper(), INDEX_TYPES),
            )
        require(2 <= self.links <= 2048, "links", "from 2 to 2048", self.links)
        require(self.construction >= 1, "construction", "at least 1", self.construction)
        require(1 <= self.lists <= 65536, "lists", "from 1 to 65536", self.lists)

    def parameters(self) -> dict[str, Any]:
        """The parameters of this type, as Milvus names them."""
        values = {
            "M": self.links,
            "efConstruction": self.construction,
            "sq_type": "SQ8",
            "nlist": self.lists,
        }
        return {name: values[name] for name in INDEX_TYPES[self.index_type]}


@dataclass(frozen=True, kw_only=True, slots=True)
class Description:
    """What a collection says of itself.

    `num_vectors` is m of the model's contexts, `lists` what the index was made with if its type
    has lists, `norm` a bound on the length of every candidate's vector, `kinds` the kind of each
    metadata field.
    """

    fingerprint: str
    dimension: int
    num_vectors: int
    attention: Attention
    index_type: str
    lists: int
    norm: float = 0.0
    kinds: Mapping[str, str] = field(default_factory=dict)

    def properties(self) -> dict[str, str]:
        """As properties of a collection."""
        return {
            SPACE + "version": str(VERSION),
            SPACE + "fingerprint": self.fingerprint,
            SPACE + "dimension": str(self.dimension),
            SPACE + "num_vectors": str(self.num_vectors),
            SPACE + "attention": self.attention,
            SPACE + "index_type": self.index_type,
            SPACE + "lists": str(self.lists),
            SPACE + "norm": repr(self.norm),
            **{FIELD + name: kind for name, kind in self.kinds.items()},
        }

    def widened(self, norm: float, kinds: Mapping[str, str]) -> Description:
        """With candidates of these kinds, whose vectors are at most this long."""
        return replace(self, norm=max(self.norm, norm), kinds={**self.kinds, **kinds})


def read_description(properties: Mapping[str, Any], place: str) -> Description:
    """Read what a collection says of itself. Raises IndexFolderError if it is none of ours."""
    remedy = "Name another collection, or build the index again."
    version = properties.get(SPACE + "version")
    if version is None:
        raise IndexFolderError(f"The collection {place} was not made by polyrank.", remedy)
    if str(version) != str(VERSION):
        raise IndexFolderError(
            f"The collection {place} has version {version}; this polyrank reads {VERSION}.",
            "Build the index again, or install a newer polyrank.",
        )
    try:
        return Description(
            fingerprint=str(properties[SPACE + "fingerprint"]),
            dimension=int(properties[SPACE + "dimension"]),
            num_vectors=int(properties[SPACE + "num_vectors"]),
            attention=cast("Attention", str(properties[SPACE + "attention"])),
            index_type=str(properties[SPACE + "index_type"]),
            lists=int(properties[SPACE + "lists"]),
            norm=float(properties[SPACE + "norm"]),
            kinds={
                name.removeprefix(FIELD): str(kind)
                for name, kind in properties.items()
                if name.startswith(FIELD)
            },
        )
    except (KeyError, ValueError) as error:
        raise IndexFolderError(
            f"The properties of the collection {place} are damaged: {error}.", remedy
        ) from error


def require_model(description: Description, fingerprint: str, place: str) -> None:
    """Raise IndexFolderError if the vectors were made by another model."""
    if description.fingerprint != fingerprint:
        raise IndexFolderError(
            f"The collection {place} was made by the model {description.fingerprint[:12]}, not by "
            f"{fingerprint[:12]}; its vectors mean nothing to another model.",
            "Give the model that made the index (--model), or build the index again.",
        )


def collection_schema(client: Any, dimension: int) -> Any:
    """The fields of a collection, as pymilvus describes them; metadata are dynamic fields."""
    from pymilvus import DataType

    schema = client.create_schema(auto_id=False, enable_dynamic_field=True)
    schema.add_field(IDENTIFIER, DataType.VARCHAR, is_primary=True, max_length=MOST_BYTES)
    schema.add_field(TEXT, DataType.VARCHAR, max_length=MOST_BYTES)
    schema.add_field(VECTOR, DataType.FLOAT_VECTOR, dim=dimension)
    return schema


def index_parameters(client: Any, index: MilvusIndex) -> Any:
    """The index of the vectors, as pymilvus describes it.

    The parameters go as one of the name `params`: embedded Milvus drops those that pymilvus
    sends one by one, and servers read both.
    """
    parameters = client.prepare_index_params()
    parameters.add_index(
        VECTOR,
        index_type=index.index_type,
        metric_type=METRIC,
        params={"params": index.parameters()},
    )
    return parameters
