"""Results of a benchmark by configuration, in a JSON file that is whole after every one of them.

A benchmark that is interrupted and started again computes only what the file does not hold. Several
processes may add to one file.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.timing import machine
from polyrank.storage import write_text


class ResultsStore:
    """Results by key. A key is made of all that a result depends on."""

    def __init__(self, path: Path, *, names_machines: bool = True) -> None:
        """`names_machines`: whether the file says on which machines it was written."""
        self.path = path
        self.names_machines = names_machines
        self.content: dict[str, Any] = {"machine": [], "results": {}}
        self.read()

    @property
    def results(self) -> dict[str, Any]:
        """The results by key, as they were last read."""
        found: dict[str, Any] = self.content["results"]
        return found

    def get(self, settings: Mapping[str, Any], compute: Callable[[], dict[str, Any]]) -> Any:
        """The result of the settings: from the file, or computed and written to it."""
        key = key_of(settings)
        if key not in self.results:
            print(f"computing {key}", flush=True)
            self.add(key, compute())
        return self.results[key]

    def add(self, key: str, result: Mapping[str, Any]) -> None:
        """Write a result to the file at once, with what others have written to it meanwhile."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with alone_in(self.path.parent):
            self.read()
            self.results[key] = dict(result)
            if self.names_machines and machine() not in self.content["machine"]:
                self.content["machine"].append(machine())
            self.write()

    def read(self) -> None:
        """Read what the file holds."""
        if self.path.is_file():
            self.content = json.loads(self.path.read_text(encoding="utf-8"))

    def write(self) -> None:
        """Write the file at once, a line for each result that does not depend on other lines."""
        lines = [f"{json.dumps(key)}: {json.dumps(result)}" for key, result in self.results.items()]
        machines = json.dumps(self.content["machine"])
        body = "\n,".join(lines)
        write_text(self.path, f'{{"machine": {machines},\n"results": {{\n{body}\n}}}}\n')


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Wait until no other process is in here with the same folder."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def key_of(settings: Mapping[str, Any]) -> str:
    """Settings as one word each, in their order; those that are None are left out."""
    return " ".join(f"{name}={value}" for name, value in settings.items() if value is not None)


def table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """A markdown table; numbers with a point get three places, None is empty."""

    def cell(value: Any) -> str:
        if value is None:
            return ""
        return f"{value:.3f}" if isinstance(value, float) else str(value)

    lines = [columns, ["---"] * len(columns), *([cell(value) for value in row] for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
