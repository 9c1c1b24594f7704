"""The journal of a build: which blocks of vectors are on the disk, so that none is made twice.

One JSON object a line: first the job, then a line a block. A block counts as done when the digest
of its texts is the one of the texts that now stand at its place, and its vectors on the disk have
their digest; so the journal stays true whatever happened to the input or the files in between.
"""

from __future__ import annotations

import dataclasses
import json
import os
from dataclasses import dataclass
from pathlib import Path

from polyrank.retrieval.store.manifest import Storage
from polyrank.storage import storage_errors, write_text


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """What the vectors of a block depend on besides its texts, and where they lie."""

    fingerprint: str
    dimension: int
    storage: Storage
    shard_rows: int
    block_rows: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Block:
    """A block that is done: its place, the digest of its texts and that of its vectors."""

    shard: int
    start: int
    texts: str
    vectors: str


class Journal:
    """The blocks that are done, in memory and in a file."""

    def __init__(self, path: Path, blocks: dict[tuple[int, int], Block]) -> None:
        self._path = path
        self._blocks = blocks

    def __len__(self) -> int:
        return len(self._blocks)

    @classmethod
    def open(cls, path: Path, job: Job) -> Journal:
        """Read the journal of `job`, or begin one. Raises StorageError."""
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except (FileNotFoundError, UnicodeDecodeError):
            lines = []
        blocks: dict[tuple[int, int], Block] = {}
        header = json.dumps(dataclasses.asdict(job))
        if lines and lines[0] == header:
            for line in lines[1:]:
                try:
                    block = Block(**json.loads(line))
                except (ValueError, TypeError):
                    break  # cut off in the middle of a line
                blocks[block.shard, block.start] = block
        written = [json.dumps(dataclasses.asdict(block)) for block in blocks.values()]
        write_text(path, "\n".join([header, *written]) + "\n")
        return cls(path, blocks)

    def find(self, shard: int, start: int, texts: str) -> Block | None:
        """The block at this place, if it was made of these texts."""
        block = self._blocks.get((shard, start))
        return block if block is not None and block.texts == texts else None

    def record(self, block: Block) -> None:
        """Note that a block is done; its vectors must be on the disk. Raises StorageError."""
        line = json.dumps(dataclasses.asdict(block)) + "\n"
        with storage_errors(self._path), open(self._path, "ab", buffering=0) as handle:
            handle.write(line.encode())
            os.fsync(handle.fileno())
        self._blocks[block.shard, block.start] = block
