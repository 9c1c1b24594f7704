"""What a corpus is made from: sources that are detected, described and read.

A kind of source is one class in a module of its own: its name, how a file of it looks, its
settings as fields, how it is read. `detection` lists those that files can be; others, such as a
documentation that is not a file, are made by callers and given to `convert`. Of formats, knows JSON
lines alone.
"""

from __future__ import annotations

import dataclasses
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from polyrank.data.files import COMPRESSIONS, Blame, read_start
from polyrank.errors import DataError
from polyrank.records import Document
from polyrank.storage import sha256_of

UNKNOWN_LANGUAGE = "und"
HASHED_UP_TO = 1 << 30
START = 1 << 16
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
    """Documents, `Dropped` and `Redirect`; and, where there is a `convert`, what it takes."""
    language: str
    convert: Convert | None = None


class Glimpse:
    """What the kind of a file is told by: its name and its first bytes, read when asked for."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def suffix(self) -> str:
        """The suffix in small letters, below that of a compression."""
        suffixes = [suffix.lower() for suffix in self.path.suffixes]
        return next((one for one in reversed(suffixes) if one not in COMPRESSIONS), "")

    @cached_property
    def start(self) -> bytes:
        """The first bytes, decompressed. Raises DataError."""
        return read_start(self.path, START)

    def fields(self, names: Iterable[str]) -> set[str]:
        """Which of some names the JSON object on the first line has. Raises DataError."""
        line = self.start.partition(b"\n")[0].decode("utf-8", "replace")
        try:
            first = json.loads(line)
        except ValueError:
            # a first line longer than what was read: names look like this, and so do few texts
            return {name for name in names if line.startswith("{") and f'"{name}":' in line}
        return set(first) & set(names) if isinstance(first, dict) else set()


@dataclass(frozen=True, kw_only=True)
class Source(ABC):
    """Something that a corpus can be made from.

    A subclass is a frozen dataclass: its fields but `path` are its settings, and a corpus made with
    other settings is another one.
    """

    name: ClassVar[str]
    """The kind, in one word, as `--kind` takes it."""
    usual_language: ClassVar[str] = UNKNOWN_LANGUAGE
    has_pages: ClassVar[bool] = False
    """Whether items are converted in several processes."""

    path: Path
    language: str | None = None
    """By which sentences are split; by default, the one that the source states."""

    @classmethod
    @abstractmethod
    def recognises(cls, glimpse: Glimpse) -> bool:
        """Whether a file looks like this kind."""

    @classmethod
    def setting_names(cls) -> list[str]:
        """The names of the settings."""
        return [field.name for field in dataclasses.fields(cls) if field.name != "path"]

    def settings(self) -> dict[str, Any]:
        """The kind and the settings, as JSON."""
        values = {name: getattr(self, name) for name in self.setting_names()}
        return {"kind": self.name, **values}

    def describe(self) -> dict[str, Any]:
        """What tells this source apart from others, as JSON; its "name" is for people.

        A file by its content up to a GiB, a larger one by its size and when it was last changed.
        Raises DataError if there is no such file.
        """
        if not self.path.is_file():
            is_folder = self.path.is_dir()
            problem = "This is a folder, not a file." if is_folder else "There is no such file."
            raise DataError(problem, "Give the path of a file.", path=self.path)
        status = self.path.stat()
        described: dict[str, Any] = {"name": self.path.name, "bytes": status.st_size}
        if status.st_size <= HASHED_UP_TO:
            return described | {"sha256": sha256_of(self.path)}
        changed = datetime.fromtimestamp(status.st_mtime, timezone.utc)
        return described | {"modified": changed.isoformat(timespec="microseconds")}

    @abstractmethod
    def read(self, scratch: Path) -> Documents:
        """Yield the documents. `scratch` is an empty folder for what has to be put aside."""

    def open(self, scratch: Path) -> AbstractContextManager[Stream]:
        """Open the source. One that is converted in several processes overrides this."""
        language = self.language or self.usual_language
        return nullcontext(Stream(items=self.read(scratch), language=language))


def identifier_of(record: dict[str, Any], number: int, blame: Blame, noun: str) -> str:
    """The id of a record, by default the number of its line; `noun` says what the record is."""
    identifier = record.get("id")
    if identifier is None:
        return str(number)
    if not isinstance(identifier, (str, int)) or isinstance(identifier, bool):
        raise blame(
            f"The field 'id' must be a text or a whole number, got {identifier!r}.",
            f"Change it, or leave it out to name the {noun} by its line number.",
        )
    return encodable(str(identifier))


def encodable(text: str) -> str:
    """The text with U+FFFD for halves of characters; every character keeps its place."""
    return LONE_SURROGATE.sub("\ufffd", text)
