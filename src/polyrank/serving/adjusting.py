"""What requests ask beyond a model's settings: shorter vectors, unit length, shorter texts.

Knows nothing of HTTP.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polyrank.serving.computation import Side
from polyrank.serving.failures import RequestError
from polyrank.serving.pipeline import Served


def cut_to(
    served: Served,
    vectors: NDArray[np.float32],
    dimensions: int | None,
    *,
    field: str = "dimensions",
) -> NDArray[np.float32]:
    """The first numbers of each vector, (n, d) → (n, dimensions).

    Vectors of unit length get unit length again; those that are compared by inner products stay as
    they are.

    Args:
        served: The model that made the vectors.
        vectors: (n, d).
        dimensions: How many numbers to keep; None keeps all.
        field: What the request calls `dimensions`.

    Raises:
        RequestError: The vectors have fewer numbers.
    """
    if dimensions is None:
        return vectors
    width = vectors.shape[1]
    if dimensions > width:
        raise RequestError(
            400,
            f"{field} is {dimensions}, but the vectors of {served.name!r} have {width} numbers.",
            f"Ask for at most {width}, or leave it out.",
            param=field,
        )
    cut = vectors[:, :dimensions]
    return unit_length(cut) if dimensions < width and has_unit_length(served) else cut


def has_unit_length(served: Served) -> bool:
    """Whether a model's vectors have length 1."""
    model: Any = served.model
    return model.config.similarity == "cosine" and model.gives_unit_length


def unit_length(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Vectors scaled to length 1; a vector of zeros stays one."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    scaled: NDArray[np.float32] = vectors / np.maximum(lengths, np.finfo(np.float32).tiny)
    return scaled


def cut_texts(
    served: Served, texts: Sequence[str], max_tokens: int, side: Side = "candidate"
) -> list[str]:
    """The beginning of each text: as many of its characters as `max_tokens` tokens cover.

    Special tokens do not count. A text that has fewer tokens stays as it is; so do texts where
    `max_tokens` is beyond the model's own length, which cuts them anyway.
    """
    model: Any = served.model
    config = model.config
    is_context = side == "context"
    own = config.max_context_length if is_context else config.max_candidate_length
    tokenizer = (model.tokenizer if is_context else model.candidate_tokenizer).pretrained
    if max_tokens >= own or not tokenizer.is_fast:
        return list(texts)
    cut = []
    encoded = tokenizer.backend_tokenizer.encode_batch(list(texts), add_special_tokens=False)
    for text, encoding in zip(texts, encoded, strict=True):
        ends = encoding.offsets
        cut.append(text[: ends[max_tokens - 1][1]] if len(ends) > max_tokens else text)
    return cut
