"""What a search gives: the hits of each context, and how they were found."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from polyrank.records import Hit

Strategy = Literal["scan", "bounded", "searches", "approximate"]
"""scan: every stored vector was read. bounded: the 8-bit sketches were read instead. After either,
all that could be among the best were scored. searches: inner-product searches, widened until no
unseen candidate could be. approximate: candidates of a nearest-neighbour search were scored."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SearchReport:
    """How the hits of one context were found.

    `num_candidates` were searched (those that pass the filter), `num_scored` of them got the full
    score. `certified` says that no other candidate can be among the hits.
    """

    strategy: Strategy
    num_candidates: int
    num_scored: int
    certified: bool


@dataclass(frozen=True, slots=True)
class Found:
    """The hits of one context, best first, and how they were found."""

    hits: list[Hit]
    report: SearchReport


class SearchResults(list[list[Hit]]):
    """The hits of each context, best first, as a list; `reports` says how each was found."""

    def __init__(self, found: Iterable[Found]) -> None:
        pairs = list(found)
        super().__init__(each.hits for each in pairs)
        self.reports: list[SearchReport] = [each.report for each in pairs]
