"""The sources of corpora: how they are detected, described and read.

A kind of source is one class in a module of its own: its name, how a file of it looks, its
settings as fields, how it is read. `detection` lists those that files can be; others, such as a
documentation that is not a file, are made by callers and given to `convert`. Of formats, knows JSON
lines alone.
"""

from __future__ import annotations

import dataclasses
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import cached_property
from glob import glob
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from polyrank.data.files import COMPRESSIONS, Blame, read_start
from polyrank.errors import DataError
from polyrank.folder_files import sha256_of
from polyrank.jobs import digest_of
from polyrank.json_text import parse_json
from polyrank.records import Document

UNKNOWN_LANGUAGE = "und"
HASHED_UP_TO = 1 << 30
START = 1 << 16
PLACES = ("path", "others")
"""The fields of a source that say where it is."""
LONE_SURROGATE = re.compile("[\ud800-\udfff]")
"""Half of a character: JSON can write it (`\\ud83d`), UTF-8 cannot."""


class Dropped(NamedTuple):
    """A page or record that did not become a document."""

    reason: str
    """One of a few short words, to count by: `redirect`, `disambiguation`, `broken markup`, …"""
    where: str
    """Its title, line or offset, for the report."""


class Redirect(NamedTuple):
    """A title that leads to another."""

    title: str
    target: str


Documents = Iterator[Document | Dropped]
"""What can be read of a source, one at a time. Raises DataError, with the place, where it ends."""
Convert = Callable[[Sequence[Any]], Sequence[Document | Dropped]]
"""From what was read to documents, in any process; can be pickled."""


@dataclass(frozen=True, kw_only=True)
class Stream:
    """A source that is open."""

    items: Iterable[Any]
    """Documents, `Dropped` and `Redirect`; and the input of `convert`, if there is one."""
    language: str
    convert: Convert | None = None


class Glimpse:
    """What identifies the kind of a file: its name and its first bytes, read when asked for."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def suffix(self) -> str:
        """The suffix in lower case, without that of a compression."""
        suffixes = [suffix.lower() for suffix in self.path.suffixes]
        return next((one for one in reversed(suffixes) if one not in COMPRESSIONS), "")

    @cached_property
    def start(self) -> bytes:
        """The first bytes, decompressed; none of a folder. Raises DataError."""
        return b"" if self.path.is_dir() else read_start(self.path, START)

    def fields(self, names: Iterable[str]) -> set[str]:
        """Which of some names the JSON object on the first line has. Raises DataError."""
        line = self.start.partition(b"\n")[0].decode("utf-8", "replace")
        try:
            first = parse_json(line)
        except ValueError:
            # a first line longer than what was read: names look like this, and so do few texts
            return {name for name in names if line.startswith("{") and f'"{name}":' in line}
        return set(first) & set(names) if isinstance(first, dict) else set()


@dataclass(frozen=True, kw_only=True)
class Source(ABC):
    """A source that a corpus can be made from.

    A subclass is a frozen dataclass: its fields but `path` are its settings, and a corpus made with
    other settings is another one.
    """

    name: ClassVar[str]
    """The kind, in one word, as `--format` takes it."""
    usual_language: ClassVar[str] = UNKNOWN_LANGUAGE
    has_pages: ClassVar[bool] = False
    """Whether items are converted in several processes."""

    path: Path
    language: str | None = None
    """The language for splitting sentences; by default, the one that the source states."""

    @classmethod
    @abstractmethod
    def recognises(cls, glimpse: Glimpse) -> bool:
        """Whether a file looks like this kind."""

    @classmethod
    def setting_names(cls) -> list[str]:
        """The names of the settings."""
        return [field.name for field in dataclasses.fields(cls) if field.name not in PLACES]

    def settings(self) -> dict[str, Any]:
        """The kind and the settings, as JSON."""
        values = {name: getattr(self, name) for name in self.setting_names()}
        return {"kind": self.name, **values}

    def describe(self) -> dict[str, Any]:
        """What identifies this source, as JSON; its "name" is for people.

        Up to one GiB a file is identified by its content, above by its size and time of change.
        Raises DataError if there is no such file.
        """
        return described_file(self.path)

    @abstractmethod
    def read(self, scratch: Path) -> Documents:
        """Yield the documents. `scratch` is an empty folder for temporary files."""

    def open(self, scratch: Path) -> AbstractContextManager[Stream]:
        """Open the source. One that is converted in several processes overrides this."""
        language = self.language or self.usual_language
        return nullcontext(Stream(items=self.read(scratch), language=language))


@dataclass(frozen=True, kw_only=True)
class FilesSource(Source):
    """A source of any number of files: each place is a file, a folder of files or a pattern."""

    others: tuple[Path, ...] = ()
    """More places, read together with `path`."""

    @classmethod
    @abstractmethod
    def takes(cls, path: Path) -> bool:
        """Whether a file of a folder is one to read, by its name."""

    @cached_property
    def files(self) -> tuple[Path, ...]:
        """The files, each once: by place, and in the order of their names within one.

        Of a folder, those that the kind takes, of folders below it too. Raises DataError for a
        place without a file.
        """
        return tuple(
            dict.fromkeys(file for place in (self.path, *self.others) for file in self.at(place))
        )

    def at(self, place: Path) -> list[Path]:
        """The files of one place. Raises DataError if there is none."""
        if place.is_dir():
            found = [path for path in files_below(place) if self.takes(path)]
            what = f"The folder has no files for a corpus of {self.name}."
        else:
            found = files_at(place)
            what = "There is no such file." if place.suffix else "There is no such file or folder."
        if not found:
            raise DataError(what, "Check the path.", path=place)
        return found

    def describe(self) -> dict[str, Any]:
        """What identifies the files, as JSON: for several, their number and a digest.

        Raises DataError if a place has no file.
        """
        if len(self.files) == 1:
            return described_file(self.files[0])
        described = [described_file(path) for path in self.files]
        return {
            "name": f"{self.path.name} and others, {len(described)} files",
            "bytes": sum(one["bytes"] for one in described),
            "sha256": digest_of(described),
        }


def described_file(path: Path) -> dict[str, Any]:
    """What identifies a file, as JSON. Raises DataError if there is none."""
    if not path.is_file():
        problem = "This is a folder, not a file." if path.is_dir() else "There is no such file."
        raise DataError(problem, "Give the path of a file.", path=path)
    status = path.stat()
    described: dict[str, Any] = {"name": path.name, "bytes": status.st_size}
    if status.st_size <= HASHED_UP_TO:
        return described | {"sha256": sha256_of(path)}
    changed = datetime.fromtimestamp(status.st_mtime, timezone.utc)
    return described | {"modified": changed.isoformat(timespec="microseconds")}


def files_below(folder: Path) -> list[Path]:
    """All files of a folder and of those below it, without hidden ones, in order of their names."""
    found = (path for path in folder.rglob("*") if path.is_file())
    is_shown = (
        path
        for path in found
        if not any(part.startswith(".") for part in path.relative_to(folder).parts)
    )
    return sorted(is_shown)


def files_at(place: Path) -> list[Path]:
    """The file at a place, or those that it matches as a pattern (`books/*.txt`), in order."""
    if place.is_file():
        return [place]
    return sorted(path for path in map(Path, glob(str(place), recursive=True)) if path.is_file())


def identifier_of(record: dict[str, Any], number: int, blame: Blame, noun: str) -> str:
    """The id of a record, by default the number of its line; `noun` says what the record is."""
    identifier = record.get("id")
    if identifier is None:
        return str(number)
    if not isinstance(identifier, (str, int)) or isinstance(identifier, bool):
        raise blame(
            f"The field 'id' must be a text or a whole number, got {identifier!r}.",
            f"Change it, or leave it out to use the line number of the {noun}.",
        )
    return encodable(str(identifier))


def encodable(text: str) -> str:
    """The text with U+FFFD for halves of characters; every character keeps its place."""
    return LONE_SURROGATE.sub("\ufffd", text)
