"""Exact search of candidate vectors held in memory, block by block as an index on disk is searched.

For measuring a search without writing an index. Knows tensors; knows no texts.
"""

from __future__ import annotations

import torch
from torch import Tensor

from polyrank.products import can_multiply_int8
from polyrank.retrieval.search.exact import seconds
from polyrank.scoring.best import Best, Ranked, RowNumbers
from polyrank.scoring.blockwise import BLOCK_ROWS, Block, best_rows, norms_of
from polyrank.scoring.poly import Attention
from polyrank.scoring.screen import Rows, quantised


class VectorSearch:
    """Candidates (N, d), float32, screened in 8 bits where that is cheaper on this machine."""

    def __init__(self, vectors: Tensor, attention: Attention) -> None:
        self.vectors = vectors
        self.attention = attention
        self.sketches: list[Block] | None = None
        self.whole = [
            Block(start, Rows(part, None, norms_of(part), None)) for start, part in self.parts()
        ]

    def parts(self) -> list[tuple[int, Tensor]]:
        """The blocks, each with its first row."""
        starts = range(0, len(self.vectors), BLOCK_ROWS)
        return [(start, self.vectors[start : start + BLOCK_ROWS]) for start in starts]

    def best(self, contexts: Tensor, k: int) -> list[Ranked]:
        """The best k for each context (B, m, d); ties by the larger row."""
        keepers = [Best(k, lambda row: row) for _ in contexts]
        return best_rows(contexts, self.attention, self.blocks(contexts), self.gather, keepers)

    def blocks(self, contexts: Tensor) -> list[Block]:
        """What is screened: the cheaper of the sketches and the vectors themselves."""
        if not can_multiply_int8():
            return self.whole
        shape = (contexts.shape[1], contexts.shape[2], torch.get_num_threads())
        if seconds(torch.int8, *shape) > seconds(torch.float32, *shape):
            return self.whole
        if self.sketches is None:
            self.sketches = [Block(start, quantised(part)) for start, part in self.parts()]
        return self.sketches

    def gather(self, rows: RowNumbers) -> Tensor:
        """The vectors of some rows: (n,) → (n, d)."""
        return self.vectors[torch.from_numpy(rows)]
