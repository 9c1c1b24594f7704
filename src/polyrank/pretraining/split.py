"""How a corpus is split: which documents are held out, and what a passage is.

A document is held out by its id alone; nothing of it is ever trained on.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import Literal

from polyrank.config import require

SplitName = Literal["train", "held_out"]
WHOLE = re.compile(r"t3_\w+(?=/)|book:.+(?=/)")
"""Ids whose documents stay together: the paths of a Reddit thread, which share their first
comments, and the chapters of a book."""
SPLITS: tuple[SplitName, ...] = ("train", "held_out")


@dataclass(frozen=True, kw_only=True)
class TablesSettings:
    """How a corpus is split. Raises UsageError for a value out of range."""

    held_out: float = 0.02
    """The share of articles or conversations to hold out, from 0 to below 1."""
    held_out_ids: tuple[str, ...] = ()
    """The ids of the held-out documents, instead of a share."""
    split_seed: int = 0
    """Seed of the split: another number holds out other documents."""
    passage_words: int = 200
    """The maximum words of a passage: shorter paragraphs are merged, longer ones cut."""
    min_query_words: int = 4
    """Shorter sentences stay in their passages, but are not queries."""
    merge_speaker: bool = True
    """Merge neighbouring turns of one speaker into one."""

    def __post_init__(self) -> None:
        require(0 <= self.held_out < 1, "held_out", "from 0 to below 1", self.held_out)
        require(self.passage_words >= 1, "passage_words", "at least 1", self.passage_words)
        require(self.min_query_words >= 1, "min_query_words", "at least 1", self.min_query_words)


class Split:
    """Says on which side an id is: the same on every machine and in any order."""

    def __init__(self, settings: TablesSettings) -> None:
        self._ids = frozenset(settings.held_out_ids)
        self._below = int(settings.held_out * 2**64)
        self._salt = b"%d\0" % settings.split_seed

    def of(self, identity: str) -> SplitName:
        """The side of a document; a thread of Reddit is on one side, and so is a book."""
        if self._ids:
            return "held_out" if identity in self._ids else "train"
        found = WHOLE.match(identity)
        whole = found.group() if found else identity
        name = self._salt + whole.encode("utf-8", "replace")
        place = int.from_bytes(hashlib.blake2b(name, digest_size=8).digest(), "big")
        return "held_out" if place < self._below else "train"
