"""Examples to examples with a teacher's scores, of the response and of each negative.

The negatives are the examples' own, or are found first: drawn, by BM25, by a model. What was scored
is kept in a store, so that it is done once.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from polyrank.config import to_mapping
from polyrank.data.examples import example_line, parse_example
from polyrank.errors import DataError
from polyrank.jobs import digest_of
from polyrank.progress import Say, bar, silent
from polyrank.records import Example
from polyrank.training.journal import Journal
from polyrank.training.negatives.config import NegativesConfig
from polyrank.training.negatives.filtering import choose
from polyrank.training.negatives.methods import Method
from polyrank.training.negatives.pool import Numbered, Pool, Proposer, folded
from polyrank.training.teaching.store import LabelStore
from polyrank.training.teaching.teacher import Teacher

LABEL_BLOCK = 256
"""Examples that are labelled, and written, at once."""


def label(
    teacher: Any,
    examples: Sequence[Example],
    *,
    store: str | Path | None = None,
    methods: Sequence[Method] = (),
    pool: Pool | None = None,
    settings: NegativesConfig | None = None,
    given: bool = True,
    relabel: bool = False,
    block_size: int = LABEL_BLOCK,
    progress: bool = False,
    say: Say = silent,
) -> list[Example]:
    """The examples with negatives and the scores that a cross-encoder gives them.

    Each example keeps its own negatives (unless `given` is false) and gets `num_negatives` of
    `settings` more from each of the `methods`, which take them from `pool`, by default the
    responses of all examples. Examples without any negative are left out. `store` is a JSONL file
    that keeps the result, itself a file of examples: the next call with the same teacher, examples
    and settings reads it, and one that was interrupted goes on. Raises UsageError for a teacher
    that is no cross-encoder with one score, or a store with other labels, unless `relabel`;
    DataError where no example has a negative.
    """
    known = Teacher(teacher)
    settings = settings or NegativesConfig()
    if settings.missing == "drop":
        settings = replace(settings, missing="keep")
    if methods and pool is None:
        pool = Pool.of_examples(examples)
    if not methods and not (given and any(example.negatives for example in examples)):
        raise DataError(
            "No example has negatives to be scored.",
            "Let some be found (--pairs random, bm25 or model), or mine them: polyrank mine.",
        )
    work = Labelling(known, examples, methods, pool, settings, given)
    if store is None:
        with TemporaryDirectory() as folder:
            proposers = work.proposers(Path(folder))
            blocks = work.blocks(proposers, 0, block_size, progress)
            return required([example for found, _ in blocks for example in found])
    kept = LabelStore(store, work.identity())
    lines = kept.filled(
        lambda journal: work.write(journal, block_size, progress, say),
        relabel=relabel,
        found=lambda: say(f"The teacher's scores are those in {kept.path}."),
    )
    return required([parse_example(json.loads(line)) for line in lines])


class Labelling:
    """One run of a teacher over examples."""

    def __init__(
        self,
        teacher: Teacher,
        examples: Sequence[Example],
        methods: Sequence[Method],
        pool: Pool | None,
        settings: NegativesConfig,
        given: bool,
    ) -> None:
        self.teacher = teacher
        self.examples = examples
        self.methods = methods
        self.pool = pool
        self.settings = settings
        self.given = given

    def identity(self) -> dict[str, Any]:
        """All that the scores depend on."""
        found = self.methods and self.pool is not None
        return {
            "kind": "examples",
            "teacher": self.teacher.fingerprint(),
            "records": digest_of(self.examples),
            "candidates": digest_of(self.pool.candidates) if found and self.pool else None,
            "methods": [
                *(["given"] if self.given else []),
                *(dict(method.identity) for method in self.methods),
            ],
            "settings": to_mapping(self.settings) if self.methods else None,
        }

    def write(self, journal: Journal, block_size: int, progress: bool, say: Say) -> None:
        """Label what the journal does not have yet."""
        start = journal.total("read")
        if start:
            say(f"Going on after {start:,} of {len(self.examples):,} examples.")
        if start < len(self.examples):
            proposers = self.proposers(journal.folder)
            for found, read in self.blocks(proposers, start, block_size, progress):
                journal.append(map(example_line, found), {"read": read})

    def proposers(self, folder: Path) -> list[Proposer]:
        """The sources of negatives, which may work in `folder`."""
        if self.pool is None:
            return []
        return [method.make(self.pool, self.settings, folder) for method in self.methods]

    def blocks(
        self, proposers: Sequence[Proposer], start: int, size: int, progress: bool
    ) -> Iterator[tuple[list[Example], int]]:
        """Yield the labelled examples of each block, and how many were looked at."""
        total = len(self.examples)
        with bar("Labelling" if progress else None, total=total) as advance:
            advance(start)
            for first in range(start, total, size):
                block = [
                    Numbered(first + place, example)
                    for place, example in enumerate(self.examples[first : first + size])
                ]
                yield self.scored(self.widened(block, proposers)), len(block)
                advance(len(block))

    def widened(self, block: Sequence[Numbered], proposers: Sequence[Proposer]) -> list[Example]:
        """The examples with the negatives of all sources, each text once."""
        texts: list[dict[str, str]] = [
            {folded(text): text for text in example.negatives} if self.given else {}
            for _, example in block
        ]
        for proposer in proposers:
            assert self.pool is not None
            chosen, _ = choose(
                block,
                proposer.propose(block),
                self.pool,
                self.settings,
                ranked=proposer.ranked,
            )
            for found, example in zip(texts, chosen, strict=True):
                for text in example.negatives:
                    found.setdefault(folded(text), text)
        return [
            replace(example, negatives=tuple(found.values()), scores=None)
            for (_, example), found in zip(block, texts, strict=True)
            if found
        ]

    def scored(self, examples: Sequence[Example]) -> list[Example]:
        """The examples with the teacher's scores; it reads the pairs of all of them at once."""
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


def required(examples: list[Example]) -> list[Example]:
    """The examples, of which there must be some. Raises DataError."""
    if not examples:
        raise DataError(
            "No negatives were found for any example, so that there is nothing to score.",
            "Choose other --pairs, widen the ranks or relax the margins.",
        )
    return examples
