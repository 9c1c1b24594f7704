"""Negatives for every example, written to a file block by block.

A run that was interrupted goes on after its last block. Knows nothing of the command line.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from polyrank.config import to_mapping
from polyrank.data.examples import example_line, parse_example
from polyrank.errors import DataError, UsageError
from polyrank.jobs import digest_of
from polyrank.progress import Say, bar, silent
from polyrank.records import Example
from polyrank.training.journal import Journal, open_journal
from polyrank.training.negatives.config import BLOCK, NegativesConfig
from polyrank.training.negatives.filtering import choose
from polyrank.training.negatives.methods import Method
from polyrank.training.negatives.pool import Numbered, Pool, Proposer
from polyrank.training.teaching.teacher import Teacher

SHOWN = 3
COUNTS = {
    "examples": "examples written",
    "kept": "negatives kept",
    "filled": "of them random, to fill up",
    "proposed": "candidates proposed",
    "right": "dropped: known to be right",
    "outside_window": "dropped: outside of the ranks",
    "too_close": "dropped: scored too close to the response",
    "false_negatives": "dropped: right, says the cross-encoder",
    "short": "examples with too few negatives",
    "without": "examples without any",
    "left_out": "examples left out",
}
"""What is counted, with the words for people."""


@dataclass(frozen=True, kw_only=True)
class MiningResult:
    """What a run found."""

    output: Path
    counts: dict[str, int]
    """By the names in `COUNTS`."""
    shown: list[Example]
    """The first examples that have negatives, to look at."""


def mine(
    pool: Pool,
    method: Method,
    output: str | Path,
    config: NegativesConfig,
    *,
    cross: Any = None,
    restart: bool = False,
    block_size: int = BLOCK,
    progress: bool = False,
    say: Say = silent,
) -> MiningResult:
    """Find negatives for the examples of a pool and write them as JSONL of examples.

    The examples lose what negatives they had. `cross` is a cross-encoder that filters what is
    right, where the limits of `config` say so, and whose scores are written with the examples.
    Interrupted, the same call goes on where it was. Raises DataError where no example got any
    negative or the first rank lies below the last candidate, UsageError for a cross-encoder of
    another kind or an unfinished run with other settings.
    """
    output = Path(output)
    teacher = None if cross is None else Teacher(cross, "The cross-encoder that filters")
    require_sense(pool, method, output, config, teacher)
    identity = {
        **method.identity,
        "cross": None if teacher is None else teacher.fingerprint(),
        "settings": to_mapping(config),
        "examples": digest_of(pool.examples),
        "candidates": digest_of(pool.candidates),
    }
    with open_journal(work_folder(output), identity, restart=restart, job="mining") as journal:
        done = journal.total("read")
        if done:
            say(f"Going on after {done:,} of {len(pool.examples):,} examples.")
        if done < len(pool.examples):
            proposer = method.make(pool, config, journal.folder)
            advance_all(pool, proposer, config, teacher, journal, block_size, progress)
        counts = {name: journal.total(name) for name in COUNTS}
        if not counts["kept"]:
            shutil.rmtree(journal.folder, ignore_errors=True)
            raise nothing_found(method, counts)
        shown = list(islice(with_negatives(journal), SHOWN))
        journal.finish(output)
    return MiningResult(output=output, counts=counts, shown=shown)


def work_folder(output: Path) -> Path:
    """Where a run that makes `output` keeps what it has."""
    output = output.absolute()
    return output.with_name(f".{output.name}.mining")


def advance_all(
    pool: Pool,
    proposer: Proposer,
    config: NegativesConfig,
    teacher: Teacher | None,
    journal: Journal,
    block_size: int,
    progress: bool,
) -> None:
    """Work on the blocks that are not in the journal."""
    start, total = journal.total("read"), len(pool.examples)
    with bar("Finding negatives" if progress else None, total=total) as advance:
        advance(start)
        for first in range(start, total, block_size):
            block = [
                Numbered(first + place, example)
                for place, example in enumerate(pool.examples[first : first + block_size])
            ]
            proposals = proposer.propose(block)
            chosen, counts = choose(
                block, proposals, pool, config, ranked=proposer.ranked, cross=teacher
            )
            journal.append(map(example_line, chosen), {**counts, "read": len(block)})
            advance(len(block))


def require_sense(
    pool: Pool, method: Method, output: Path, config: NegativesConfig, teacher: Teacher | None
) -> None:
    """Refuse settings that cannot give negatives, or that would be without effect."""
    if output.is_dir():
        raise UsageError(f"{output} is a folder.", "Give the path of a file for the negatives.")
    if config.cross_limits and teacher is None:
        raise UsageError(
            "Limits on the scores of a cross-encoder were given, but no cross-encoder.",
            "Give one (--cross), or leave the limits out.",
        )
    if method.ranked and config.from_rank > len(pool.candidates):
        raise DataError(
            f"The first rank to take is {config.from_rank}, but there are only "
            f"{len(pool.candidates)} candidates.",
            "Choose a smaller from_rank (--from-rank).",
        )


def with_negatives(journal: Journal) -> Iterator[Example]:
    """The written examples that have negatives."""
    for line in journal.lines():
        example = parse_example(json.loads(line))
        if example.negatives:
            yield example


def nothing_found(method: Method, counts: dict[str, int]) -> DataError:
    """The error of a run without negatives, with what dropped them."""
    dropped = [
        f"{counts[name]:,} {COUNTS[name].removeprefix('dropped: ')}"
        for name in ("right", "outside_window", "too_close", "false_negatives")
        if counts[name]
    ]
    words = f" ({'; '.join(dropped)})" if dropped else ""
    remedy = "Widen the ranks, relax the margins, or give more candidates."
    if method.name == "dialogue":
        remedy = "Give contexts of several turns, or choose another method."
    return DataError(
        f"No negatives were found for any example: of {counts['proposed']:,} candidates proposed "
        f"none was left{words}.",
        remedy,
    )
