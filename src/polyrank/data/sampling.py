"""A random share of the records: for example 1% to train on and the rest to evaluate on.

Each record has a number between 0 and 1 that depends only on the seed and its place. A share p of n
records is the round(p n) records with the smallest numbers. So a smaller share lies inside a larger
one of the same seed. Does not know what a record is.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from polyrank.errors import DataError, UsageError

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Share:
    """A share of the records, above 0 and at most 1, and the seed of its draw."""

    value: float
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.value <= 1:
            raise UsageError(
                f"A share must be above 0% and at most 100%, got {self}.",
                "Give a number above 0, up to 1.",
            )

    def __str__(self) -> str:
        return f"{self.value * 100:.10g}% (seed {self.seed})"

    def of(self, records: Iterable[T]) -> list[T]:
        """The records of the share, in their order. Raises DataError if there are none.

        Memory holds little more than the share: a record is dropped at once if its number is far
        above those that the share of all records so far would take (8 standard deviations, or 64
        records).
        """
        kept: list[tuple[float, int, T]] = []
        count = 0
        spread = math.sqrt(self.value * (1 - self.value))
        for place, record in enumerate(records):
            count += 1
            number = number_of(place, self.seed)
            if number < self.value + 8 * spread / math.sqrt(count) + 64 / count:
                kept.append((number, place, record))
        kept.sort(key=lambda one: one[:2])
        drawn = kept[: self.size(count)]
        return [record for _, _, record in sorted(drawn, key=lambda one: one[1])]

    def rest_of(self, records: Iterable[T]) -> list[T]:
        """The records outside the share, in their order. Raises DataError if there are none."""
        everything = list(records)
        drawn = set(self.of(range(len(everything))))
        rest = [record for place, record in enumerate(everything) if place not in drawn]
        if not rest:
            raise DataError(
                f"{self} of {len(everything):,} records leaves none.", "Leave out a smaller share."
            )
        return rest

    def size(self, count: int) -> int:
        """How many of `count` records the share takes. Raises DataError if it takes none."""
        size = round(self.value * count)
        if count and not size:
            raise DataError(
                f"{self} of {count:,} records is less than one.", "Take a larger share."
            )
        return size


def number_of(place: int, seed: int) -> float:
    """The number of the record at a place, from 0 to below 1; uniform over the places."""
    name = b"%d\0%d" % (seed, place)
    return int.from_bytes(hashlib.blake2b(name, digest_size=8).digest(), "big") / 2**64


def parse_share(given: float | str) -> float:
    """The share that was typed, such as `1%` or `0.01`. Raises UsageError outside 0 to 1.

    A whole number such as 5 is refused, since it may be meant as 5% or as everything.
    """
    text = str(given).strip()
    is_percentage = text.endswith("%")
    try:
        number = float(text.removesuffix("%"))
    except ValueError:
        number = math.nan
    if not is_percentage and number >= 1:
        raise UsageError(f"A share of {text} can mean two things.", f"Write {number:g}% or 100%.")
    value = number / 100 if is_percentage else number
    if not 0 < value <= 1:
        raise UsageError(
            f"A share must be above 0% and at most 100%, got {text}.", "Write it as 1% or 0.01."
        )
    return value


def hold_out(
    records: Sequence[T], size: int, seed: int, group: Callable[[T], Hashable]
) -> tuple[list[T], list[T]]:
    """The records but for up to `size` of them, and these, both in their order.

    Records of which `group` says the same stay together. Groups are drawn by their first places.
    """
    places: dict[Hashable, list[int]] = {}
    for place, record in enumerate(records):
        places.setdefault(group(record), []).append(place)
    drawn: set[int] = set()
    for together in sorted(places.values(), key=lambda each: number_of(each[0], seed)):
        if len(drawn) + len(together) <= size:
            drawn.update(together)
    kept = [record for place, record in enumerate(records) if place not in drawn]
    return kept, [record for place, record in enumerate(records) if place in drawn]
