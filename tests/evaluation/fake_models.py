"""Models that need no weights: a text's vector and score come from its letters."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Sequence

import torch
from torch import Tensor


def vector(text: str, dimension: int = 4) -> Tensor:
    seed = zlib.crc32(text.encode())
    return torch.randn(dimension, generator=torch.Generator().manual_seed(seed))


class FakeTwoTower:
    """m = 2 context vectors; a score is the larger inner product."""

    def __init__(self) -> None:
        self.encoded: Counter[object] = Counter()

    def encode_for_scoring(
        self, contexts: Sequence[object], *, show_progress_bar: bool = False
    ) -> Tensor:
        self.encoded.update(map(str, contexts))
        rows = [torch.stack([vector(str(c)), vector(f"{c}'")]) for c in contexts]
        return torch.stack(rows)

    def encode_candidates_for_scoring(
        self, texts: Sequence[str], *, show_progress_bar: bool = False
    ) -> Tensor:
        self.encoded.update(texts)
        return torch.stack([vector(text) for text in texts])

    encode_candidates = encode_candidates_for_scoring

    def score_all(self, contexts: Tensor, candidates: Tensor) -> Tensor:
        return torch.einsum("bmd,nd->bmn", contexts, candidates).amax(1)

    def score_each(self, contexts: Tensor, candidates: Tensor) -> Tensor:
        return torch.einsum("bmd,bcd->bmc", contexts, candidates).amax(1)


class FakeCross:
    def __init__(self) -> None:
        self.read: Counter[object] = Counter()

    def score_pairs(
        self, pairs: Sequence[tuple[object, str]], *, show_progress_bar: bool = False
    ) -> Tensor:
        self.read.update(pairs)
        return torch.stack([vector(str(c)) @ vector(text) for c, text in pairs])


class ConstantCross(FakeCross):
    def score_pairs(
        self, pairs: Sequence[tuple[object, str]], *, show_progress_bar: bool = False
    ) -> Tensor:
        return torch.full((len(pairs),), 0.25)
