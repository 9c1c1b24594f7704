"""The schema of a collection: its fields, index and description, and candidates as rows.

A collection describes itself in its properties, which begin with `polyrank.`: the model's
fingerprint, the dimension, the attention, the kinds of the metadata fields. Milvus merges
properties by name, so a new field changes no other. Knows nothing of connections.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from polyrank.config import require, require_choice
from polyrank.errors import IndexFolderError, ModelError, UsageError, not_numbers
from polyrank.records import Candidate, Value
from polyrank.retrieval.milvus.address import parse_numbers
from polyrank.retrieval.milvus.expression import PREFIX
from polyrank.retrieval.store.metadata import Blame
from polyrank.scoring.poly import Attention

VERSION = 1
MOST_BYTES = 65_535
"""The most bytes of UTF-8 in a text, in an id, and in all metadata of a candidate."""

IDENTIFIER, TEXT, VECTOR, META = "id", "text", "vector", "$meta"
SPACE = "polyrank."
FIELD = SPACE + "field."
METRIC = "IP"

MOST_ROWS = 2048
"""Rows of a request."""

REQUEST_BYTES = 16 << 20
"""Approximate bytes of a request; a server refuses 64 MB."""

ROW_OVERHEAD = 64

Row = Mapping[str, Any]

INDEX_TYPES: Mapping[str, tuple[str, ...]] = {
    "FLAT": (),
    "HNSW": ("M", "efConstruction"),
    "HNSW_SQ": ("M", "efConstruction", "sq_type"),
    "IVF_FLAT": ("nlist",),
    "IVF_SQ8": ("nlist",),
    "AUTOINDEX": (),
}
"""The index types that both embedded Milvus and servers build, with their parameters. Embedded
Milvus silently accepts any other word and searches by brute force."""


SETTINGS = {"M": "links", "efConstruction": "construction", "nlist": "lists"}
"""The parameters that can be chosen, and the fields of MilvusIndex that hold them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MilvusIndex:
    """The index of the vectors. Only FLAT makes exact searches faster than a scan.

    `links` and `construction` are M and efConstruction of HNSW, `lists` is nlist of IVF. A type
    ignores what it does not have.
    """

    index_type: str = "HNSW"
    links: int = 16
    construction: int = 200
    lists: int = 1024

    def __post_init__(self) -> None:
        require_choice("Milvus index type", self.index_type, INDEX_TYPES)
        require(2 <= self.links <= 2048, "M", "from 2 to 2048", self.links)
        require(self.construction >= 1, "efConstruction", "at least 1", self.construction)
        require(1 <= self.lists <= 65536, "nlist", "from 1 to 65536", self.lists)

    @classmethod
    def parse(cls, text: str) -> MilvusIndex:
        """Read `TYPE` or `TYPE:NAME=NUMBER,…`, with Milvus's names: `HNSW:M=32,efConstruction=400`.

        Raises UsageError for an unknown type, a parameter that it does not have, or a bad value.
        """
        index_type, _, rest = text.partition(":")
        require_choice("Milvus index type", index_type, INDEX_TYPES)
        known = [name for name in INDEX_TYPES[index_type] if name in SETTINGS]
        given = parse_numbers(rest, where=text)
        for name in given:
            if not known:
                raise UsageError(f"The Milvus index {index_type} has no parameters.", "Name none.")
            require_choice(f"parameter of {index_type}", name, known)
        for name, value in given.items():
            require(isinstance(value, int), name, "a whole number", value)
        values = {SETTINGS[name]: int(value) for name, value in given.items()}
        return cls(index_type=index_type, **values)

    def parameters(self) -> dict[str, Any]:
        """The parameters of this type, as Milvus names them."""
        values: dict[str, Any] = {name: getattr(self, own) for name, own in SETTINGS.items()}
        return {name: values.get(name, "SQ8") for name in INDEX_TYPES[self.index_type]}


@dataclass(frozen=True, kw_only=True, slots=True)
class Description:
    """The description of a collection.

    `num_vectors` is m of the model's contexts, `lists` the number of lists if the index has any,
    `norm` an upper bound of the vectors' lengths, `kinds` the kind of each metadata field.
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
        """The description with these kinds of fields, and vectors of at most this length."""
        return replace(self, norm=max(self.norm, norm), kinds={**self.kinds, **kinds})


def read_description(properties: Mapping[str, Any], place: str) -> Description:
    """Read a collection's description. Raises IndexFolderError if it is not an index."""
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

    The parameters are sent as one named `params`: embedded Milvus drops those that pymilvus sends
    one by one, and servers read both.
    """
    parameters = client.prepare_index_params()
    parameters.add_index(
        VECTOR,
        index_type=index.index_type,
        metric_type=METRIC,
        params={"params": index.parameters()},
    )
    return parameters


def require_storable(candidate: Candidate, blame: Blame) -> None:
    """Raise the error of `blame` for a candidate that Milvus cannot hold."""
    remedy = "Shorten it, leave the candidate out, or index into a folder, which has no such limit."
    for name, text in (("id", candidate.id), ("text", candidate.text)):
        try:
            size = len(text.encode())
        except UnicodeEncodeError as error:
            raise blame(
                candidate.id,
                f"The {name} holds half of a surrogate pair at character {error.start}.",
                "Remove it, or write the whole pair.",
            ) from error
        require_size(candidate.id, f"The {name} has", size, blame, remedy)
    plain = json.dumps(dynamic(candidate.metadata), ensure_ascii=False)
    require_size(candidate.id, "The metadata have", len(plain.encode()), blame, remedy)


def require_size(identifier: str, what: str, size: int, blame: Blame, remedy: str) -> None:
    """Raise the error of `blame` for something too long."""
    if size > MOST_BYTES:
        problem = f"{what} {size} bytes; Milvus holds at most {MOST_BYTES}."
        raise blame(identifier, problem, remedy)


def dynamic(metadata: Mapping[str, Value]) -> dict[str, Value]:
    """Metadata as dynamic fields of a row."""
    return {PREFIX + field: value for field, value in metadata.items()}


def metadata_of(row: Row) -> dict[str, Value]:
    """The metadata in a row."""
    return {
        name.removeprefix(PREFIX): value for name, value in row.items() if name.startswith(PREFIX)
    }


def candidate_of(row: Row) -> Candidate:
    """A row as a candidate."""
    return Candidate(row[IDENTIFIER], row[TEXT], metadata_of(row))


def vector_of(row: Row) -> NDArray[np.float32]:
    """The vector (d,) in a row."""
    return np.asarray(row[VECTOR], np.float32)


def encoded_rows(
    candidates: Sequence[Candidate], vectors: Tensor, dimension: int
) -> tuple[list[Row], float]:
    """Rows of candidates and their vectors (N, d), and the length of the longest vector.

    Raises ModelError for vectors of another shape or with components that are not numbers.
    """
    matrix = vectors.detach().cpu().float().numpy()
    if matrix.shape != (len(candidates), dimension):
        raise ModelError(
            f"The model gave vectors of shape {tuple(matrix.shape)} for {len(candidates)} texts, "
            f"not {(len(candidates), dimension)}.",
            "Use the model that the index was made with.",
        )
    finite = np.isfinite(matrix).all(axis=1)
    if not finite.all():
        bad = candidates[int(np.argmin(finite))]
        raise not_numbers(f"Components of the vector of the candidate {bad.id!r}")
    rows: list[Row] = [
        {IDENTIFIER: c.id, TEXT: c.text, VECTOR: vector, **dynamic(c.metadata)}
        for c, vector in zip(candidates, matrix, strict=True)
    ]
    return rows, longest(matrix)


def longest(matrix: NDArray[np.float32]) -> float:
    """The length of the longest row, rounded up to a power of two so that it seldom changes."""
    length = float(np.sqrt((matrix.astype(np.float64) ** 2).sum(axis=1).max(initial=0.0)))
    return 2.0 ** math.ceil(math.log2(length)) if length else 0.0


def requests(rows: Iterable[Row]) -> Iterator[list[Row]]:
    """Cut rows into lists that each fit into a request."""
    block: list[Row] = []
    size = 0
    for row in rows:
        weight = row_bytes(row)
        if block and (len(block) == MOST_ROWS or size + weight > REQUEST_BYTES):
            yield block
            block, size = [], 0
        block.append(row)
        size += weight
    if block:
        yield block


def row_bytes(row: Row) -> int:
    """The approximate bytes of a row in a request."""
    size = ROW_OVERHEAD
    for name, value in row.items():
        size += len(name) + (4 * len(value) if name == VECTOR else 4 * len(str(value)))
    return size
