"""`polyrank index`: candidates to an index folder."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from polyrank.cli.command import command
from polyrank.cli.models import ModelOptions, load
from polyrank.cli.options import option, positional
from polyrank.cli.output import Output


@dataclass(frozen=True, kw_only=True)
class IndexOptions(ModelOptions):
    """Options of `polyrank index`."""

    model: Path = positional("MODEL", help="The folder of a saved bi- or poly-encoder.")
    candidates: Path = option(
        help="The candidates: one text a line, or JSONL of objects with text and, optionally, id."
    )
    output: Path = option(help="The folder of the index; an index that stands there is replaced.")
    copy_model: bool = option(
        True, help="Keep a copy of the model in the index, or only name the model's folder."
    )


def interrupted(options: IndexOptions) -> str:
    """The words after Ctrl-C."""
    return (
        f"What stood at {options.output} before is unchanged, and the vectors made so far are "
        "kept: run the same command again to go on."
    )


@command("index", IndexOptions, interrupted=interrupted)
def index(options: IndexOptions, output: Output) -> None:
    """Encode candidates once and write them to an index that `polyrank search` opens.

    The file may be of any size. An interrupted run goes on where it was when it is started again.
    """
    from polyrank.retrieval.index import Index

    model = load(options.model, options)
    started = time.perf_counter()
    built = Index.build(model, options.candidates, options.output, copy_model=options.copy_model)
    seconds = time.perf_counter() - started
    output.say(f"{len(built):,} candidates in the index {options.output}, {seconds:.1f} s")
    output.say(f'Search it with: polyrank search {options.output} "your text"')
    output.result(
        {
            "index": options.output,
            "model": options.model,
            "num_candidates": len(built),
            "seconds": seconds,
        }
    )
