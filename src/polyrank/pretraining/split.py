"""Which documents are held out, by their ids alone: nothing of them is ever trained on."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import Literal

from polyrank.config import require

SplitName = Literal["train", "held_out"]
THREAD = re.compile(r"t3_\w+(?=/)")
"""The post in the id of a conversation from Reddit: its paths share their first comments."""
SPLITS: tuple[SplitName, ...] = ("train", "held_out")


@dataclass(frozen=True, kw_only=True)
class SplitSettings:
    """What is held out. Raises UsageError for a share that is none."""

    held_out: float = 0.02
    """The share of articles or conversations that is held out, from 0 to below 1."""
    held_out_ids: tuple[str, ...] = ()
    """The ids of those that are held out; if there are any, the share does not count."""
    split_seed: int = 0
    """Another number holds out others."""

    def __post_init__(self) -> None:
        require(0 <= self.held_out < 1, "held_out", "from 0 to below 1", self.held_out)


class Split:
    """Says for each id on which side it is; the same on every machine and in any order."""

    def __init__(self, settings: SplitSettings) -> None:
        self._ids = frozenset(settings.held_out_ids)
        self._below = int(settings.held_out * 2**64)
        self._salt = b"%d\0" % settings.split_seed

    def of(self, identity: str) -> SplitName:
        """The side of a document; the paths of one Reddit thread are on one side."""
        if self._ids:
            return "held_out" if identity in self._ids else "train"
        thread = THREAD.match(identity)
        whole = thread.group() if thread else identity
        name = self._salt + whole.encode("utf-8", "replace")
        place = int.from_bytes(hashlib.blake2b(name, digest_size=8).digest(), "big")
        return "held_out" if place < self._below else "train"
