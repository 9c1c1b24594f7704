"""Long jobs: their identity, their folder, what is done, and how they resume.

A job makes one file or folder, its output. It works in a hidden folder beside it:

    .NAME.DOING/
        .lock            held by the process that works here
        job.json         everything that the result depends on; written first
        journal.jsonl    one line per finished piece, on disk before the next begins
        …                whatever the job keeps there

The output appears only when it is complete. The same command, run again after an interruption,
finds the folder and resumes; another command that would write to the same output is refused. Knows
nothing of what the jobs make.
"""

from __future__ import annotations

import contextlib
import glob
import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from polyrank.errors import StorageError, UsageError
from polyrank.folder_files import read_json, require_own_files
from polyrank.json_text import parse_json
from polyrank.storage import (
    discard,
    exclusive,
    require_ordinary,
    storage_errors,
    swap_folders,
    synchronise,
    synchronise_folder,
    synchronise_tree,
    write_text,
)

LOCK = ".lock"
DESCRIPTION = "job.json"
JOURNAL = "journal.jsonl"
LINES = "lines.jsonl"
UNFINISHED = re.compile(r"\.(?P<name>.+)\.(?P<doing>[a-z]+)")
"""The name of a hidden folder: the output's, and what the job does."""
MOST_SHOWN = 4
"""The most settings that a message names when two jobs differ."""

Note = dict[str, Any]
"""What a journal records about one finished piece, as JSON."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """What a job makes, and everything that the result depends on."""

    output: Path
    """The file or folder that the job makes."""
    doing: str
    """What the job does, in one word: the hidden folder is `.NAME.DOING`."""
    noun: str
    """What messages call the job: "run", "conversion", "build"."""
    identity: Mapping[str, Any]
    """As JSON: two jobs with the same identity make the same output."""
    words: Mapping[str, str] = field(default_factory=dict)
    """How messages name a part of the identity that differs: {"training": "other settings"}. {} in
    the words stands for the other job's value."""
    described: Mapping[str, Any] = field(default_factory=dict)
    """As JSON, by the names of the identity: what {} shows instead of the value. Not compared."""
    restart_flag: str = "--restart"

    @property
    def work(self) -> Path:
        """The hidden folder in which the job works."""
        output = self.output.absolute()
        return output.with_name(f".{output.name}.{self.doing}")

    @property
    def plain(self) -> dict[str, Any]:
        """The identity after a round trip through JSON."""
        plain: dict[str, Any] = json.loads(json.dumps(dict(self.identity)))
        return plain


class Journal:
    """What is done so far: one note per finished piece, in memory and in a file."""

    def __init__(self, path: Path, is_whole: Callable[[Note], bool] = lambda _: True) -> None:
        """Read the notes at `path`, if any.

        Notes count up to the first that is torn or whose piece, by `is_whole`, is gone; the rest is
        cut off. Raises StorageError.
        """
        self.path = path
        self.notes: list[Note] = []
        written = path.read_bytes() if path.is_file() else b""
        kept = 0
        for line in written.splitlines(keepends=True):
            note = parsed(line)
            if note is None or not is_whole(note):
                break
            self.notes.append(note)
            kept += len(line)
        if kept < len(written):
            with storage_errors(path):
                os.truncate(path, kept)

    def __len__(self) -> int:
        return len(self.notes)

    def append(self, note: Mapping[str, Any]) -> None:
        """Record that a piece is finished; it must already be on disk. Raises StorageError."""
        append_durably(self.path, json.dumps(dict(note)).encode() + b"\n")
        self.notes.append(dict(note))

    def total(self, name: str) -> int:
        """The sum of a number over all notes."""
        return sum(note.get(name, 0) for note in self.notes)


class LineJournal(Journal):
    """A journal of a job whose output is a file of lines; each piece is some of its lines."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / LINES
        size = self.file.stat().st_size if self.file.is_file() else 0
        super().__init__(folder / JOURNAL, lambda note: note["end"] <= size)
        end = self.notes[-1]["end"] if self.notes else 0
        with storage_errors(self.file):
            self.file.touch()
            os.truncate(self.file, end)

    def append_lines(self, lines: Iterable[str], note: Mapping[str, Any]) -> None:
        """Write the lines of a piece, then its note.

        Raises StorageError; the piece then counts as not written.
        """
        end = append_durably(self.file, "".join(f"{line}\n" for line in lines).encode())
        self.append({**note, "end": end})

    def lines(self) -> Iterator[str]:
        """Yield what was written, line by line."""
        with open(self.file, encoding="utf-8") as handle:
            for line in handle:
                yield line.rstrip("\n")


class Work:
    """The hidden folder of a job that this process holds. Get one by `working`."""

    def __init__(self, job: Job, *, resumed: bool) -> None:
        self.job = job
        self.folder = job.work
        self.resumed = resumed
        """Whether it resumes an interrupted run of the same job."""
        self._journals: list[Journal] = []
        self._kept = False

    def journal(self, is_whole: Callable[[Note], bool] = lambda _: True) -> Journal:
        """Open the journal of finished pieces; `is_whole` says whether a piece is still there."""
        journal = Journal(self.folder / JOURNAL, is_whole)
        self._journals.append(journal)
        return journal

    def line_journal(self) -> LineJournal:
        """Open the journal of a job whose output is a file of lines."""
        journal = LineJournal(self.folder)
        self._journals.append(journal)
        return journal

    def keep(self) -> None:
        """Keep the folder if the job fails, even if no journal lists a finished piece."""
        self._kept = True

    def forget(self) -> None:
        """Remove the folder if the job fails, since a resumed run would fail the same way."""
        self._journals.clear()

    @property
    def is_worth_keeping(self) -> bool:
        """Whether a later run could resume from what is here."""
        return self._kept or any(len(journal) for journal in self._journals)

    def place_folder(self, fresh: Path) -> None:
        """Flush a finished folder and move it to the output's place. Raises StorageError."""
        with storage_errors(self.job.output):
            synchronise_tree(fresh)
            swap_folders(fresh, self.job.output.absolute())

    def place_file(self, fresh: Path) -> None:
        """Flush a finished file and move it to the output's place. Raises StorageError."""
        output = self.job.output.absolute()
        with storage_errors(output):
            synchronise(fresh)
            os.replace(fresh, output)
            synchronise_folder(output.parent)


@contextlib.contextmanager
def working(
    job: Job, *, restart: bool = False, other: Literal["refuse", "discard"] = "refuse"
) -> Iterator[Work]:
    """Hold the hidden folder of a job, with what an interrupted run of the same job left there.

    `restart` discards that. Unfinished work of another job is refused, or discarded if `other` says
    so. When the block ends, the folder is removed; if the block fails, the folder stays if a later
    run can resume from it. Raises UsageError if another process works there or unfinished work of
    another job is in the way; StorageError.
    """
    require_ordinary(job.output)
    problem = f"Another process is {job.doing} {job.output}."
    with exclusive(job.work / LOCK, problem, "Wait for it, or choose another output."):
        work = Work(job, resumed=resume(job, restart=restart, other=other))
        try:
            yield work
        except BaseException as error:
            if not work.is_worth_keeping:
                discard(job.work, job.output.absolute())
            elif isinstance(error, StorageError):
                raise resumable(error, job) from error
            raise
        discard(job.work, job.output.absolute())
    remove_replaced(job.output)


def resume(job: Job, *, restart: bool, other: Literal["refuse", "discard"]) -> bool:
    """Record which job this is; return whether the folder already was its own. Hold the folder."""
    found = None if restart else read_identity(job.work)
    if found is not None and found["identity"] == job.plain:
        require_own_files(job.work, UsageError)
        return True
    if found is not None and other == "refuse":
        raise UsageError(
            f"An unfinished {job.noun} with {differences(job, found)} lies in {job.work}.",
            f"Repeat that command to finish it, give {job.restart_flag} to discard it, or choose "
            "another output.",
        )
    clear(job.work)
    plain = {"identity": job.plain, "described": dict(job.described)}
    write_text(job.work / DESCRIPTION, json.dumps(plain, indent=2) + "\n")
    return False


def is_work(path: Path) -> bool:
    """Whether a folder is the hidden one of unfinished work."""
    return UNFINISHED.fullmatch(path.name) is not None and (path / DESCRIPTION).is_file()


def work_beside(path: Path) -> Path | None:
    """The hidden folder of unfinished work that makes `path`."""
    parent = path.absolute().parent
    if not parent.is_dir():
        return None
    return next(
        (each for each in sorted(parent.glob(f".{glob.escape(path.name)}.*")) if is_work(each)),
        None,
    )


def read_identity(work: Path) -> dict[str, Any] | None:
    """What a hidden folder records about its job; None if it cannot be read."""
    try:
        plain = read_json(work / DESCRIPTION)
        return {"identity": dict(plain["identity"]), "described": dict(plain["described"])}
    except (OSError, ValueError, KeyError, TypeError):
        return None


def differences(job: Job, other: Mapping[str, Mapping[str, Any]]) -> str:
    """In words, how another job differs; settings by name and by the other's value.

    `other` has its "identity" and, if any, what is "described".
    """
    mine, others = job.plain, other["identity"]
    described = {**others, **other.get("described", {})}
    found = []
    for name in dict.fromkeys([*job.words, *mine, *others]):
        one, two = mine.get(name), others.get(name)
        if one == two:
            continue
        words = job.words.get(name, f"another {name}")
        if "{}" in words:
            words = words.format(described.get(name))
        elif isinstance(one, dict) and isinstance(two, dict):
            names = [key for key in dict.fromkeys([*one, *two]) if one.get(key) != two.get(key)]
            words += f" ({', '.join(f'{key} = {two.get(key)}' for key in names[:MOST_SHOWN])})"
        found.append(words)
    return ", ".join(found) or "another format"


def resumable(error: StorageError, job: Job) -> StorageError:
    """The error for a full disk, with what happens to the work so far."""
    return StorageError(
        error.problem,
        "Nothing that was there before has changed; free some space and run the same command "
        f"again to resume from {job.work}, or delete that folder.",
    )


def tidy(job: Job) -> None:
    """Remove what a process left behind if it was killed after the output was complete.

    Leaves the hidden folder alone while another process works in it.
    """
    remove_replaced(job.output)
    if job.work.is_dir():
        with contextlib.suppress(UsageError), exclusive(job.work / LOCK, "busy", "wait"):
            discard(job.work, job.output.absolute())


def has_leftovers(job: Job) -> bool:
    """Whether there is anything for `tidy` to remove."""
    return job.work.exists() or bool(replaced(job.output))


def remove_replaced(output: Path) -> None:
    """Remove earlier folders of `output` that a killed process left behind."""
    for stale in replaced(output):
        shutil.rmtree(stale, ignore_errors=True)


def replaced(output: Path) -> list[Path]:
    """Folders beside `output` that were about to be removed."""
    output = output.absolute()
    return list(output.parent.glob(f".{glob.escape(output.name)}.old-*"))


def clear(work: Path) -> None:
    """Remove everything in a hidden folder except its lock. Raises StorageError."""
    with storage_errors(work):
        for path in work.iterdir():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            elif path.name != LOCK:
                path.unlink()


def parsed(line: bytes) -> Note | None:
    """The note of a line; None if it is torn."""
    try:
        note = parse_json(line)
    except ValueError:
        return None
    return note if isinstance(note, dict) and line.endswith(b"\n") else None


def append_durably(path: Path, data: bytes) -> int:
    """Append to a file, wait until it is on disk, and return its new end."""
    with storage_errors(path), open(path, "ab") as handle:
        handle.write(data)
        handle.flush()
        os.fsync(handle.fileno())
        return handle.tell()


def digest_of(values: Iterable[object]) -> str:
    """The SHA-256 of some values in order, in hexadecimal; each counts by its `repr`."""
    digest = hashlib.sha256()
    for value in values:
        digest.update(repr(value).encode("utf-8", "surrogatepass") + b"\n")
    return digest.hexdigest()


class Results:
    """Results kept in a folder, each in a small JSON file named by the digest of its key.

    A key is everything that the result depends on, as JSON; its first item names the kind.
    """

    def __init__(self, folder: Path | None) -> None:
        """`folder`: None keeps nothing."""
        self.folder = folder

    def path(self, key: Sequence[object], folder: Path) -> Path:
        """The file of a result."""
        digest = hashlib.sha256(json.dumps(list(key)).encode()).hexdigest()
        return folder / f"{key[0]}-{digest[:32]}.json"

    def get(self, key: Sequence[object], parse: Callable[[Any], Any]) -> Any:
        """A kept result, or None if none can be read."""
        if self.folder is None:
            return None
        try:
            return parse(read_json(self.path(key, self.folder)))
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None

    def put(self, key: Sequence[object], result: Any) -> None:
        """Keep a result. Raises StorageError."""
        if self.folder is not None:
            write_text(self.path(key, self.folder), json.dumps(result) + "\n")
