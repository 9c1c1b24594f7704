"""An engine stores the candidates of an index and searches them.

An engine knows vectors, ids, texts and metadata; it knows nothing of encoders.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from torch import Tensor

from polyrank.data.candidates import read_ids
from polyrank.errors import DataError
from polyrank.records import Candidate, Hit, Value
from polyrank.retrieval.filters import Filter
from polyrank.retrieval.store.manifest import Manifest

Encode = Callable[[Sequence[str]], Tensor]
"""N texts to (N, d), float32, on the CPU."""

Strategy = Literal["scan", "bounded", "searches", "approximate"]
"""How candidates were found. scan: read every stored vector. bounded: read the 8-bit sketches
instead. Both score every candidate that could be among the best. searches: inner-product searches,
widened until no unseen candidate can be among the best. approximate: score the candidates of a
nearest-neighbour search."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SearchReport:
    """How the hits of one context were found.

    `num_candidates` were searched (those that pass the filter); `num_scored` of them got the full
    score. `certified` means that no other candidate can be among the hits.
    """

    strategy: Strategy
    num_candidates: int
    num_scored: int
    certified: bool


@dataclass(frozen=True, slots=True)
class Found:
    """The hits of one context, best first, and how they were found.

    `metadata` is that of each hit, if it was asked for. `num_reranked` is how many candidates a
    reranker has ordered.
    """

    hits: list[Hit]
    report: SearchReport
    metadata: Sequence[Mapping[str, Value]] = ()
    num_reranked: int = 0


class Hits(list[Hit]):
    """The hits of one context, best first, as a list; `report` says how they were found."""

    def __init__(self, found: Found) -> None:
        super().__init__(found.hits)
        self.report: SearchReport = found.report


class SearchResults(list[Hits]):
    """The hits of each context, in the order of the contexts."""

    def __init__(self, found: Iterable[Found]) -> None:
        super().__init__(map(Hits, found))

    @property
    def reports(self) -> list[SearchReport]:
        """How the hits of each context were found."""
        return [hits.report for hits in self]


class Engine(Protocol):
    """The candidates of one index: a folder of shards, or a collection of a vector database.

    Letters: B contexts, m vectors of each, d dimensions.
    """

    @property
    def manifest(self) -> Manifest | None:
        """The manifest of an index folder; None if the candidates are elsewhere."""

    @property
    def num_bytes(self) -> int | None:
        """The bytes of all files of an index folder; None if the candidates are elsewhere."""

    def __len__(self) -> int:
        """The number of candidates, not counting deleted ones."""

    def __iter__(self) -> Iterator[Candidate]:
        """Every candidate."""

    def get(self, identifier: str) -> Candidate | None:
        """The candidate with this id, if there is one."""

    def present(self, identifiers: Iterable[str]) -> set[str]:
        """Those of the ids that candidates have."""

    def search(
        self,
        contexts: Tensor,
        top_k: int,
        *,
        exact: bool,
        filter: Filter | None,
        metadata: bool = False,
    ) -> list[Found]:
        """The best `top_k` of the candidates that pass the filter, for each context (B, m, d).

        Fewer if fewer pass. The larger id wins a tie. Exact, and certified, if asked for. With
        `metadata`, what is found has the metadata of its hits.
        """

    def add(self, candidates: Iterable[Candidate], encode: Encode, *, replace: bool) -> int:
        """Add candidates and return their number. If anything fails, none is added.

        With `replace`, a candidate replaces the one with the same id; without, it raises DataError.
        So does an id given twice.
        """

    def delete(self, identifiers: Sequence[str]) -> int:
        """Delete candidates by id and return their number.

        Raises DataError for an unknown id, and deletes nothing then.
        """

    def compact(self) -> None:
        """Free the space of deleted candidates and add new ones to the search structures."""

    def refresh(self) -> bool:
        """Show what other processes have committed since; return whether anything changed."""

    def verify(self) -> None:
        """Compare everything with its checksum. Raises IndexFolderError at the first difference."""

    def close(self) -> None:
        """Close files and connections."""


def delete_listed(engine: Engine, path: Path) -> int:
    """Delete the candidates whose ids a file lists, one per line, and return their number.

    Raises DataError, naming the line, for an unknown id or one given twice.
    """
    lines = read_ids(path)
    try:
        return engine.delete(list(lines))
    except DataError as error:
        for identifier, number in lines.items():
            if engine.get(identifier) is None:
                raise DataError(error.problem, error.remedy, path=path, line=number) from error
        raise
