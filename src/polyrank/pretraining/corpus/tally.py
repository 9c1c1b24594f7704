"""Counting what was dropped, by reason, with some examples of each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from polyrank.pretraining.corpus.manifest import DroppedCount
from polyrank.pretraining.corpus.reading import Dropped

NUM_EXAMPLES = 5
LONGEST_EXAMPLE = 200


class Tally:
    """Reasons with how often each came, and the first places."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.examples: dict[str, list[str]] = {}

    def add(self, dropped: Dropped) -> None:
        """Count one."""
        reason = dropped.reason
        self.counts[reason] = self.counts.get(reason, 0) + 1
        examples = self.examples.setdefault(reason, [])
        if len(examples) < NUM_EXAMPLES:
            examples.append(" ".join(dropped.where.split())[:LONGEST_EXAMPLE])

    def merge(self, other: Mapping[str, Any]) -> None:
        """Count what another tally gave by `plain`, which comes after this one's."""
        for reason, (count, examples) in other.items():
            self.counts[reason] = self.counts.get(reason, 0) + count
            mine = self.examples.setdefault(reason, [])
            mine += examples[: NUM_EXAMPLES - len(mine)]

    def plain(self) -> dict[str, tuple[int, list[str]]]:
        """Counts and examples by reason, for JSON and for other processes."""
        return {reason: (count, self.examples[reason]) for reason, count in self.counts.items()}

    def report(self) -> dict[str, DroppedCount]:
        """The most frequent reason first."""
        return {
            reason: DroppedCount(count=count, examples=tuple(self.examples[reason]))
            for reason, count in sorted(self.counts.items(), key=lambda item: (-item[1], item[0]))
        }
