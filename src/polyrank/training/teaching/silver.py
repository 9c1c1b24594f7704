"""Silver pairs: texts of labelled pairs put together anew and labelled by a cross-encoder.

This is Augmented SBERT (Thakur et al., 2021): a bi-encoder is then trained on gold and silver.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from polyrank.config import to_mapping
from polyrank.errors import DataError, ModelError, UsageError
from polyrank.jobs import digest_of
from polyrank.progress import Say, bar, silent
from polyrank.records import Candidate, Example, LabelledPair
from polyrank.training.journal import Journal
from polyrank.training.negatives.config import NegativesConfig
from polyrank.training.negatives.filtering import choose
from polyrank.training.negatives.methods import Method
from polyrank.training.negatives.pool import Numbered, Pool, Proposer, folded
from polyrank.training.teaching.labelling import LABEL_BLOCK
from polyrank.training.teaching.store import LabelStore
from polyrank.training.teaching.teacher import require_architecture

TOP = NegativesConfig(pick="top")


def silver_pairs(
    teacher: Any,
    gold: Sequence[LabelledPair],
    *,
    methods: Sequence[Method],
    store: str | Path | None = None,
    settings: NegativesConfig = TOP,
    relabel: bool = False,
    block_size: int = LABEL_BLOCK,
    progress: bool = False,
    say: Say = silent,
) -> list[LabelledPair]:
    """New pairs of the texts of `gold`, labelled by a cross-encoder.

    Each first text meets `num_negatives` of `settings` texts from each of the `methods`, never one
    that it has met in `gold`. The label is the score, cut to 0 … 1, of a teacher with the task
    regress; its probability with the task rank; the likeliest class with the task classify.
    `store` keeps them, as for `label`. Raises UsageError for a teacher that is no cross-encoder or
    labels of another kind than the gold ones, or a store with other labels; DataError for no pairs.
    """
    require_task(teacher, gold)
    work = Silver(teacher, gold, methods, settings)
    if store is None:
        with TemporaryDirectory() as folder:
            proposers = work.proposers(Path(folder))
            blocks = work.blocks(proposers, 0, block_size, progress)
            return required([pair for found, _ in blocks for pair in found])
    kept = LabelStore(store, work.identity())
    lines = kept.filled(
        lambda journal: work.write(journal, block_size, progress, say),
        relabel=relabel,
        found=lambda: say(f"The silver pairs are those in {kept.path}."),
    )
    return required([pair_of(line) for line in lines])


class Silver:
    """One run of a teacher over new pairs."""

    def __init__(
        self,
        teacher: Any,
        gold: Sequence[LabelledPair],
        methods: Sequence[Method],
        settings: NegativesConfig,
    ) -> None:
        self.teacher = teacher
        self.gold = gold
        self.methods = methods
        self.settings = replace(settings, missing="keep")
        examples = [Example(context=pair.first, response=pair.second) for pair in gold]
        firsts = (pair.first for pair in gold if isinstance(pair.first, str))
        texts = {folded(text): text for text in (*firsts, *(pair.second for pair in gold))}
        candidates = [Candidate(str(place), text) for place, text in enumerate(texts.values())]
        self.pool = Pool(examples, candidates).one_per_context()

    def identity(self) -> dict[str, Any]:
        """All that the labels depend on."""
        return {
            "kind": "pairs",
            "teacher": self.teacher.fingerprint(),
            "records": digest_of(self.gold),
            "methods": [dict(method.identity) for method in self.methods],
            "settings": to_mapping(self.settings),
        }

    def proposers(self, folder: Path) -> list[Proposer]:
        """The sources of new pairs, which may work in `folder`."""
        return [method.make(self.pool, self.settings, folder) for method in self.methods]

    def write(self, journal: Journal, block_size: int, progress: bool, say: Say) -> None:
        """Label what the journal does not have yet."""
        start, total = journal.total("read"), len(self.pool.examples)
        if start:
            say(f"Going on after {start:,} of {total:,} texts.")
        if start < total:
            proposers = self.proposers(journal.folder)
            for pairs, read in self.blocks(proposers, start, block_size, progress):
                journal.append(map(line_of_pair, pairs), {"read": read})

    def blocks(
        self, proposers: Sequence[Proposer], start: int, size: int, progress: bool
    ) -> Iterator[tuple[list[LabelledPair], int]]:
        """Yield the labelled pairs of each block of first texts, and how many texts it had."""
        total = len(self.pool.examples)
        with bar("Labelling" if progress else None, total=total) as advance:
            advance(start)
            for first in range(start, total, size):
                block = [
                    Numbered(first + place, example)
                    for place, example in enumerate(self.pool.examples[first : first + size])
                ]
                pairs: dict[tuple[str | tuple[str, ...], str], None] = {}
                for proposer in proposers:
                    proposed = proposer.propose(block)
                    chosen, _ = choose(
                        block, proposed, self.pool, self.settings, ranked=proposer.ranked
                    )
                    for example in chosen:
                        pairs.update(((example.context, text), None) for text in example.negatives)
                yield labelled(self.teacher, list(pairs)), len(block)
                advance(len(block))


def labelled(
    teacher: Any, pairs: Sequence[tuple[str | tuple[str, ...], str]]
) -> list[LabelledPair]:
    """The pairs with the teacher's labels; it reads all of them at once."""
    if not pairs:
        return []
    scores = teacher.score_pairs(pairs).float()  # (n,), or (n, L) for classes
    if not bool(scores.isfinite().all()):
        raise ModelError(
            "The teacher's scores are not all finite numbers.",
            "Its weights are damaged or its training diverged; use another checkpoint.",
        )
    task = teacher.config.task
    if task == "classify":
        labels: list[float] = scores.argmax(dim=1).tolist()
    else:
        labels = (scores.clamp(0, 1) if task == "regress" else scores.sigmoid()).tolist()
    return [
        LabelledPair(first=first, second=second, label=label)
        for (first, second), label in zip(pairs, labels, strict=True)
    ]


def require_task(teacher: Any, gold: Sequence[LabelledPair]) -> None:
    """Raise UsageError for a teacher whose labels are not of the kind of the gold ones."""
    require_architecture(teacher, "A teacher")
    if not gold:
        raise DataError("There are no labelled pairs to learn from.", "Give at least one.")
    classes = all(isinstance(pair.label, int) for pair in gold)
    task = teacher.config.task
    if classes != (task == "classify"):
        kinds = {True: "classes", False: "scores"}
        fitting = "classify" if classes else "regress"
        raise UsageError(
            f"The labels of the data are {kinds[classes]}, but a teacher with the task {task!r} "
            f"gives {kinds[task == 'classify']}.",
            f"Train a teacher on this data with --task {fitting}.",
        )
    if classes:
        most = max(pair.label for pair in gold)
        if most >= teacher.config.num_labels:
            raise UsageError(
                f"The data have a class {most}, but the teacher knows only "
                f"{teacher.config.num_labels} classes, from 0.",
                "Train a teacher on this data.",
            )


def line_of_pair(pair: LabelledPair) -> str:
    """A pair as a line of JSON."""
    record = {"first": pair.first, "second": pair.second, "label": pair.label}
    return json.dumps(record, ensure_ascii=False)


def pair_of(line: str) -> LabelledPair:
    """The pair of a line."""
    record = json.loads(line)
    first, label = record["first"], record["label"]
    assert not isinstance(label, float) or math.isfinite(label)
    return LabelledPair(
        first=first if isinstance(first, str) else tuple(first),
        second=record["second"],
        label=label,
    )


def required(pairs: list[LabelledPair]) -> list[LabelledPair]:
    """The pairs, of which there must be some. Raises DataError."""
    if not pairs:
        raise DataError(
            "No new pairs were found: every text has met all that were found for it.",
            "Choose other --pairs, widen the ranks, or give more data.",
        )
    return pairs
