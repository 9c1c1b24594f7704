"""The lines that a long job has written so far, kept in whole blocks so that it can go on.

The job works in a folder beside its output and the output appears only when it is complete. Knows
nothing of what the lines are.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from polyrank.errors import UsageError
from polyrank.storage import exclusive, storage_errors, synchronise_folder, write_text

IDENTITY = "job.json"
LINES = "lines.jsonl"
BLOCKS = "blocks.jsonl"


class Journal:
    """The work folder of one job. Get one by `open_journal`."""

    def __init__(self, folder: Path, blocks: list[dict[str, int]]) -> None:
        self.folder = folder
        self.blocks = blocks
        """The note of each finished block."""

    def append(self, lines: Iterable[str], note: Mapping[str, int]) -> None:
        """Write the lines of a block, then the note that says that they are there.

        Raises StorageError if the disk refuses; the block then counts as not written.
        """
        with storage_errors(self.folder):
            with open(self.folder / LINES, "ab") as handle:
                handle.write("".join(f"{line}\n" for line in lines).encode())
                flush(handle)
                end = handle.tell()
            block = {**note, "end": end}
            with open(self.folder / BLOCKS, "ab") as handle:
                handle.write((json.dumps(block) + "\n").encode())
                flush(handle)
        self.blocks.append(block)

    def total(self, name: str) -> int:
        """The sum of a number in the notes of all blocks."""
        return sum(block.get(name, 0) for block in self.blocks)

    def lines(self) -> Iterator[str]:
        """Yield what was written, line by line."""
        if self.blocks:
            with open(self.folder / LINES, encoding="utf-8") as handle:
                for line in handle:
                    yield line.rstrip("\n")

    def finish(self, output: Path) -> None:
        """Let the lines become the file `output`, replacing it at once, and clear away."""
        with storage_errors(output):
            (self.folder / LINES).touch()
            os.replace(self.folder / LINES, output)
            synchronise_folder(output.parent)
        shutil.rmtree(self.folder, ignore_errors=True)


@contextlib.contextmanager
def open_journal(
    folder: Path, identity: Mapping[str, Any], *, restart: bool, job: str, flag: str = "--restart"
) -> Iterator[Journal]:
    """Begin a job in `folder`, or go on with the one there if its identity is the same.

    Nobody else can open it meanwhile. Raises UsageError where another process works there or,
    unless `restart` (which `flag` sets), an unfinished job of another identity lies there.
    """
    busy = f"Another process works on the {job} in {folder}."
    with exclusive(folder.with_name(folder.name + ".lock"), busy, "Wait for it, or end it."):
        try:
            if restart:
                shutil.rmtree(folder, ignore_errors=True)
            require_same(folder, identity, job, flag)
            blocks = whole_blocks(folder)
            yield Journal(folder, blocks)
        finally:
            folder.with_name(folder.name + ".lock").unlink(missing_ok=True)


def require_same(folder: Path, identity: Mapping[str, Any], job: str, flag: str) -> None:
    """Write down which job this is, or compare it with what is written."""
    written = folder / IDENTITY
    if not written.is_file():
        write_text(written, json.dumps(identity, indent=2) + "\n")
        return
    found = json.loads(written.read_text(encoding="utf-8"))
    expected = json.loads(json.dumps(identity))
    if found != expected:
        names = {*found, *expected}
        changed = sorted(name for name in names if found.get(name) != expected.get(name))
        raise UsageError(
            f"An unfinished {job} with another {' and '.join(changed)} lies in {folder}.",
            f"Repeat that command to finish it, give {flag} to discard it, or choose another "
            "output.",
        )


def whole_blocks(folder: Path) -> list[dict[str, int]]:
    """The notes of the blocks that were written whole; what follows them is cut off."""
    blocks: list[dict[str, int]] = []
    notes, lines = folder / BLOCKS, folder / LINES
    written = notes.read_bytes() if notes.is_file() else b""
    size = lines.stat().st_size if lines.is_file() else 0
    kept = 0
    for line in written.splitlines(keepends=True):
        try:
            block = json.loads(line)
        except ValueError:
            break
        if not line.endswith(b"\n") or block["end"] > size:
            break
        blocks.append(block)
        kept += len(line)
    with storage_errors(folder):
        cut(notes, kept)
        cut(lines, blocks[-1]["end"] if blocks else 0)
    return blocks


def cut(path: Path, size: int) -> None:
    """Make a file end at `size`, if it is there."""
    if path.is_file():
        os.truncate(path, size)


def flush(handle: Any) -> None:
    """Ask the system to put what was written on the disk itself."""
    handle.flush()
    os.fsync(handle.fileno())
