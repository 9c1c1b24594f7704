"""One pass over a file of candidates before its parts are encoded.

Bad lines, ids given twice and fields of several kinds are found here, before the first text is
encoded. The result is kept beside the parts; later only the file's checksum is computed again.
Memory does not grow with the file.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shutil
import tempfile
from array import array
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from polyrank.data.candidates import gives_ids
from polyrank.errors import DataError
from polyrank.folder_files import read_json, sha256_of
from polyrank.progress import bar
from polyrank.retrieval.bulk.parts import SourceRecord
from polyrank.retrieval.source import Candidates
from polyrank.retrieval.store.metadata import FieldKinds
from polyrank.retrieval.store.shard import HASH, HASHES_AT_ONCE, encoded, found_twice, hash_of
from polyrank.storage import storage_errors, write_text

SURVEY = "source.json"


def survey(path: Path, output: Path) -> SourceRecord:
    """Survey a file of candidates; the result is kept in the folder `output`.

    Raises DataError for bad candidates or none, StorageError if the disk is full.
    """
    kept = read_survey(output)
    if kept is not None and is_of(kept, path):
        return dataclasses.replace(kept, path=os.path.realpath(path))
    found = look_through(path, output)
    plain = json.dumps(dataclasses.asdict(found), indent=1, ensure_ascii=False) + "\n"
    write_text(output / SURVEY, plain)
    return found


def is_of(kept: SourceRecord, path: Path) -> bool:
    """Whether a survey is of this file as it is now."""
    try:
        return kept.bytes == path.stat().st_size and kept.sha256 == checksum(path)
    except OSError:
        return False  # reading it will say what is wrong


def checksum(path: Path) -> str:
    """The SHA-256 of a file of any size."""
    with bar("Verifying candidates", total=path.stat().st_size, unit="bytes") as advance:
        return sha256_of(path, advance)


def read_survey(output: Path) -> SourceRecord | None:
    """The result of an earlier survey, if it can be read."""
    try:
        return SourceRecord(**read_json(output / SURVEY))
    except (OSError, ValueError, TypeError):
        return None


def look_through(path: Path, output: Path) -> SourceRecord:
    """Read all candidates of a file once."""
    if path.exists() and not path.is_dir() and not path.is_file():
        raise DataError(
            "This is not an ordinary file.",
            "It is read several times, so write it to a file first.",
            path=path,
        )
    candidates = Candidates(path)
    kinds = FieldKinds({}, candidates.blame)
    rows = 0
    with (
        temporary_folder(output) as folder,
        bar("Counting candidates", unit="candidates") as advance,
    ):
        hashes = SortedHashes(folder)
        for candidate in candidates:
            kinds.check(candidate)
            encoded(candidate, candidate.text)
            if gives_ids(path):
                hashes.add(hash_of(encoded(candidate, candidate.id)))
            rows += 1
            advance(1)
        require_different(candidates, hashes)
    if not rows:
        raise DataError("There are no candidates.", "Give at least one text.", path=path)
    return SourceRecord(
        path=os.path.realpath(path),
        bytes=path.stat().st_size,
        sha256=checksum(path),
        rows=rows,
        fields=dict(sorted(kinds.known.items())),
    )


@contextlib.contextmanager
def temporary_folder(output: Path) -> Iterator[Path]:
    """A temporary folder below `output`."""
    with storage_errors(output):
        output.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix=".source-", dir=output))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class SortedHashes:
    """The hashes of ids, in sorted tables on disk."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._last = array("Q")
        self._tables: list[NDArray[np.uint64]] = []

    def add(self, value: bytes) -> None:
        """Add a hash. Raises StorageError."""
        self._last.append(int.from_bytes(value, "little"))
        if len(self._last) == HASHES_AT_ONCE:
            file = self._folder / str(len(self._tables))
            with storage_errors(file):
                np.sort(np.array(self._last, dtype=HASH)).tofile(file)
            self._tables.append(np.memmap(file, dtype=HASH, mode="r"))
            self._last = array("Q")

    def twice(self) -> Iterator[int]:
        """The hashes that were added twice."""
        yield from found_twice([*self._tables, np.sort(np.array(self._last, dtype=HASH))])


def require_different(candidates: Candidates, hashes: SortedHashes) -> None:
    """Raise DataError, naming both lines, if an id is given twice."""
    for value in hashes.twice():
        places: dict[str, int] = {}
        for place, candidate in enumerate(candidates):
            identifier = candidate.id
            if int.from_bytes(hash_of(identifier.encode()), "little") == value:
                if identifier in places:
                    raise candidates.given_twice(identifier, [places[identifier], place])
                places[identifier] = place
