"""Negatives for every example, block by block: written to a file, or kept in memory.

A call that writes resumes after its last block. Knows nothing of the command line.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

from polyrank.config import to_mapping
from polyrank.data.examples import example_line, parse_example
from polyrank.errors import DataError, UsageError
from polyrank.jobs import Job, LineJournal, digest_of, working
from polyrank.json_text import parse_json
from polyrank.models.cross_encoder import CrossEncoder
from polyrank.progress import Say, bar, silent
from polyrank.records import Example
from polyrank.training.negatives.config import BLOCK, NegativesConfig
from polyrank.training.negatives.filtering import choose
from polyrank.training.negatives.methods import Method
from polyrank.training.negatives.pool import Pool, numbered_blocks
from polyrank.training.teaching.teacher import Teacher, require_cross

SHOWN = 3
COUNTS = {
    "examples": "examples written",
    "kept": "negatives kept",
    "filled": "of them random, to make up the number",
    "replaced": "negatives that the examples had before, replaced",
    "proposed": "candidates proposed",
    "right": "dropped: known to be right",
    "outside_window": "dropped: outside the ranks",
    "too_close": "dropped: scored too close to the response",
    "false_negatives": "dropped: right according to the cross-encoder",
    "short": "examples with too few negatives",
    "without": "examples without any",
    "left_out": "examples left out",
}
"""What is counted, with the words for people."""
WORDS = {
    "method": "another method",
    "settings": "other settings",
    "examples": "other examples",
    "candidates": "other candidates",
    "cross": "another cross-encoder",
}


@dataclass(frozen=True, kw_only=True)
class MiningResult:
    """What a run found."""

    output: Path
    counts: dict[str, int]
    """By the names in `COUNTS`."""
    shown: list[Example]
    """The first examples that have negatives, to look at."""


def mine_to_file(
    pool: Pool,
    method: Method,
    output: str | Path,
    config: NegativesConfig,
    *,
    reranker: CrossEncoder | None = None,
    restart: bool = False,
    block_size: int = BLOCK,
    show_progress_bar: bool = False,
    say: Say = silent,
) -> MiningResult:
    """Find negatives for the examples of a pool and write the examples as JSONL. Negatives that the
    examples already have are replaced. `reranker` is a cross-encoder that drops what is right, by
    the limits of `config`; its scores are written with the examples. If interrupted, the same call
    resumes. Raises DataError where no example got any negative or the first rank lies below the
    last candidate, UsageError for a cross-encoder of another kind or an unfinished mining with
    other settings.
    """
    output = Path(output)
    teacher = None if reranker is None else filter_of(reranker)
    if output.is_dir():
        raise UsageError(f"{output} is a folder.", "Give the path of a file for the negatives.")
    require_sense(pool, method, config, teacher)
    job = mining_job(pool, method, output, config, teacher)
    shown: list[Example] = []
    with working(job, restart=restart) as work:
        journal = work.line_journal()
        start = journal.total("read")
        if start:
            say(f"Resuming after {start:,} of {len(pool.examples):,} examples.")
        if method.ranked:
            work.keep()  # an index may be built before the first block is finished
        blocks = mined_blocks(
            pool, method, config, teacher, work.folder, start, block_size, show_progress_bar
        )
        for chosen, found in blocks:
            journal.append_lines(map(example_line, chosen), found)
        counts = {name: journal.total(name) for name in COUNTS}
        if counts["kept"]:
            shown = list(islice(with_negatives(journal), SHOWN))
            work.place_file(journal.file)
    if not counts["kept"]:
        raise nothing_found(method, counts)
    return MiningResult(output=output, counts=counts, shown=shown)


def filter_of(reranker: CrossEncoder) -> Teacher:
    """What drops right answers. Raises UsageError for a model that is not a cross-encoder."""
    role = "The cross-encoder that filters"
    require_cross(reranker, role)
    return Teacher(reranker, role)


def mining_job(
    pool: Pool, method: Method, output: Path, config: NegativesConfig, teacher: Teacher | None
) -> Job:
    """The job that finds the negatives of a pool's examples."""
    return Job(
        output=output,
        doing="mining",
        noun="mining",
        identity={
            "method": dict(method.identity),
            "settings": to_mapping(config),
            "examples": digest_of(pool.examples),
            "candidates": digest_of(pool.candidates),
            "cross": None if teacher is None else teacher.fingerprint(),
        },
        words=WORDS,
    )


def mine_in_memory(
    pool: Pool,
    method: Method,
    config: NegativesConfig,
    *,
    reranker: CrossEncoder | None = None,
    block_size: int = BLOCK,
    show_progress_bar: bool = False,
) -> list[Example]:
    """The examples of a pool with the negatives that `mine_to_file` would write.

    Raises as `mine_to_file`.
    """
    teacher = None if reranker is None else filter_of(reranker)
    require_sense(pool, method, config, teacher)
    mined: list[Example] = []
    counts = Counter[str]()
    with TemporaryDirectory() as folder:
        blocks = mined_blocks(
            pool, method, config, teacher, Path(folder), 0, block_size, show_progress_bar
        )
        for chosen, found in blocks:
            mined += chosen
            counts.update(found)
    if not counts["kept"]:
        raise nothing_found(method, counts)
    return mined


def mined_blocks(
    pool: Pool,
    method: Method,
    config: NegativesConfig,
    teacher: Teacher | None,
    folder: Path,
    start: int,
    block_size: int,
    show_progress_bar: bool,
) -> Iterator[tuple[list[Example], dict[str, int]]]:
    """Yield the examples from `start` on with their negatives, in blocks, each with what was
    counted. The method may work in `folder`.
    """
    total = len(pool.examples)
    if start >= total:
        return
    proposer = method.make(pool, config, folder)
    described = "Finding negatives" if show_progress_bar else None
    with bar(described, total=total, unit="examples", done=start) as advance:
        for block in numbered_blocks(pool.examples, start, block_size):
            proposals = proposer.propose(block)
            chosen, counts = choose(
                block, proposals, pool, config, ranked=proposer.ranked, cross=teacher
            )
            yield chosen, {**counts, "read": len(block)}
            advance(len(block))


def require_sense(
    pool: Pool, method: Method, config: NegativesConfig, teacher: Teacher | None
) -> None:
    """Refuse settings that cannot give negatives or would have no effect."""
    if config.reranker_limits and teacher is None:
        raise UsageError(
            "Limits on the scores of a cross-encoder were given, but no cross-encoder.",
            "Give one (--reranker), or leave the limits out.",
        )
    if method.ranked and config.from_rank > len(pool.candidates):
        raise DataError(
            f"The first rank to take is {config.from_rank}, but there are only "
            f"{len(pool.candidates)} candidates.",
            "Choose a smaller from_rank (--from-rank).",
        )


def with_negatives(journal: LineJournal) -> Iterator[Example]:
    """The written examples that have negatives."""
    for line in journal.lines():
        example = parse_example(parse_json(line))
        if example.negatives:
            yield example


def nothing_found(method: Method, counts: Mapping[str, int]) -> DataError:
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
        f"No negatives were found for any example: none of the {counts['proposed']:,} proposed "
        f"candidates was left{words}.",
        remedy,
    )
