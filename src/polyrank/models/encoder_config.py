"""The form of an encoder that is pre-trained from nothing. Needs no torch."""

from __future__ import annotations

from dataclasses import dataclass

from polyrank.config import require


@dataclass(frozen=True, kw_only=True)
class NewEncoderConfig:
    """A BERT of any size, with a vocabulary of its own."""

    layers: int = 4
    """Layers of attention."""
    width: int = 256
    """Width of a token's output."""
    heads: int = 4
    """Heads of each attention; they divide the width."""
    intermediate: int | None = None
    """Width between the two dense layers of a block; 4 times the width by default."""
    positions: int = 512
    """The most tokens of a text."""
    vocabulary: int = 16_000
    """The most pieces of the vocabulary, which is trained on the corpus."""
    lower_case: bool = True
    """Do not tell capital letters from small ones."""

    def __post_init__(self) -> None:
        for name in ("layers", "width", "heads", "positions"):
            require(getattr(self, name) >= 1, name, "at least 1", getattr(self, name))
        require(self.width % self.heads == 0, "width", f"a multiple of {self.heads}", self.width)
        middle = self.intermediate
        require(middle is None or middle >= 1, "intermediate", "at least 1", middle)
