"""Candidates as rows of a collection: checked against what Milvus can hold, and cut into requests.

Knows rows; knows nothing of connections.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from polyrank.errors import ModelError
from polyrank.records import Candidate, Value
from polyrank.retrieval.milvus.expression import PREFIX
from polyrank.retrieval.milvus.schema import IDENTIFIER, MOST_BYTES, TEXT, VECTOR
from polyrank.retrieval.store.columns import Blame

MOST_ROWS = 2048
"""Rows of a request."""

REQUEST_BYTES = 16 << 20
"""Bytes of a request, nearly; a server refuses one of 64 MB."""

ROW_OVERHEAD = 64

Row = Mapping[str, Any]


def require_storable(candidate: Candidate, blame: Blame) -> None:
    """Raise what `blame` makes of a candidate that Milvus cannot hold."""
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
    """Raise what `blame` makes of something that is too long."""
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
        raise ModelError(
            f"The vector of the candidate {bad.id!r} has components that are not numbers.",
            "The model's weights are damaged or its training diverged; use another checkpoint.",
        )
    rows: list[Row] = [
        {IDENTIFIER: c.id, TEXT: c.text, VECTOR: vector, **dynamic(c.metadata)}
        for c, vector in zip(candidates, matrix, strict=True)
    ]
    return rows, longest(matrix)


def longest(matrix: NDArray[np.float32]) -> float:
    """The length of the longest row, rounded up to a power of two: so it seldom changes."""
    length = float(np.sqrt((matrix.astype(np.float64) ** 2).sum(axis=1).max(initial=0.0)))
    return 2.0 ** math.ceil(math.log2(length)) if length else 0.0


def requests(rows: Iterable[Row]) -> Iterator[list[Row]]:
    """Cut rows into lists that fit into a request each."""
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
    """The bytes of a row in a request, nearly."""
    size = ROW_OVERHEAD
    for name, value in row.items():
        size += len(name) + (4 * len(value) if name == VECTOR else 4 * len(str(value)))
    return size
