"""A dump, a log or documents to a corpus folder: read once, convert in processes, write in order.

Finished parts are kept while the conversion goes on; the same conversion, run again after an
interruption, goes on after the last of them, and gives the same bytes as one that was not
interrupted. Memory has a bound whatever the size of the source.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from polyrank._version import __version__
from polyrank.config import require, to_mapping
from polyrank.errors import DataError
from polyrank.pretraining.corpus.finishing import linked, resolved
from polyrank.pretraining.corpus.job import Job, describe_source, is_made, tidy, working
from polyrank.pretraining.corpus.kinds import (
    ARTICLES,
    PYTHON_DOCS,
    REDDIT,
    WIKIPEDIA,
    detect,
    reader_of,
)
from polyrank.pretraining.corpus.manifest import Manifest, Part, write_manifest
from polyrank.pretraining.corpus.parts import Parts
from polyrank.pretraining.corpus.reading import Dropped, Reading
from polyrank.pretraining.corpus.schema import COUNTED, require_pyarrow
from polyrank.pretraining.corpus.store import Corpus
from polyrank.pretraining.corpus.tally import Tally
from polyrank.pretraining.corpus.tasks import Make, Result, Task, Tasks
from polyrank.pretraining.corpus.wikipedia.dump import Dump
from polyrank.pretraining.corpus.wikipedia.reader import ArticleMaker, feed, site_of
from polyrank.pretraining.corpus.wikipedia.redirects import Redirects
from polyrank.pretraining.corpus.workers import results
from polyrank.progress import bar
from polyrank.storage import discard, storage_errors, swap_folders

UNKNOWN_LANGUAGE = "und"
LOOP = "redirect without an end"


@dataclass(frozen=True, kw_only=True)
class Layout:
    """How a corpus is cut: characters of source a row group, and row groups a part."""

    group_size: int = 2_000_000
    part_groups: int = 64

    def __post_init__(self) -> None:
        require(self.group_size >= 1, "group_size", "at least 1", self.group_size)
        require(self.part_groups >= 1, "part_groups", "at least 1", self.part_groups)


STANDARD = Layout()


@dataclass(frozen=True, kw_only=True)
class Feed:
    """What is read from a source, in which language, and what makes documents of it, if needed."""

    items: Iterable[Any]
    language: str
    make: Make | None


def convert(
    source: str | Path,
    output: str | Path,
    *,
    kind: str | None = None,
    language: str | None = None,
    lists: bool = True,
    num_processes: int = 1,
    restart: bool = False,
    keep_going: bool = False,
    layout: Layout = STANDARD,
) -> Corpus:
    """Make a corpus of `source` at `output` and open it; one that is there already is opened.

    `kind` is one of `kinds.READERS`, by default what the file looks like. `language` overrides
    what the source says. Items of a wiki's lists are paragraphs if `lists`. With `keep_going`, a
    source that is cut off becomes a corpus of what comes before that. Raises DataError for a source
    that cannot be read on or holds nothing; UsageError if, unless `restart`, a corpus of another
    source or an unfinished conversion of one is in the way; StorageError; MissingExtraError.
    Whatever is raised, what stood at `output` still does.
    """
    require_pyarrow()
    require(num_processes >= 1, "num_processes", "at least 1", num_processes)
    source, output = Path(source), Path(output).absolute()
    kind = kind or detect(source)
    settings = {"kind": kind, "language": language, "lists": lists, **to_mapping(layout)}
    job: Job = {
        "source": describe_source(source, kind),
        "settings": settings,
        "polyrank": __version__,
    }
    if is_made(output, job, restart=restart):
        tidy(output)
        return Corpus.open(output)
    with working(output, job, restart=restart) as work:
        with contextlib.closing(Redirects(work / "redirects.sqlite")) as redirects:
            with feeding(source, kind, language, lists, work / "scratch") as fed:
                parts = Parts(work)
                damage = write_parts(fed, parts, redirects, layout, num_processes)
            require_usable(parts, damage, source, work, keep_going=keep_going)
            fresh = finish(work, parts, redirects, job, fed.language, damage)
        with storage_errors(output):
            swap_folders(fresh, output)
        discard(work, output)
    tidy(output)
    return Corpus.open(output)


@contextlib.contextmanager
def feeding(
    source: Path, kind: str, language: str | None, lists: bool, scratch: Path
) -> Iterator[Feed]:
    """Open a source; what its reader has to put aside goes to the folder `scratch`."""
    if kind == WIKIPEDIA:
        with Dump(source) as dump:
            site = site_of(dump, language)
            make = ArticleMaker(site, lists)
            yield Feed(items=feed(dump, site), language=site.language, make=make)
        return
    read: Callable[..., Reading] = reader_of(kind)
    if kind == REDDIT:
        with storage_errors(scratch):
            shutil.rmtree(scratch, ignore_errors=True)
            scratch.mkdir()
        read = partial(read, scratch=scratch)
    elif kind == ARTICLES:
        read = partial(read, language=language)
    usual = "en" if kind == PYTHON_DOCS else UNKNOWN_LANGUAGE
    yield Feed(items=read(source), language=language or usual, make=None)


def write_parts(
    fed: Feed, parts: Parts, redirects: Redirects, layout: Layout, num_processes: int
) -> DataError | None:
    """Write all parts but those that are finished; gives the error that ended reading, if any.

    Redirects are read again even where parts are finished.
    """
    tasks = Tasks(fed.items, layout.group_size, redirects.add)
    left: Iterator[Task] = iter(tasks)
    with bar("Converting") as advance:
        for _ in islice(left, parts.num_tasks):
            pass
        done = results(fed.make, left, num_processes)
        with contextlib.closing(done):
            for first in done:
                for count in parts.write(chain_first(first, done, layout.part_groups)):
                    advance(count)
    redirects.flush()
    return tasks.damage


def chain_first(first: Result, others: Iterator[Result], count: int) -> Iterator[Result]:
    """Yield `count` results of which one has been taken already."""
    yield first
    yield from islice(others, count - 1)


def require_usable(
    parts: Parts, damage: DataError | None, source: Path, work: Path, *, keep_going: bool
) -> None:
    """Raise DataError if the source was cut off, unless that is accepted, or had no documents."""
    rows = sum(part.rows for part in parts.parts)
    if damage is not None and not (keep_going and rows):
        remedy = damage.remedy
        if rows:
            remedy += (
                f" What came before is kept in {work}: give --keep-going to make a corpus of its "
                f"{rows:,} documents."
            )
        error = DataError(damage.problem, remedy)
        error.path, error.line = damage.path, damage.line
        raise error from damage
    if not rows:
        tally = Tally()
        for finished in parts.finished:
            tally.merge(finished.dropped)
        found = ", ".join(f"{name}: {entry.count:,}" for name, entry in tally.report().items())
        raise DataError(
            f"Nothing in it became a document ({found or 'it is empty'}).",
            "Give a file with articles or conversations.",
            path=source,
        )


def finish(
    work: Path,
    parts: Parts,
    redirects: Redirects,
    job: Job,
    language: str,
    damage: DataError | None,
) -> Path:
    """Make the folder that takes the output's place: links resolved, and its `corpus.json`."""
    fresh = work / "corpus"
    with storage_errors(fresh):
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir()
    tally = Tally()
    kind = next(finished.kind for finished in parts.finished if finished.kind is not None)
    counts = dict.fromkeys(COUNTED[kind], 0)
    for finished in parts.finished:
        tally.merge(finished.dropped)
        for name, number in finished.counts.items():
            counts[name] = counts.get(name, 0) + number
    for title in redirects.loops():
        tally.add(Dropped(LOOP, title))
    written: list[Part] = []
    with bar("Resolving redirects" if counts.get("redirects") else None) as advance:
        for part in parts.parts:
            if not counts.get("redirects"):
                written.append(linked(part, work, fresh))
                continue
            made, changed = resolved(part, work, fresh, redirects.resolve)
            written.append(made)
            counts["redirected_links"] += changed
            advance(part.rows)
    manifest = Manifest(
        kind=kind,
        language=language,
        source=job["source"],
        settings=job["settings"],
        counts=counts,
        dropped=tally.report(),
        parts=tuple(written),
        damage=None if damage is None else damage.problem,
    )
    write_manifest(fresh, manifest)
    return fresh
