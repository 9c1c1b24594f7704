"""A teacher's labels: what it scores, block by block, and the store that keeps them.

A store is a file of lines; a description beside it names the teacher and everything else that the
labels depend on. `label` gives examples the scores of their response and of each negative.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar, Generic, TypeVar

from polyrank.config import to_mapping
from polyrank.data.answers import folded
from polyrank.data.examples import example_line, parse_example
from polyrank.data.files import read_lines
from polyrank.errors import DataError, UsageError
from polyrank.folder_files import read_json, read_object
from polyrank.jobs import Job, differences, digest_of, read_identity, tidy, working
from polyrank.json_text import parse_json
from polyrank.models.base import Model
from polyrank.progress import Say, bar, silent
from polyrank.records import Example
from polyrank.storage import require_ordinary, write_text
from polyrank.training.negatives.config import NegativesConfig
from polyrank.training.negatives.filtering import choose
from polyrank.training.negatives.methods import Method
from polyrank.training.negatives.pool import Numbered, Pool, Proposer, numbered_blocks
from polyrank.training.teaching.teacher import Teacher

LABEL_BLOCK = 256
"""Examples that are labelled, and written, at once."""
WORDS = {
    "teacher": "another teacher",
    "records": "other data",
    "candidates": "other candidates",
    "methods": "pairs that were found in another way",
    "settings": "pairs that were chosen with other settings",
    "kind": "another kind of records",
}
T = TypeVar("T")


def label(
    teacher: Model,
    examples: Sequence[Example],
    *,
    store: str | Path | None = None,
    methods: Sequence[Method] = (),
    pool: Pool | None = None,
    settings: NegativesConfig | None = None,
    given: bool = True,
    relabel: bool = False,
    block_size: int = LABEL_BLOCK,
    show_progress_bar: bool = False,
    say: Say = silent,
) -> list[Example]:
    """The examples with negatives and the scores that a teacher gives them.

    Each example keeps its own negatives (unless `given` is false) and gets `num_negatives` of
    `settings` more from each of the `methods`, which take them from `pool`, by default the
    responses of all examples. Examples without any negative are left out. `store` is a JSONL file
    that keeps the result, itself a file of examples: the next call with the same teacher, examples
    and settings reads it, and one that was interrupted resumes. Raises UsageError for a teacher
    with classes, or a store with other labels, unless `relabel`; DataError where no example has a
    negative.
    """
    known = Teacher(teacher)
    settings = settings or NegativesConfig()
    if settings.missing == "drop":
        settings = replace(settings, missing="keep")
    if not methods and not (given and any(example.negatives for example in examples)):
        raise DataError(
            "No example has negatives to score.",
            "Let polyrank find some (--pairs random, bm25 or model), or mine them with polyrank "
            "mine.",
        )
    if methods and pool is None:
        pool = Pool.of_examples(examples)
    labelling = ExampleLabelling(known, examples, methods, pool, settings, given=given)
    labelled = labelling.run(
        store, relabel=relabel, block_size=block_size, show_progress_bar=show_progress_bar, say=say
    )
    if not labelled:
        raise DataError(
            "No negatives were found for any example, so there is nothing to score.",
            "Choose other --pairs, widen the ranks or relax the margins.",
        )
    return labelled


class Labelling(ABC, Generic[T]):
    """One run of a teacher over examples, whose labels are records of one kind."""

    unit: ClassVar[str]
    """What messages count: "examples"."""
    kept: ClassVar[str]
    """What messages call the labels."""
    examples: Sequence[Example]
    """What the teacher goes through."""
    methods: Sequence[Method]
    """The ways in which pairs are found."""

    @abstractmethod
    def identity(self) -> dict[str, Any]:
        """Everything that the labels depend on, as JSON."""

    @abstractmethod
    def proposers(self, folder: Path) -> list[Proposer]:
        """The sources of pairs, which may work in `folder`."""

    @abstractmethod
    def label_block(self, block: Sequence[Numbered], proposers: Sequence[Proposer]) -> list[T]:
        """The labelled records of a block of examples."""

    @abstractmethod
    def line(self, record: T) -> str:
        """A record as a line of the store."""

    @abstractmethod
    def parse(self, line: str) -> T:
        """The record of a line of the store."""

    def run(
        self,
        store: str | Path | None,
        *,
        relabel: bool,
        block_size: int,
        show_progress_bar: bool,
        say: Say,
    ) -> list[T]:
        """All labels: those in the store, or new ones, which are kept there if there is one.

        `relabel` discards what the store holds. Raises UsageError for a store with other labels.
        """
        if store is None:
            with TemporaryDirectory() as folder:
                blocks = self.blocks(Path(folder), 0, block_size, show_progress_bar)
                return [record for records, _ in blocks for record in records]
        job = self.job(Path(store))
        if relabel:
            job.output.unlink(missing_ok=True)
            description_of(job.output).unlink(missing_ok=True)
        if is_complete(job):
            tidy(job)
            say(f"{self.kept} are read from {store}.")
        else:
            self.write(job, relabel, block_size, show_progress_bar, say)
        return list(self.read(job.output))

    def read(self, store: Path) -> Iterator[T]:
        """The records of a store. Raises DataError, with the line, for a damaged one."""
        for number, line in read_lines(store):
            try:
                yield self.parse(line)
            except (ValueError, KeyError, TypeError, DataError) as error:
                raise DataError(
                    "The line holds no labels.",
                    "Label again with --relabel (in Python: relabel=True).",
                    path=store,
                    line=number,
                ) from error

    def job(self, store: Path) -> Job:
        """The job that makes the store."""
        return job_of(store, self.identity())

    def write(
        self, job: Job, relabel: bool, block_size: int, show_progress_bar: bool, say: Say
    ) -> None:
        """Label what an interrupted run left, and put the store in its place."""
        with working(job, restart=relabel) as work:
            journal = work.line_journal()
            start = journal.total("read")
            if start:
                say(f"Resuming after {start:,} of {len(self.examples):,} {self.unit}.")
            if any(method.ranked for method in self.methods):
                work.keep()  # an index may be built before the first block is finished
            for records, read in self.blocks(work.folder, start, block_size, show_progress_bar):
                journal.append_lines(map(self.line, records), {"read": read})
            write_text(description_of(job.output), json.dumps(job.plain, indent=2) + "\n")
            work.place_file(journal.file)

    def blocks(
        self, folder: Path, start: int, block_size: int, show_progress_bar: bool
    ) -> Iterator[tuple[list[T], int]]:
        """Yield the labelled records of each block, and how many examples it had."""
        total = len(self.examples)
        if start >= total:
            return
        proposers = self.proposers(folder)
        described = "Labelling" if show_progress_bar else None
        with bar(described, total=total, unit=self.unit, done=start) as advance:
            for block in numbered_blocks(self.examples, start, block_size):
                yield self.label_block(block, proposers), len(block)
                advance(len(block))


class ExampleLabelling(Labelling[Example]):
    """The scores of each example's response and negatives."""

    unit = "examples"
    kept = "The teacher's scores"

    def __init__(
        self,
        teacher: Teacher,
        examples: Sequence[Example],
        methods: Sequence[Method],
        pool: Pool | None,
        settings: NegativesConfig,
        *,
        given: bool,
    ) -> None:
        """`pool`: where methods take negatives from, needed where there are any."""
        self.teacher = teacher
        self.examples = examples
        self.methods = methods
        self.pool = pool
        self.settings = settings
        self.given = given

    def identity(self) -> dict[str, Any]:
        """Everything that the scores depend on, as JSON."""
        pool = self.pool if self.methods else None
        return {
            "kind": "examples",
            "teacher": self.teacher.fingerprint(),
            "records": digest_of(self.examples),
            "candidates": None if pool is None else digest_of(pool.candidates),
            "methods": [
                *(["given"] if self.given else []),
                *(dict(method.identity) for method in self.methods),
            ],
            "settings": to_mapping(self.settings) if self.methods else None,
        }

    def proposers(self, folder: Path) -> list[Proposer]:
        """The sources of negatives, which may work in `folder`."""
        if self.pool is None:
            return []
        return [method.make(self.pool, self.settings, folder) for method in self.methods]

    def label_block(
        self, block: Sequence[Numbered], proposers: Sequence[Proposer]
    ) -> list[Example]:
        """The examples with the teacher's scores; it reads the pairs of all of them at once."""
        examples = self.with_negatives(block, proposers)
        pairs = [
            (example.context, text)
            for example in examples
            for text in (example.response, *example.negatives)
        ]
        scores = iter(self.teacher.score(pairs))
        return [
            replace(example, scores=tuple(next(scores) for _ in range(1 + len(example.negatives))))
            for example in examples
        ]

    def with_negatives(
        self, block: Sequence[Numbered], proposers: Sequence[Proposer]
    ) -> list[Example]:
        """The examples with the negatives of all sources, each text once; none without any."""
        texts: list[dict[str, str]] = [
            {folded(text): text for text in example.negatives} if self.given else {}
            for _, example in block
        ]
        for proposer in proposers:
            assert self.pool is not None
            proposals = proposer.propose(block)
            chosen, _ = choose(block, proposals, self.pool, self.settings, ranked=proposer.ranked)
            for found, example in zip(texts, chosen, strict=True):
                for text in example.negatives:
                    found.setdefault(folded(text), text)
        return [
            replace(example, negatives=tuple(found.values()), scores=None)
            for (_, example), found in zip(block, texts, strict=True)
            if found
        ]

    def line(self, record: Example) -> str:
        """An example as a line of the format of examples."""
        return example_line(record)

    def parse(self, line: str) -> Example:
        """The example of a line."""
        return parse_example(parse_json(line))


def job_of(store: Path, identity: Mapping[str, Any]) -> Job:
    """The job that makes a store."""
    return Job(
        output=store,
        doing="labelling",
        noun="labelling",
        identity=identity,
        words=WORDS,
        restart_flag="--relabel",
    )


def teacher_of(store: Path) -> str | None:
    """The fingerprint of the teacher whose labels a store holds, or will hold when complete."""
    try:
        found = read_json(description_of(store))
    except (OSError, ValueError):
        unfinished = read_identity(job_of(store, {}).work)
        found = {} if unfinished is None else unfinished["identity"]
    return found.get("teacher") if isinstance(found, dict) else None


def description_of(store: Path) -> Path:
    """The file that says which teacher's labels a store holds, and of what."""
    return store.with_name(f"{store.name}.teacher.json")


def is_complete(job: Job) -> bool:
    """Whether the store holds all labels already. Raises UsageError for a store with others."""
    store, description = job.output, description_of(job.output)
    require_ordinary(store)
    if store.is_dir():
        raise UsageError(f"{store} is a folder.", "Give the path of a file for the labels.")
    if not store.exists():
        return False
    if not description.is_file():
        raise UsageError(
            f"{store} exists and does not say which teacher's labels it holds: {description.name} "
            "is missing.",
            "Choose another file for the labels (--labels), or move this one away.",
        )
    found = read_object(description)
    if found != job.plain:
        raise UsageError(
            f"{store} holds labels of {differences(job, {'identity': found})}.",
            "Choose another file for the labels (--labels), or discard these with --relabel.",
        )
    return True
