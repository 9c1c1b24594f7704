"""`polyrank info` and `polyrank index info`: what a folder or a file is."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from polyrank.cli.command import command
from polyrank.cli.flags import Options
from polyrank.cli.index_changes import IndexOptions
from polyrank.cli.options import positional
from polyrank.cli.output import Output
from polyrank.errors import IndexFolderError, UsageError

if TYPE_CHECKING:
    from polyrank.cli.found import Finding


UNSET: tuple[Any, ...] = (None, {}, [], "")
"""Values that people are not shown."""


@dataclass(frozen=True, kw_only=True)
class InfoOptions(Options):
    """Options of `polyrank info`."""

    path: Path = positional("PATH", help="A folder or a file.")


@command("info", InfoOptions)
def info(options: InfoOptions, output: Output) -> None:
    """Say what a model, index, corpus, data file or unfinished run is.

    Of a model: architecture, encoder, data, dev figures, size and fingerprint. Of an index: its
    model, candidates, storage, backend and measured recall. Of data: format, columns and number of
    records. Of unfinished work: how far it is and how to resume. No model is loaded.
    """
    from polyrank.cli.found import find
    from polyrank.jobs import work_beside

    if not options.path.exists() and work_beside(options.path) is None:
        raise UsageError(f"There is no file or folder {options.path}.", "Check the path.")
    say(options.path, find(options.path), output)


@command("index info", IndexOptions)
def index_info(options: IndexOptions, output: Output) -> None:
    """Say what is in an index and which model made it."""
    from polyrank.cli.found import an_index, find
    from polyrank.retrieval.store.manifest import read_plain

    read_plain(options.index)  # raises where it is not an index
    found = an_index(options.index)
    if found is None:
        raise IndexFolderError(
            f"{options.index} is {find(options.index).words}, not an index.",
            "Give the folder that `polyrank index build` wrote.",
        )
    say(options.index, found, output)


def say(path: Path, found: Finding, output: Output) -> None:
    """Tell people and programs."""
    output.say(f"{path} is {found.words}.")
    facts = {name: value for name, value in found.facts.items() if value not in UNSET}
    widest = max(map(len, facts), default=0)
    for name, value in facts.items():
        output.say(f"  {name:<{widest}}  {shown(name, value)}")
    if found.hint:
        output.say(found.hint)
    output.result({"path": path, "kind": found.kind, "is": found.words, **found.facts})


def shown(name: str, value: Any) -> str:
    """A fact, for people."""
    if name == "bytes":
        return size(value)
    if isinstance(value, Mapping):
        given = {key: each for key, each in value.items() if each not in UNSET}
        return ", ".join(f"{key} {shown(key, each)}" for key, each in given.items())
    if isinstance(value, list):
        return ", ".join(shown(name, each) for each in value)
    if name.endswith("prompt") or name in ("context", "candidate"):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, bool) or value is None:
        return json.dumps(value)
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def size(number: int) -> str:
    """A number of bytes, for people."""
    for unit, power in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if number >= power:
            return f"{number / power:,.1f} {unit}"
    return f"{number:,} bytes"
