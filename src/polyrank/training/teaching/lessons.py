"""What a student learns from teachers: the objective, and the records with the teachers' labels.

Knows what is scored and where the scores are kept, not how the student is trained.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any, TypeVar, cast

from polyrank.errors import UsageError
from polyrank.jobs import digest_of, work_beside
from polyrank.progress import Say
from polyrank.records import Example, LabelledPair, RetrievalSet
from polyrank.training.dev_evaluation import Dev
from polyrank.training.negatives.config import NegativesConfig
from polyrank.training.negatives.methods import Method
from polyrank.training.negatives.pool import Pool
from polyrank.training.objectives.checks import with_candidates_as_negatives
from polyrank.training.objectives.objective import records_of
from polyrank.training.objectives.registry import OBJECTIVES, ObjectiveConfig
from polyrank.training.teaching.labelling import label, teacher_of
from polyrank.training.teaching.silver import require_same_labels, silver_pairs
from polyrank.training.teaching.teacher import Teacher

T = TypeVar("T")
TAUGHT = [name for name, one in OBJECTIVES.items() if one.learns_from_scores]
"""The objectives that learn from a teacher's scores."""


@dataclass(frozen=True, kw_only=True)
class Lesson:
    """What teachers label beside the data, and where their labels are kept.

    Each teacher labels on its own and has its own file, so one that is added scores alone.
    """

    teachers: Sequence[Any]
    names: Sequence[str]
    """What people call the teachers."""
    objective: ObjectiveConfig
    """What the student learns, and so how the scores of several teachers become those of one."""
    methods: Sequence[Method]
    """How further negatives, or new pairs, are found."""
    given: bool
    """Whether the negatives that examples have are scored."""
    settings: NegativesConfig
    store: Path | None
    """The file of the labels; None keeps them in memory alone."""
    relabel: bool = False
    show_progress_bar: bool = False

    def label(
        self, data: Pool | list[LabelledPair], say: Say
    ) -> list[Example] | list[LabelledPair]:
        """The examples with the teachers' scores; or the pairs, and new ones that they label.

        Raises as `label` and `silver_pairs`.
        """
        return self.scores(data, say) if isinstance(data, Pool) else self.pairs(data, say)

    def scores(self, pool: Pool, say: Say) -> list[Example]:
        """The examples of the pool that have negatives, with the scores."""
        for teacher in self.teachers:
            Teacher(teacher)  # which refuses one that cannot score, before hours of scoring
        given: list[list[Example]] = []
        for teacher, name, store in self.each():
            examples = label(
                teacher,
                pool.examples,
                pool=pool,
                given=self.given,
                store=store,
                say=say,
                **self.common,
            )
            if not given and len(examples) < len(pool.examples):
                left_out = len(pool.examples) - len(examples)
                say(f"{left_out:,} examples without negatives are left out.")
            number = sum(1 + len(example.negatives) for example in examples)
            say(f"{number:,} scores of {name} are in {store or 'memory'}")
            given.append(examples)
        return scored_by_all(given, self.objective)

    def pairs(self, gold: list[LabelledPair], say: Say) -> list[LabelledPair]:
        """The gold pairs and the silver ones."""
        if not self.methods:
            raise UsageError(
                "Labelled pairs have labels of their own, and pairs = given adds nothing to them.",
                "Choose how to find new pairs: bm25, model or random.",
            )
        for teacher in self.teachers:
            require_same_labels(teacher, gold)
        given: list[list[LabelledPair]] = []
        for teacher, name, store in self.each():
            silver = silver_pairs(teacher, gold, store=store, say=say, **self.common)
            place = "" if store is None else f" in {store}"
            counts = f"{len(gold):,} gold pairs, and {len(silver):,} silver ones"
            say(f"{counts} labelled by {name}{place}")
            given.append(silver)
        return [*gold, *labelled_by_all(given)]

    def label_dev(self, dev: Dev, say: Say) -> Dev:
        """Dev examples with the teachers' scores of some of their wrong candidates, for the loss.

        Labelled pairs and a corpus that is searched stay as they are.
        """
        if isinstance(dev, RetrievalSet) or not dev or records_of(dev) == "pairs":
            return dev
        most = self.settings.num_negatives
        examples = with_candidates_as_negatives(cast("Sequence[Example]", dev), most)
        to_score = [example for example in examples if example.negatives]
        if not to_score:
            return dev
        given: list[list[Example]] = []
        for teacher, name, store in self.each():
            if store is not None:
                store = store.with_name(f"{store.stem}.dev-{digest_of(to_score)[:8]}.jsonl")
            found = label(
                teacher,
                to_score,
                store=store,
                relabel=self.relabel,
                show_progress_bar=self.show_progress_bar,
                say=say,
            )
            if store is not None:
                say(f"{len(found):,} dev examples with scores of {name} are in {store}")
            given.append(found)
        scored = iter(scored_by_all(given, self.objective))
        for place, example in enumerate(examples):
            if example.negatives:
                own = next(scored)
                examples[place] = replace(example, negatives=own.negatives, scores=own.scores)
        return examples

    @property
    def common(self) -> dict[str, Any]:
        """What the teachers have in common."""
        return {
            "methods": self.methods,
            "settings": self.settings,
            "relabel": self.relabel,
            "show_progress_bar": self.show_progress_bar,
        }

    def each(self) -> Iterator[tuple[Any, str, Path | None]]:
        """Yield each teacher, its name and the file of its labels."""
        stores = stores_of(self.store, [teacher.fingerprint() for teacher in self.teachers])
        yield from zip(self.teachers, self.names, stores, strict=True)


def stores_of(store: Path | None, fingerprints: Sequence[str]) -> list[Path | None]:
    """The file of each teacher's labels, the same whichever other teachers there are.

    One teacher has `store`, unless it has a file of its own already; each of several has a file
    beside it with the beginning of its fingerprint in the name, unless `store` is its own.
    """
    if store is None:
        return [None] * len(fingerprints)
    owner = teacher_of(store)
    found: list[Path | None] = []
    for fingerprint in fingerprints:
        own = store.with_name(f"{store.stem}-{fingerprint[:8]}{store.suffix}")
        is_free = len(fingerprints) == 1 and not own.exists() and work_beside(own) is None
        found.append(store if fingerprint == owner or is_free else own)
    return found


def scored_by_all(given: Sequence[Sequence[Example]], objective: ObjectiveConfig) -> list[Example]:
    """Examples that several teachers have scored, with the scores of one that they are together.

    Raises UsageError where they have scored different pairs.
    """
    import torch

    if len(given) == 1:
        return list(given[0])
    require_same(given, lambda example: replace(example, scores=None))
    chosen = OBJECTIVES[objective.objective]
    found = []
    for examples in zip(*given, strict=True):
        scores = torch.tensor([example.scores for example in examples], dtype=torch.float64)
        joined = chosen.mean_of_teachers(scores, objective).tolist()
        found.append(replace(examples[0], scores=tuple(joined)))
    return found


def labelled_by_all(given: Sequence[Sequence[LabelledPair]]) -> list[LabelledPair]:
    """Pairs that several teachers have labelled: with the mean score, or the most frequent class.

    Of classes that are equally frequent, it is that of the first teacher among theirs. Raises
    UsageError where they have labelled different pairs.
    """
    require_same(given, lambda pair: replace(pair, label=0.0))
    found = []
    for pairs in zip(*given, strict=True):
        labels = [pair.label for pair in pairs]
        is_class = all(isinstance(label, int) for label in labels)
        label = Counter(labels).most_common(1)[0][0] if is_class else fmean(labels)
        found.append(replace(pairs[0], label=label))
    return found


def require_same(given: Sequence[Sequence[T]], unlabelled: Callable[[T], T]) -> None:
    """Raise UsageError unless all teachers have labelled the same."""
    first = [unlabelled(record) for record in given[0]]
    for others in given[1:]:
        if first != [unlabelled(record) for record in others]:
            raise UsageError(
                "The teachers have labelled different pairs.",
                "Discard their labels and score again with --relabel.",
            )


def taught_objective(
    objective: ObjectiveConfig, *, of_pairs: bool, in_batch: bool
) -> ObjectiveConfig:
    """The objective that learns from the teacher.

    `of_pairs`: from labelled pairs; `in_batch`: the teacher scores all candidates of each step.
    Raises UsageError for one that cannot.
    """
    name = objective.objective
    if in_batch:
        if of_pairs or name not in ("auto", "in_batch_softmax"):
            raise UsageError(
                "A teacher of whole steps (in_batch) is for examples and the objective "
                "in_batch_softmax.",
                "Leave it out, or give examples of a context and its response.",
            )
        return replace(objective, objective="in_batch_softmax")
    if of_pairs:
        return objective
    if name == "auto":
        return replace(objective, objective="margin_mse")
    if name not in TAUGHT:
        raise UsageError(
            f"The objective {name} learns nothing from a teacher's scores of examples.",
            f"Choose one of {', '.join(TAUGHT)}, or train without a teacher.",
        )
    return objective
