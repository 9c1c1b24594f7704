"""Negatives drawn from all candidates."""

from __future__ import annotations

import random
from collections.abc import Sequence

from polyrank.training.negatives.pool import Numbered, Pool, Proposals

SPARE = 8
"""Texts drawn for each that is needed, since some may be right or filtered out."""


class RandomNegatives:
    """Different candidates, each as likely as any other."""

    ranked = False

    def __init__(self, pool: Pool, num_negatives: int, seed: int) -> None:
        self.pool = pool
        self.num_negatives = num_negatives
        self.seed = seed

    def propose(self, block: Sequence[Numbered]) -> list[Proposals]:
        """A multiple of the negatives needed, in random order."""
        return [Proposals(texts=self.draw(numbered)) for numbered in block]

    def draw(self, numbered: Numbered) -> list[str]:
        """What is drawn for one example."""
        generator = random.Random(f"{self.seed}:{numbered.place}")
        candidates = self.pool.candidates
        right = len(self.pool.known[numbered.example.context])
        count = min(SPARE * self.num_negatives + right, len(candidates))
        return [candidates[row].text for row in generator.sample(range(len(candidates)), count)]
