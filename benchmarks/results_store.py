"""Results of a benchmark by configuration, in a JSON file that is whole after every one of them.

A benchmark that is interrupted and started again computes only what the file does not hold.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.timing import machine
from polyrank.storage import write_text


class ResultsStore:
    """Results by key. A key is made of all that a result depends on."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.content: dict[str, Any] = {"machine": [], "results": {}}
        if path.is_file():
            self.content = json.loads(path.read_text(encoding="utf-8"))

    def get(self, settings: Mapping[str, Any], compute: Callable[[], dict[str, Any]]) -> Any:
        """The result of the settings: from the file, or computed and written to it."""
        key = key_of(settings)
        if key not in self.content["results"]:
            print(f"computing {key}", flush=True)
            self.content["results"][key] = compute()
            if machine() not in self.content["machine"]:
                self.content["machine"].append(machine())
            self.write()
        return self.content["results"][key]

    def write(self) -> None:
        """Write the file at once, a line for each result."""
        lines = [
            f"{json.dumps(key)}: {json.dumps(result)}"
            for key, result in self.content["results"].items()
        ]
        machines = json.dumps(self.content["machine"])
        body = ",\n".join(lines)
        write_text(self.path, f'{{"machine": {machines},\n"results": {{\n{body}\n}}}}\n')


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
