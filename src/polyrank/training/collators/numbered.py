"""Records that know their place and the epoch, and what is drawn for them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from polyrank.records import Example


class Numbered(NamedTuple):
    """A record, its place in the training set, and the epoch that it is read in."""

    place: int
    example: Any
    epoch: int = 0

    def draw(self, seed: int) -> random.Random:
        """What draws for this record in this epoch, whatever else stands in the step."""
        return random.Random(f"{seed}:{self.epoch}:{self.place}")


class NumberedExamples(torch.utils.data.Dataset[Numbered]):
    """Records by their place. `set_epoch` changes what is drawn for them."""

    def __init__(self, examples: Sequence[Any]) -> None:
        self.examples = examples
        self.epoch = 0

    def __len__(self) -> int:
        return len(self.examples)

    def __getitem__(self, place: int) -> Numbered:
        return Numbered(place, self.examples[place], self.epoch)

    def set_epoch(self, epoch: int) -> None:
        """Say which epoch is read from now on, counted from 0."""
        self.epoch = epoch


def responses_of(examples: Sequence[Example]) -> list[str]:
    """The different responses of a training set, in its order."""
    return list(dict.fromkeys(example.response for example in examples))


def drawn_responses(
    pool: Sequence[str], response: str, count: int, draw: random.Random
) -> list[str]:
    """`count` texts of the pool that are not the response; it must hold another one."""
    chosen: list[str] = []
    while len(chosen) < count:
        text = draw.choice(pool)
        if text != response:
            chosen.append(text)
    return chosen
