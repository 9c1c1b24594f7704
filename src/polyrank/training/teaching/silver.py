"""Silver pairs: texts of labelled pairs, combined in new ways and labelled by a cross-encoder.

This is Augmented SBERT (Thakur et al., 2021): a bi-encoder is then trained on gold and silver.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from polyrank.config import to_mapping
from polyrank.data.answers import folded
from polyrank.errors import DataError, UsageError
from polyrank.jobs import digest_of
from polyrank.json_text import parse_json
from polyrank.models.cross_encoder import CrossEncoder
from polyrank.progress import Say, silent
from polyrank.records import Candidate, Example, LabelledPair
from polyrank.training.negatives.config import NegativesConfig
from polyrank.training.negatives.filtering import choose
from polyrank.training.negatives.methods import Method
from polyrank.training.negatives.pool import Numbered, Pool, Proposer
from polyrank.training.teaching.labelling import LABEL_BLOCK, Labelling
from polyrank.training.teaching.teacher import Pair, not_finite, require_cross

TOP = NegativesConfig(pick="top")


def silver_pairs(
    teacher: CrossEncoder,
    gold: Sequence[LabelledPair],
    *,
    methods: Sequence[Method],
    store: str | Path | None = None,
    settings: NegativesConfig = TOP,
    relabel: bool = False,
    block_size: int = LABEL_BLOCK,
    show_progress_bar: bool = False,
    say: Say = silent,
) -> list[LabelledPair]:
    """New pairs of the texts of `gold`, labelled by a cross-encoder.

    Each first text is paired with `num_negatives` of `settings` texts from each of the `methods`,
    never with one that it is paired with in `gold`. The label is the score, cut to 0 … 1, of a
    teacher with the task regress; its probability with the task rank; the likeliest class with the
    task classify. `store` keeps them, as for `label`. Raises UsageError for a teacher that is not a
    cross-encoder or gives labels of another kind than the gold ones, or a store with other labels;
    DataError for no pairs.
    """
    require_same_labels(teacher, gold)
    labelling = PairLabelling(teacher, gold, methods, settings)
    pairs = labelling.run(
        store, relabel=relabel, block_size=block_size, show_progress_bar=show_progress_bar, say=say
    )
    if not pairs:
        raise DataError(
            "No new pairs were found: the data already contain every pair that was found.",
            "Choose other --pairs, widen the ranks, or give more data.",
        )
    return pairs


class PairLabelling(Labelling[LabelledPair]):
    """The labels of new pairs of the gold pairs' texts."""

    unit = "texts"
    kept = "The silver pairs"

    def __init__(
        self,
        teacher: CrossEncoder,
        gold: Sequence[LabelledPair],
        methods: Sequence[Method],
        settings: NegativesConfig,
    ) -> None:
        self.teacher = teacher
        self.gold = gold
        self.methods = methods
        self.settings = replace(settings, missing="keep")
        self.pool = pool_of(gold).one_per_context()
        self.examples = self.pool.examples

    def identity(self) -> dict[str, Any]:
        """Everything that the labels depend on, as JSON."""
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

    def label_block(
        self, block: Sequence[Numbered], proposers: Sequence[Proposer]
    ) -> list[LabelledPair]:
        """The new pairs of a block of first texts; the teacher reads all of them at once."""
        pairs: dict[Pair, None] = {}
        for proposer in proposers:
            proposals = proposer.propose(block)
            chosen, _ = choose(block, proposals, self.pool, self.settings, ranked=proposer.ranked)
            for example in chosen:
                pairs.update(((example.context, text), None) for text in example.negatives)
        return labelled(self.teacher, list(pairs))

    def line(self, record: LabelledPair) -> str:
        """A pair as a line of JSON."""
        plain = {"first": record.first, "second": record.second, "label": record.label}
        return json.dumps(plain, ensure_ascii=False)

    def parse(self, line: str) -> LabelledPair:
        """The pair of a line."""
        plain = parse_json(line)
        first = plain["first"]
        return LabelledPair(
            first=first if isinstance(first, str) else tuple(first),
            second=plain["second"],
            label=plain["label"],
        )


def pool_of(gold: Sequence[LabelledPair]) -> Pool:
    """All texts of the pairs as candidates; each pair says that its second is right."""
    examples = [Example(context=pair.first, response=pair.second) for pair in gold]
    firsts = (pair.first for pair in gold if isinstance(pair.first, str))
    texts = {folded(text): text for text in (*firsts, *(pair.second for pair in gold))}
    candidates = [Candidate(str(place), text) for place, text in enumerate(texts.values())]
    return Pool(examples, candidates)


def labelled(teacher: CrossEncoder, pairs: Sequence[Pair]) -> list[LabelledPair]:
    """The pairs with the teacher's labels. Raises ModelError for scores that are not finite."""
    if not pairs:
        return []
    task = teacher.config.task
    scored = teacher.class_logits if task == "classify" else teacher.score_pairs
    scores = scored(pairs).float()  # (n,), or (n, L) for classes
    if not bool(scores.isfinite().all()):
        raise not_finite("A teacher")
    if task == "classify":
        labels: list[float] = scores.argmax(dim=1).tolist()
    else:
        labels = (scores.clamp(0, 1) if task == "regress" else scores.sigmoid()).tolist()
    return [
        LabelledPair(first=first, second=second, label=label)
        for (first, second), label in zip(pairs, labels, strict=True)
    ]


def require_same_labels(teacher: CrossEncoder, gold: Sequence[LabelledPair]) -> None:
    """Raise UsageError for a teacher whose labels are not of the kind of the gold ones."""
    require_cross(teacher, "A teacher")
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
                f"{teacher.config.num_labels} classes, counted from 0.",
                "Train a teacher on this data.",
            )
