"""Where candidates come from: a file, or anything that can be iterated over.

Knows how candidates are named and how two of one name are reported; knows nothing of vectors.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path

import numpy as np

from polyrank.data.candidates import read_candidates
from polyrank.data.files import read_json_lines
from polyrank.errors import DataError
from polyrank.records import Candidate
from polyrank.retrieval.store.cache import rows_with_id
from polyrank.retrieval.store.shard import HASH, Shard

Source = str | Path | Iterable[str | Candidate | tuple[str, str]]
"""A file of candidates, or candidates; a bare text is named by its place, from 0."""

HASHES_AT_ONCE = 1 << 22


def read_source(source: Source) -> Iterator[Candidate]:
    """Yield the candidates, one by one. Raises DataError."""
    if isinstance(source, (str, Path)):
        yield from read_candidates(source)
        return
    for place, item in enumerate(source):
        pair = (str(place), item) if isinstance(item, str) else item
        if (
            not isinstance(pair, tuple)
            or len(pair) != 2
            or not all(isinstance(part, str) for part in pair)
        ):
            raise DataError(
                f"The candidate at place {place} is {item!r}, not a text or a pair (id, text).",
                "Give a list of texts, of pairs of texts, or of Candidate.",
            )
        yield Candidate(*pair)


def in_blocks(candidates: Iterable[Candidate], rows: int) -> Iterator[list[Candidate]]:
    """Cut into lists of `rows`; the last may be shorter."""
    iterator = iter(candidates)
    while block := list(islice(iterator, rows)):
        yield block


def require_unique_ids(shards: Sequence[Shard], source: Source) -> None:
    """Raise DataError, naming both places, if two candidates have one id.

    The sorted hashes of all shards are merged range by range, so that memory stays bounded; only
    ids of equal hash are compared.
    """
    total = sum(shard.rows for shard in shards)
    parts = total // HASHES_AT_ONCE + 1
    edges = np.array([part * 2**64 // parts for part in range(1, parts)], dtype=HASH)
    bounds = [[0, *np.searchsorted(s.hashes, edges).tolist(), s.rows] for s in shards]
    for part in range(parts):
        ranges = zip(shards, bounds, strict=True)
        merged = np.sort(np.concatenate([s.hashes[b[part] : b[part + 1]] for s, b in ranges]))
        for value in np.unique(merged[1:][merged[1:] == merged[:-1]]).tolist():
            for shard in shards:
                for row in shard.with_hash(value):
                    identifier = shard.ids[row]
                    rows = rows_with_id(shards, identifier)
                    if len(rows) > 1:
                        raise duplicate(source, identifier, rows)


def duplicate(source: Source, identifier: str, rows: list[int]) -> DataError:
    """The error of an id given twice; in a file it names the lines, else the places from 0."""
    remedy = "Give every candidate an id of its own, or leave out all ids."
    lines = lines_with_id(Path(source), identifier) if isinstance(source, (str, Path)) else []
    if len(lines) < 2:
        places = f"{rows[0]} and {rows[1]}"
        return DataError(f"The id {identifier!r} is given twice, at the places {places}.", remedy)
    return DataError(
        f"The id {identifier!r} is given twice, first in line {lines[0]}.",
        remedy,
        path=str(source),
        line=lines[1],
    )


def lines_with_id(path: Path, identifier: str) -> list[int]:
    """The lines of a JSONL file, the only kind that gives ids, that have this id."""
    return [
        number
        for number, record in read_json_lines(path)
        if str(number if record.get("id") is None else record["id"]) == identifier
    ]
