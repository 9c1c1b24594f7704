"""`polyrank index add`, `delete`, `compact` and `verify`: an index that is there.

An interrupted change leaves the index as it was, and searches continue while a change runs.
"""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from polyrank.cli.command import command
from polyrank.cli.flags import Options
from polyrank.cli.options import CANDIDATES, InferenceOptions, option, positional
from polyrank.cli.output import Output
from polyrank.display.words import took

INDEX = "The folder of an index."


@dataclass(frozen=True, kw_only=True)
class IndexOptions(Options):
    """Options of the commands that need nothing but an index."""

    index: Path = positional("INDEX", help=INDEX)


@dataclass(frozen=True, kw_only=True)
class AddOptions(InferenceOptions):
    """Options of `polyrank index add`."""

    index: Path = positional("INDEX", help=INDEX)
    candidates: Path = positional(
        "FILE",
        help="The candidates to add: " + CANDIDATES,
    )
    replace: bool = option(
        False, help="Replace candidates that have the same id, instead of refusing the file."
    )


@dataclass(frozen=True, kw_only=True)
class DeleteOptions(Options):
    """Options of `polyrank index delete`."""

    index: Path = positional("INDEX", help=INDEX)
    ids: Path = positional("FILE", help="The ids of the candidates to delete, one per line.")


def interrupted(options: AddOptions | DeleteOptions | IndexOptions) -> str:
    """The words after Ctrl-C."""
    return f"The index {options.index} is unchanged."


@command("index add", AddOptions, interrupted=interrupted)
def add(options: AddOptions, output: Output) -> None:
    """Add the candidates in a file to an index.

    All of them are added or, if any cannot be, none. An interrupted change leaves the index as it
    was, and searches continue while it runs.
    """
    from polyrank.retrieval.index import Index

    with Index.open(
        options.index,
        device=options.device,
        dtype=options.dtype,
        batch_tokens=options.batch_tokens,
        engine=options.engine,
    ) as opened:
        started = time.perf_counter()
        before = len(opened)
        count = opened.add(options.candidates, replace=options.replace)
        seconds = time.perf_counter() - started
        now = len(opened)
    replaced = before + count - now
    output.say(
        f"The index {options.index} has {now:,} candidates: {count - replaced:,} added, "
        f"{replaced:,} replaced, {took(seconds, count, 'candidates')}"
    )
    output.result(
        {
            "index": options.index,
            "num_added": count,
            "num_replaced": replaced,
            "num_candidates": now,
            "seconds": seconds,
        }
    )


@command("index delete", DeleteOptions, interrupted=interrupted)
def delete(options: DeleteOptions, output: Output) -> None:
    """Delete candidates from an index by their ids.

    All of them are deleted or, if any id is unknown, none. Their space is freed by `polyrank index
    compact`.
    """
    from polyrank.retrieval.engine import delete_listed
    from polyrank.retrieval.index import open_engine

    with contextlib.closing(open_engine(options.index)) as engine:
        count = delete_listed(engine, options.ids)
        left = len(engine)
    output.say(f"The index {options.index} has {left:,} candidates: {count:,} deleted")
    output.result({"index": options.index, "num_deleted": count, "num_candidates": left})


@command("index compact", IndexOptions, interrupted=interrupted)
def compact(options: IndexOptions, output: Output) -> None:
    """Free the space of deleted candidates and merge shards."""
    from polyrank.retrieval.index import open_engine

    with contextlib.closing(open_engine(options.index)) as engine:
        before = engine.num_bytes
        engine.compact()
        after = engine.num_bytes
        freed = None if before is None or after is None else before - after
        count = len(engine)
    what = "Milvus was asked to compact" if freed is None else f"{freed / 1e6:,.1f} MB freed"
    output.say(f"{what}; the index {options.index} has {count:,}")
    output.result({"index": options.index, "num_bytes_freed": freed, "num_candidates": count})


@command("index verify", IndexOptions)
def verify(options: IndexOptions, output: Output) -> None:
    """Compare every file of an index with its checksum."""
    from polyrank.retrieval.index import open_engine

    with contextlib.closing(open_engine(options.index)) as engine:
        engine.verify()
        engine.refresh()
        result: dict[str, Any] = {"index": options.index, "num_candidates": len(engine)}
        manifest = engine.manifest
        what = "the collection, its index and its count are those that were made"
        if manifest is not None:
            files, size = len(manifest.files), engine.num_bytes or 0
            result |= {
                "num_files": files,
                "num_bytes": size,
                "generation": manifest.generation,
            }
            what = f"{files:,} files, {size / 1e6:,.1f} MB, are byte for byte what was written"
    output.say(
        f"The index {options.index} is intact: {what}; {result['num_candidates']:,} candidates"
    )
    output.result(result)
