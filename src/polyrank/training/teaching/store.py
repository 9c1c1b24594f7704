"""Where a teacher's scores are kept: a file of lines, and beside it whose scores of what they are.

The file appears when it is complete; until then a hidden folder beside it holds what there is.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from polyrank.errors import UsageError
from polyrank.storage import write_text
from polyrank.training.journal import Journal, open_journal

NAMES = {
    "teacher": "another teacher",
    "records": "other data",
    "candidates": "other candidates",
    "methods": "pairs that were found in another way",
    "settings": "pairs that were chosen with other settings",
    "kind": "another kind of records",
}


class LabelStore:
    """One file of labels and its description."""

    def __init__(self, path: str | Path, identity: Mapping[str, Any]) -> None:
        """`identity`: the teacher, the data and all else that the labels depend on."""
        self.path = Path(path)
        self.identity: dict[str, Any] = json.loads(json.dumps(identity))

    @property
    def description(self) -> Path:
        """The file that says whose labels these are."""
        return self.path.with_name(f"{self.path.name}.teacher.json")

    def complete(self) -> bool:
        """Whether all labels are there. Raises UsageError for a file with others."""
        if self.path.is_dir():
            raise UsageError(f"{self.path} is a folder.", "Give the path of a file for the labels.")
        if not self.path.exists():
            return False
        if not self.description.is_file():
            raise UsageError(
                f"{self.path} exists and does not say which teacher's labels it holds: "
                f"{self.description.name} is missing.",
                "Choose another file for the labels (--labels), or move this one away.",
            )
        found = json.loads(self.description.read_text(encoding="utf-8"))
        names = {*found, *self.identity}
        other = [name for name in sorted(names) if found.get(name) != self.identity.get(name)]
        if other:
            words = " and ".join(NAMES.get(name, name) for name in other)
            raise UsageError(
                f"{self.path} holds labels of {words}.",
                "Choose another file for the labels (--labels), or discard these with --relabel.",
            )
        return True

    def discard(self) -> None:
        """Remove the labels and what says whose they are."""
        self.path.unlink(missing_ok=True)
        self.description.unlink(missing_ok=True)

    @contextlib.contextmanager
    def writing(self, *, relabel: bool) -> Iterator[Journal]:
        """A journal to write what is missing; at the end its lines become the file.

        An interrupted one is gone on with. Raises UsageError where an unfinished one with another
        identity is in the way.
        """
        path = self.path.absolute()
        folder = path.with_name(f".{path.name}.labelling")
        with open_journal(
            folder, self.identity, restart=relabel, job="labelling", flag="--relabel"
        ) as journal:
            yield journal
            write_text(self.description, json.dumps(self.identity, indent=2) + "\n")
            journal.finish(path)

    def filled(
        self, write: Callable[[Journal], None], *, relabel: bool, found: Callable[[], None]
    ) -> Iterator[str]:
        """The lines of the store, after `write` has added to the journal what is missing.

        `relabel` begins anew; `found` is called where the labels are all there already.
        """
        if relabel:
            self.discard()
        if self.complete():
            found()
        else:
            with self.writing(relabel=relabel) as journal:
                write(journal)
        return self.lines()

    def lines(self) -> Iterator[str]:
        """Yield the labels, line by line."""
        with open(self.path, encoding="utf-8") as handle:
            for line in handle:
                yield line.rstrip("\n")
