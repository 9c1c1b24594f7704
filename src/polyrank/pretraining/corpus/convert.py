"""A source to a corpus folder: read once, convert in processes, write in order.

Works in `.NAME.converting` beside the output (see `polyrank.jobs`), which holds

    journal.jsonl     one line per finished part
    part-N.parquet    its documents, with the links as their pages have them
    redirects.sqlite  which title leads to which
    scratch/          what a source puts aside
    corpus/           the folder that will take the output's place, when all is read

Finished parts are kept while the conversion runs; the same conversion, run again after an
interruption, resumes after the last of them, and gives the same bytes as one that was not
interrupted. Memory has a bound whatever the size of the source.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any

from polyrank._version import __version__
from polyrank.config import require, to_mapping
from polyrank.errors import DataError, UsageError
from polyrank.jobs import Job, Work, differences, tidy, working
from polyrank.pretraining.corpus.batches import Batch, Batches, convert_batches
from polyrank.pretraining.corpus.detection import source_at
from polyrank.pretraining.corpus.manifest import (
    MANIFEST,
    Manifest,
    Part,
    read_manifest,
    write_manifest,
)
from polyrank.pretraining.corpus.parts import Parts, place_part, place_resolved
from polyrank.pretraining.corpus.redirects import Redirects
from polyrank.pretraining.corpus.schema import COUNTED
from polyrank.pretraining.corpus.source import Dropped, Source, Stream
from polyrank.pretraining.corpus.store import Corpus
from polyrank.progress import bar
from polyrank.storage import require_replaceable, storage_errors

LOOP = "circular redirect"


@dataclass(frozen=True, kw_only=True)
class CorpusLayout:
    """How a corpus is cut: characters of source a row group, and row groups a part."""

    group_size: int = 2_000_000
    part_groups: int = 64

    def __post_init__(self) -> None:
        require(self.group_size >= 1, "group_size", "at least 1", self.group_size)
        require(self.part_groups >= 1, "part_groups", "at least 1", self.part_groups)


STANDARD = CorpusLayout()


def convert(
    source: Source | str | Path,
    output: str | Path,
    *,
    num_processes: int = 1,
    restart: bool = False,
    keep_going: bool = False,
    layout: CorpusLayout = STANDARD,
) -> Corpus:
    """Make a corpus of `source` at `output` and open it; one that is there already is opened.

    A path is read as what it looks like; `detection.source_at` takes its kind and settings. With
    `keep_going`, a truncated source becomes a corpus of what comes before the end. Raises
    DataError for a source that cannot be read to its end, changes meanwhile or holds nothing;
    UsageError if, unless `restart`, a corpus of another source or an unfinished conversion of one
    is in the way; StorageError; MissingExtraError. After any error, `output` is unchanged.
    """
    require(num_processes >= 1, "num_processes", "at least 1", num_processes)
    source = source if isinstance(source, Source) else source_at(source)
    described = source.describe()
    settings = {**source.settings(), **to_mapping(layout)}
    job = job_of(Path(output).absolute(), described, settings)
    if is_made(job, restart=restart):
        tidy(job)
        return Corpus.open(job.output)
    with working(job, restart=restart) as work:
        parts = Parts(work)
        with contextlib.closing(Redirects(work.folder / "redirects.sqlite")) as redirects:
            with source.open(empty_folder(work.folder / "scratch")) as stream:
                language = stream.language
                damage = write_parts(stream, parts, redirects, layout, num_processes)
            if source.describe() != described:
                work.forget()
                raise DataError(
                    "The source changed while it was being read.", "Start again.", path=source.path
                )
            require_usable(parts, damage, source, work, keep_going=keep_going)
            fresh = empty_folder(work.folder / "corpus")
            written, counts = place_parts(parts, redirects, work.folder, fresh)
            dropped = parts.dropped()
            for title in redirects.loops():
                dropped.add(Dropped(LOOP, title))
        manifest = Manifest(
            kind=parts.kind,
            language=language,
            source=described,
            settings=settings,
            counts=counts,
            dropped=dropped.report(),
            parts=tuple(written),
            damage=None if damage is None else damage.problem,
        )
        write_manifest(fresh, manifest)
        work.place_folder(fresh)
    return Corpus.open(job.output)


def job_of(output: Path, source: Mapping[str, Any], settings: Mapping[str, Any]) -> Job:
    """The job of a conversion; a file that its content tells apart may get another name."""
    return Job(
        output=output,
        doing="converting",
        noun="conversion",
        identity={
            "source": without_name(source),
            "settings": settings,
            "polyrank": __version__,
        },
        described={"source": source["name"]},
        words={
            "source": "another source ({})",
            "polyrank": "another version of polyrank ({})",
            "settings": "other settings",
        },
    )


def without_name(source: Mapping[str, Any]) -> dict[str, Any]:
    """What identifies a source, without the name of a file whose content does."""
    return {key: value for key, value in source.items() if key != "name" or "sha256" not in source}


def is_made(job: Job, *, restart: bool) -> bool:
    """Whether the corpus at the output is the one that the job would make.

    Raises UsageError if, without `restart`, it is another one; or if there is no corpus there.
    """
    require_replaceable(job.output, MANIFEST, "a corpus")
    if restart or not (job.output / MANIFEST).is_file():
        return False
    found = read_manifest(job.output)
    identity = {
        **job.plain,
        "source": without_name(found.source),
        "settings": dict(found.settings),
    }
    if identity == job.plain:
        return True
    made_from = {"identity": identity, "described": {"source": found.source.get("name")}}
    raise UsageError(
        f"The corpus at {job.output} was made from {differences(job, made_from)}.",
        "Choose another output, or replace it with --restart.",
    )


def write_parts(
    stream: Stream, parts: Parts, redirects: Redirects, layout: CorpusLayout, num_processes: int
) -> DataError | None:
    """Write all parts but those that are finished; gives the error that ended reading, if any.

    Redirects are read again even where parts are finished.
    """
    batches = Batches(stream.items, layout.group_size, redirects)
    left: Iterator[Batch] = iter(batches)
    with bar("Converting", unit="documents", done=parts.num_documents) as advance:
        for _ in islice(left, parts.num_batches):
            pass
        converted = convert_batches(stream.convert, left, num_processes)
        with contextlib.closing(converted):
            for first in converted:
                others = islice(converted, layout.part_groups - 1)
                for count in parts.write(chain([first], others)):
                    advance(count)
    redirects.flush()
    return batches.damage


def require_usable(
    parts: Parts, damage: DataError | None, source: Source, work: Work, *, keep_going: bool
) -> None:
    """Raise DataError if the source was truncated, unless that is accepted, or had no documents."""
    if not parts.num_documents:
        work.forget()
    if damage is not None and not (keep_going and parts.num_documents):
        remedy = damage.remedy
        if parts.num_documents:
            remedy += (
                f" What came before is kept in {work.folder}: --keep-going makes a corpus "
                f"of its {parts.num_documents:,} documents."
            )
        error = DataError(damage.problem, remedy)
        error.path, error.line = damage.path, damage.line
        raise error from damage
    if not parts.num_documents:
        report = parts.dropped().report()
        found = ", ".join(f"{name}: {entry.count:,}" for name, entry in report.items())
        raise DataError(
            f"It has no documents ({found or 'it is empty'}).",
            "Give a file with articles or conversations.",
            path=source.path,
        )


def place_parts(
    parts: Parts, redirects: Redirects, work: Path, fresh: Path
) -> tuple[list[Part], dict[str, int]]:
    """Put all parts into the new folder and resolve redirects; returns the corpus's counts."""
    counts = dict.fromkeys(COUNTED[parts.kind], 0) | parts.counts()
    if not counts.get("redirects"):
        return [place_part(part, work, fresh) for part in parts.parts], counts
    written = []
    total = sum(part.rows for part in parts.parts)
    with bar("Resolving redirects", total=total, unit="documents") as advance:
        for part in parts.parts:
            made, changed = place_resolved(part, work, fresh, redirects.resolve)
            written.append(made)
            counts["redirected_links"] += changed
            advance(part.rows)
    return written, counts


def empty_folder(path: Path) -> Path:
    """Make a folder, or empty it. Raises StorageError."""
    with storage_errors(path):
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir()
    return path
