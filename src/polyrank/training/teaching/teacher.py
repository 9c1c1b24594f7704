"""A cross-encoder as the one who knows: scores of pairs, each different pair scored once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from polyrank.errors import ModelError, UsageError
from polyrank.records import Context

Pair = tuple[str | tuple[str, ...], str]


class Teacher:
    """A cross-encoder that gives one score for a pair."""

    def __init__(self, model: Any, role: str = "A teacher") -> None:
        """`role` is what errors call it. Raises UsageError for a model of another kind."""
        require_cross(model, role)
        self.model = model
        self.role = role

    def fingerprint(self) -> str:
        """The digest of all that defines its scores."""
        digest: str = self.model.fingerprint()
        return digest

    def score(self, pairs: Sequence[tuple[Context, str]], *, progress: bool = False) -> list[float]:
        """The score of each pair, (n,). Raises ModelError for scores that are not numbers."""
        keys = [key_of(context, text) for context, text in pairs]
        different = list(dict.fromkeys(keys))
        if not different:
            return []
        scores = self.model.score_pairs(different, progress=progress).float().tolist()
        if not all(map(math.isfinite, scores)):
            raise ModelError(
                f"{self.role}'s scores are not all finite numbers.",
                "Its weights are damaged or its training diverged; use another checkpoint.",
            )
        found = dict(zip(different, scores, strict=True))
        return [found[key] for key in keys]


def key_of(context: Context, text: str) -> Pair:
    """A pair that can be a key."""
    return context if isinstance(context, str) else tuple(context), text


def require_architecture(model: Any, role: str) -> None:
    """Raise UsageError for a model that is no cross-encoder."""
    architecture = getattr(getattr(model, "config", None), "architecture", None)
    if architecture != "cross":
        names = {"bi": "a bi-encoder", "poly": "a poly-encoder"}
        named = names.get(str(architecture), type(model).__name__)
        raise UsageError(
            f"{role} must be a cross-encoder, got {named}.",
            "Load or train one (polyrank train --arch cross).",
        )


def require_cross(model: Any, role: str) -> None:
    """Raise UsageError for a model that is no cross-encoder with one score."""
    require_architecture(model, role)
    if model.config.task == "classify":
        raise UsageError(
            f"{role} must give one score for a pair, got a cross-encoder with "
            f"{model.config.num_labels} classes.",
            "Train one with --task rank or --task regress.",
        )
