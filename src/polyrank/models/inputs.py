"""The inputs of a model: one text or many, pairs, vectors. Knows nothing of tokens.

One text in gives one result: each function says whether what it was given stood alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any, TypeAlias, TypeGuard

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from polyrank.errors import UsageError
from polyrank.records import Context

Contexts: TypeAlias = str | Sequence[Context]
"""One text, or a list of contexts. A dialogue is a list of turns inside that list."""
Candidates: TypeAlias = str | Sequence[str]
"""One text, or a list of texts."""
Pair: TypeAlias = tuple[Context, str]
Pairs: TypeAlias = Pair | Sequence[Pair]
"""One pair (context, candidate), which is a tuple, or a list of pairs."""
Vectors: TypeAlias = Tensor | NDArray[Any]

SHOWN = 40
CONTEXT = "a text or a list of turns"


def as_contexts(contexts: object) -> tuple[list[Context], bool]:
    """The contexts as a list, and whether one text was given. Raises UsageError."""
    if isinstance(contexts, str):
        return [contexts], True
    listed = as_list("contexts", contexts, "a text or a list of texts and dialogues")
    for place, context in enumerate(listed):
        if type(context) is not str:
            require_context(f"contexts[{place}]", context)
    return listed, False


def as_candidates(candidates: object) -> tuple[list[str], bool]:
    """The candidates as a list, and whether one text was given. Raises UsageError.

    A candidate may be a title and its text, as a tuple.
    """
    if isinstance(candidates, str):
        return [candidates], True
    listed = as_list("candidates", candidates, "a text or a list of texts")
    for place, text in enumerate(listed):
        if not (isinstance(text, str) or (isinstance(text, tuple) and are_texts(text))):
            raise wrong(f"candidates[{place}]", "a text", text)
    return listed, False


def as_pairs(pairs: object) -> tuple[list[Pair], bool]:
    """The pairs as a list, and whether one pair was given. Raises UsageError."""
    if isinstance(pairs, tuple) and len(pairs) == 2 and isinstance(pairs[1], str):
        require_context("The context of the pair", pairs[0])
        return [(pairs[0], pairs[1])], True
    listed = as_list("pairs", pairs, "a pair (context, candidate) or a list of pairs")
    for place, pair in enumerate(listed):
        if not (isinstance(pair, (tuple, list)) and len(pair) == 2):
            raise wrong(f"pairs[{place}]", "a pair (context, candidate)", pair)
        require_context(f"The context of pairs[{place}]", pair[0])
        if not isinstance(pair[1], str):
            raise wrong(f"The candidate of pairs[{place}]", "a text", pair[1])
    return [(context, text) for context, text in listed], False


def as_ids(identifiers: object) -> list[str]:
    """One id or several as a list. Raises UsageError."""
    if isinstance(identifiers, str):
        return [identifiers]
    listed = as_list("identifiers", identifiers, "an id or a list of ids")
    for place, identifier in enumerate(listed):
        if not isinstance(identifier, str):
            raise wrong(f"identifiers[{place}]", "an id, which is a text", identifier)
    return listed


def require_context(name: str, value: object) -> None:
    """Raise UsageError for what is not a text or a list of turns."""
    if not isinstance(value, str) and not (isinstance(value, (tuple, list)) and are_texts(value)):
        raise wrong(name, CONTEXT, value)


def are_texts(values: Iterable[object]) -> bool:
    """Whether all are texts."""
    return all(isinstance(value, str) for value in values)


def as_list(name: str, value: object, expected: str) -> list[Any]:
    """What can be iterated over as a list. Raises UsageError."""
    unordered = isinstance(value, (str, bytes, bytearray, Mapping, Set))
    if unordered or not isinstance(value, Iterable) or getattr(value, "ndim", 1) == 0:
        raise wrong(name, expected, value)
    return list(value)


def wrong(name: str, expected: str, value: object) -> UsageError:
    """The error of a value of another kind."""
    if isinstance(value, (bytes, bytearray)):
        remedy = "Decode it first: value.decode()."
    elif "pair" in expected:
        remedy = "Write a pair as a tuple of two texts: (context, candidate)."
    else:
        remedy = "Give every text as a str."
    return UsageError(f"{name} must be {expected}, got {shown(value)}.", remedy)


def shown(value: object) -> str:
    """A value in a few words."""
    if value is None:
        return "None"
    if is_vectors(value):
        return f"{type(value).__name__} of shape {tuple(value.shape)}"
    written = repr(value)
    written = written if len(written) <= SHOWN else f"{written[:SHOWN]}…"
    return f"{type(value).__name__} {written}"


def is_vectors(value: object) -> TypeGuard[Vectors]:
    """Whether a value is a tensor, or an array of numbers."""
    return isinstance(value, Tensor) or (
        isinstance(value, np.ndarray) and value.dtype.kind in "fiu"
    )


def as_vectors(name: str, value: Any, axes: int, dimension: int) -> tuple[Tensor, bool]:
    """Vectors with all their axes, in float32 or better, and whether the first axis was missing.

    `axes` is the number of axes of many, `dimension` the size of the last. Raises UsageError.
    """
    vectors = torch.as_tensor(value)
    if vectors.ndim not in (axes - 1, axes) or vectors.shape[-1] != dimension:
        letters = ("N", "m")[: axes - 1]
        shape = f"({', '.join(letters)}, {dimension})"
        raise UsageError(
            f"{name} must be texts or vectors of the shape {shape}, got {shown(value)}.",
            "Give texts, or vectors that this model's encode_contexts and encode_candidates made.",
        )
    vectors = vectors.to(torch.promote_types(vectors.dtype, torch.float32))
    alone = vectors.ndim < axes
    return vectors[None] if alone else vectors, alone
