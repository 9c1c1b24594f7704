"""Redirects: which title leads to which in the end, and the links of a corpus that they change.

They are kept on disk, since a wiki has millions of them.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from polyrank.errors import StorageError
from polyrank.pretraining.corpus.schema import load_pyarrow

LONGEST_CHAIN = 32
WAITING = 10_000
CACHE_KIBIBYTES = 65_536
NESTING = ("sections", "paragraphs", "links")
Resolve = Callable[[str], str]


class Redirects:
    """Titles and the titles they lead to. A file that is there is replaced."""

    def __init__(self, path: Path) -> None:
        path.unlink(missing_ok=True)
        self.path = path
        self.waiting: list[tuple[str, str]] = []
        self.database = sqlite3.connect(path, isolation_level=None)
        # made again by the next run if this one ends early, so nothing needs to survive a crash
        self.run("PRAGMA journal_mode = OFF")
        self.run("PRAGMA synchronous = OFF")
        self.run(f"PRAGMA cache_size = -{CACHE_KIBIBYTES}")
        self.run("CREATE TABLE redirects (title TEXT PRIMARY KEY, target TEXT) WITHOUT ROWID")

    def close(self) -> None:
        """Close the file."""
        self.database.close()

    def run(self, command: str, values: tuple[Any, ...] = ()) -> sqlite3.Cursor:
        """One command. Raises StorageError."""
        try:
            return self.database.execute(command, values)
        except sqlite3.Error as error:
            raise self.failed(error) from error

    def failed(self, error: sqlite3.Error) -> StorageError:
        """The error of a disk that refuses."""
        return StorageError(
            f"Writing {self.path} failed: {error}.",
            "Free some space, and run the same command again.",
        )

    def add(self, title: str, target: str) -> None:
        """Remember a redirect; the last of a title counts."""
        self.waiting.append((title, target))
        if len(self.waiting) >= WAITING:
            self.flush()

    def flush(self) -> None:
        """Write what waits."""
        if not self.waiting:
            return
        self.run("BEGIN")
        try:
            self.database.executemany("REPLACE INTO redirects VALUES (?, ?)", self.waiting)
        except sqlite3.Error as error:
            raise self.failed(error) from error
        self.run("COMMIT")
        self.waiting.clear()

    def target(self, title: str) -> str | None:
        """Where a title leads at once, or None if it is not a redirect."""
        row = self.run("SELECT target FROM redirects WHERE title = ?", (title,)).fetchone()
        return None if row is None else row[0]

    def resolve(self, title: str) -> str:
        """Where a title leads in the end; itself if it is not a redirect, or leads in a circle."""
        seen = title
        for _ in range(LONGEST_CHAIN):
            target = self.target(seen)
            if target is None:
                return seen
            if target == title:
                return title
            seen = target
        return title

    def loops(self) -> Iterator[str]:
        """Yield the titles that lead nowhere, in their order."""
        self.flush()
        for title, target in self.run("SELECT title, target FROM redirects ORDER BY title"):
            if target == title or self.resolve(title) == title:
                yield title


def with_targets(batch: Any, resolve: Resolve) -> tuple[Any, int]:
    """A record batch of articles with the targets resolved, and how many have changed."""
    pa = load_pyarrow()
    place = batch.schema.get_field_index(NESTING[0])
    column, count = replaced(batch.column(place), NESTING[1:], resolve)
    columns = [
        column if number == place else batch.column(number) for number in range(batch.num_columns)
    ]
    return pa.record_batch(columns, batch.schema), count


def replaced(lists: Any, names: tuple[str, ...], resolve: Resolve) -> tuple[Any, int]:
    """A list array of structs with the targets in the field `names` leads to resolved."""
    pa = load_pyarrow()
    kind = lists.type.value_type
    values = lists.values
    name = names[0] if names else "target"
    place = kind.get_field_index(name)
    fields = [values.field(number) for number in range(kind.num_fields)]
    if names:
        fields[place], count = replaced(fields[place], names[1:], resolve)
    else:
        fields[place], count = resolved_titles(fields[place], resolve)
    structs = pa.StructArray.from_arrays(fields, fields=list(kind))
    return pa.ListArray.from_arrays(lists.offsets, structs, type=lists.type), count


def resolved_titles(titles: Any, resolve: Resolve) -> tuple[Any, int]:
    """A string array with each title resolved, and how many have changed."""
    pa = load_pyarrow()
    encoded = titles.dictionary_encode()
    before = encoded.dictionary.to_pylist()
    after = [resolve(title) for title in before]
    if after == before:
        return titles, 0
    is_changed = [old != new for old, new in zip(before, after, strict=True)]
    count = sum(map(is_changed.__getitem__, encoded.indices.to_pylist()))
    return pa.array(after, pa.string()).take(encoded.indices), count
