"""What an index needs from a model. Knows nothing of encoders."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from torch import Tensor

from polyrank.errors import UsageError
from polyrank.records import Context
from polyrank.scoring.poly import Attention


class VectorModel(Protocol):
    """A model whose candidates are vectors: a bi-encoder or a poly-encoder.

    Letters: B contexts, m vectors of each, N candidates, d dimensions.
    """

    @property
    def config(self) -> Any:
        """The settings; `config.architecture` is `bi` or `poly`."""

    attention: Attention
    """How a candidate attends over the vectors of a context."""

    @property
    def dimension(self) -> int:
        """The number d of components of a vector."""

    @property
    def num_vectors(self) -> int:
        """The number m of vectors of a context."""

    path: Path | None
    """The folder the model was loaded from, if any."""

    def fingerprint(self) -> str:
        """A digest of all that defines a score."""

    def encode_candidates_for_scoring(self, texts: Sequence[str]) -> Tensor:
        """N texts to (N, d), float32, on the CPU."""

    def encode_for_scoring(self, contexts: Sequence[Context]) -> Tensor:
        """B contexts to (B, m, d), float32, on the CPU; a row of zeros is no vector."""

    def save_copy(self, path: Path) -> object:
        """Write the model to a folder; its own `path` stays as it is."""


def require_vectors(model: Any) -> None:
    """Raise UsageError for a model without candidate vectors."""
    architecture = getattr(getattr(model, "config", None), "architecture", None)
    if architecture == "cross":
        raise UsageError(
            "A cross-encoder has no candidate vectors, so it cannot make or search an index.",
            "Index with a bi- or poly-encoder and rerank what it finds with the cross-encoder.",
        )
    if architecture not in ("bi", "poly"):
        raise UsageError(
            f"An index needs a bi- or poly-encoder, got {type(model).__name__}.",
            "Load one with BiEncoder.from_pretrained or PolyEncoder.from_pretrained.",
        )
