"""The pairs of a run, drawn from a corpus by their number. Knows nothing of tokens."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol, overload

from polyrank.pretraining.pairs import Pair
from polyrank.tokens.masking_config import MaskingConfig
from polyrank.training.pretraining.config import PretrainingConfig


def is_in_batch(pair: Pair) -> bool:
    """Whether a pair is one of the in-batch softmax; others are read as one text, partly masked.

    These are masked texts, and those with the question whether the second follows.
    """
    return pair.task != "mlm" and pair.label is None


class Drawn(Protocol):
    """Pairs by number, without end, in an order that needs no shuffling."""

    def __getitem__(self, number: int) -> Pair: ...


class CorpusPairs(Sequence[Pair]):
    """As many pairs as a run takes; `pairs` holds them in the order in which they are read.

    `fingerprint` tells the corpus and all that the pairs depend on. `held_out` are pairs of what is
    not trained on, by task.
    """

    is_shuffled = True

    def __init__(
        self,
        pairs: Drawn,
        num_pairs: int,
        *,
        config: PretrainingConfig,
        masking: MaskingConfig,
        fingerprint: str,
        held_out: Mapping[str, Sequence[Pair]],
    ) -> None:
        self.pairs = pairs
        self.num_pairs = num_pairs
        self.config = config
        self.masking = masking
        self.fingerprint = fingerprint
        self.held_out = held_out

    def __len__(self) -> int:
        return self.num_pairs

    @overload
    def __getitem__(self, number: int) -> Pair: ...

    @overload
    def __getitem__(self, number: slice) -> Sequence[Pair]: ...

    def __getitem__(self, number: int | slice) -> Pair | Sequence[Pair]:
        if isinstance(number, slice):
            return [self.pairs[one] for one in range(*number.indices(self.num_pairs))]
        if not 0 <= number < self.num_pairs:
            raise IndexError(number)
        return self.pairs[number]

    def __iter__(self) -> Iterator[Pair]:
        return (self.pairs[number] for number in range(self.num_pairs))
