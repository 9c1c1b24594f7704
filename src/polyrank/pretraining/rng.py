"""Random numbers that depend on whole numbers alone, and permutations that take no memory.

What item i of a task draws is a function of (seed, i): there is no state to keep, save or share.
The mixing function is the finaliser of SplitMix64 (Steele, Lea, Flood; OOPSLA 2014).
"""

from __future__ import annotations

MASK = 2**64 - 1
GOLDEN = 0x9E3779B97F4A7C15
ROUNDS = 6


def mix(value: int) -> int:
    """One of 2^64 numbers for each of 2^64; a changed bit changes about half of the bits."""
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & MASK
    return value ^ (value >> 31)


def hash_numbers(*numbers: int) -> int:
    """64 bits of a sequence of whole numbers; their order counts."""
    state = 0
    for number in numbers:
        state = mix((state + GOLDEN + number) & MASK)
    return state


class Random:
    """A sequence of random numbers that the given whole numbers determine."""

    __slots__ = ("_state",)

    def __init__(self, *numbers: int) -> None:
        self._state = hash_numbers(*numbers)

    def bits(self) -> int:
        """A whole number of 64 bits."""
        self._state = (self._state + GOLDEN) & MASK
        return mix(self._state)

    def below(self, count: int) -> int:
        """A whole number from 0 to `count` − 1."""
        return (self.bits() * count) >> 64

    def happens(self, probability: float) -> bool:
        """True with a probability."""
        return self.bits() < probability * 2.0**64


class Permutation:
    """A permutation of range(count) that takes no memory: from a place to the number there.

    A Feistel network on the fewest bits that hold `count` numbers, walked until it comes back into
    the range (Black, Rogaway: Ciphers with Arbitrary Finite Domains; CT-RSA 2002): less than two
    steps on average.
    """

    def __init__(self, count: int, seed: int) -> None:
        bits = max(2, (count - 1).bit_length())
        self._count = count
        self._low_bits = bits // 2
        self._high_bits = bits - self._low_bits
        self._keys = [hash_numbers(seed, number) for number in range(ROUNDS)]

    def __len__(self) -> int:
        return self._count

    def __call__(self, index: int) -> int:
        """The number at a place. Raises IndexError beyond the range."""
        if not 0 <= index < self._count:
            raise IndexError(f"{index} is not in range({self._count})")
        while True:
            index = feistel(index, self._keys, self._low_bits, self._high_bits)
            if index < self._count:
                return index


def feistel(value: int, keys: list[int], low_bits: int, high_bits: int) -> int:
    """A permutation of the numbers of `low_bits` + `high_bits` bits; an even number of keys."""
    low, high = value & ((1 << low_bits) - 1), value >> low_bits
    low_mask, high_mask = (1 << low_bits) - 1, (1 << high_bits) - 1
    for first, second in zip(keys[::2], keys[1::2], strict=True):
        high ^= mix(low ^ first) & high_mask
        low ^= mix(high ^ second) & low_mask
    return high << low_bits | low
