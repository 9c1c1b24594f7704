"""What a corpus is made from: sources that are detected, described and read.

A kind of source is one class in a module of its own: its name, how a file of it looks, its
settings as fields, how it is read. `detection` lists those that files can be; others, such as a
documentation that is no file, are made by callers and given to `convert`. Knows no format.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from polyrank.data.files import COMPRESSIONS, read_start
from polyrank.errors import DataError
from polyrank.records import Document
from polyrank.storage import sha256_of

UNKNOWN_LANGUAGE = "und"
HASHED_UP_TO = 1 << 30
START = 1 << 16


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
        Raises DataError if there is none.
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
