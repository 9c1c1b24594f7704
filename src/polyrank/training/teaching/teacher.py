"""A model as a teacher: what it must be, and its scores of pairs, each scored once."""

from __future__ import annotations

import math
from collections.abc import Sequence

from polyrank.errors import ModelError, UsageError
from polyrank.models.base import Model
from polyrank.models.config import NAMES
from polyrank.progress import watched
from polyrank.records import Context

Pair = tuple[str | tuple[str, ...], str]


class Teacher:
    """A model of any architecture that gives one score for a pair.

    Its scores are the logits that its own loss has; a bi-encoder's are divided by its temperature.
    """

    def __init__(self, model: Model, role: str = "A teacher") -> None:
        """`role` is what errors call it. Raises UsageError for a model with classes."""
        if model.config.architecture == "cross" and model.config.task == "classify":
            raise UsageError(
                f"{role} must give one score per pair, got a cross-encoder with "
                f"{model.config.num_labels} classes.",
                "Train one with --task rank or --task regress.",
            )
        self.model = model
        self.role = role
        self.divisor: float = 1.0
        if model.config.architecture == "bi":
            self.divisor = model.config.temperature

    def fingerprint(self) -> str:
        """The digest of everything that defines its scores."""
        return self.model.fingerprint()

    def score(
        self, pairs: Sequence[tuple[Context, str]], *, show_progress_bar: bool | None = None
    ) -> list[float]:
        """The score of each pair, (n,). Progress is shown where that of other work is, by default.

        Raises ModelError for scores that are not finite.
        """
        keys = [key_of(context, text) for context, text in pairs]
        different = list(dict.fromkeys(keys))
        shown = watched() if show_progress_bar is None else show_progress_bar
        if not different:
            return []
        given = self.model.score_pairs(different, show_progress_bar=shown)
        scores = (given.float() / self.divisor).tolist()
        if not all(map(math.isfinite, scores)):
            raise not_finite(self.role)
        found = dict(zip(different, scores, strict=True))
        return [found[key] for key in keys]


def key_of(context: Context, text: str) -> Pair:
    """A pair in a hashable form."""
    return context if isinstance(context, str) else tuple(context), text


def not_finite(role: str) -> ModelError:
    """The error of a teacher whose scores are not numbers."""
    return ModelError(
        f"{role}'s scores are not all finite numbers.",
        "Its weights are damaged or its training diverged; use another checkpoint.",
    )


def require_cross(model: Model, role: str) -> None:
    """Raise UsageError for a model that is not a cross-encoder."""
    architecture = model.config.architecture
    if architecture != "cross":
        raise UsageError(
            f"{role} must be a cross-encoder, got a {NAMES[architecture]}.",
            "Load or train one (polyrank train --arch cross).",
        )
