"""Which title a redirect leads to in the end, kept on disk: a wiki has millions of them."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from polyrank.errors import StorageError

LONGEST_CHAIN = 32
WAITING = 10_000
CACHE_KIBIBYTES = 65_536


class Redirects:
    """Titles and the titles they lead to. A file of before is begun anew."""

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
        """Let go of the file."""
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
            f"Writing {self.path} failed: {error}.", "Free some space, and run the same again."
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
        """Where a title leads at once, or None if it is no redirect."""
        row = self.run("SELECT target FROM redirects WHERE title = ?", (title,)).fetchone()
        return None if row is None else row[0]

    def resolve(self, title: str) -> str:
        """Where a title leads in the end; itself if it is no redirect, or one that never ends."""
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
