"""What a student learns from a teacher: the objective, and the records with the teacher's labels.

Knows what is scored and where the scores are kept, not how the student is trained.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from polyrank.errors import UsageError
from polyrank.jobs import digest_of
from polyrank.progress import Say
from polyrank.records import Example, LabelledPair, RetrievalSet
from polyrank.training.dev_evaluation import Dev
from polyrank.training.negatives.config import NegativesConfig
from polyrank.training.negatives.methods import Method
from polyrank.training.negatives.pool import Pool
from polyrank.training.objectives.checks import with_candidates_as_negatives
from polyrank.training.objectives.objective import records_of
from polyrank.training.objectives.registry import OBJECTIVES, ObjectiveConfig
from polyrank.training.teaching.labelling import label
from polyrank.training.teaching.silver import silver_pairs

TAUGHT = [name for name, one in OBJECTIVES.items() if one.learns_from_scores]
"""The objectives that learn from a teacher's scores."""


@dataclass(frozen=True, kw_only=True)
class Lesson:
    """What a teacher labels beside the data, and where its labels are kept."""

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
        self, teacher: Any, data: Pool | list[LabelledPair], name: str, say: Say
    ) -> list[Example] | list[LabelledPair]:
        """The examples with the teacher's scores; or the pairs, and new ones that it labels.

        `name` is what people call the teacher. Raises as `label` and `silver_pairs`.
        """
        common: dict[str, Any] = {
            "store": self.store,
            "methods": self.methods,
            "settings": self.settings,
            "relabel": self.relabel,
            "show_progress_bar": self.show_progress_bar,
            "say": say,
        }
        place = "" if self.store is None else f" in {self.store}"
        if isinstance(data, Pool):
            examples = label(teacher, data.examples, pool=data, given=self.given, **common)
            left_out = len(data.examples) - len(examples)
            if left_out:
                say(f"{left_out:,} examples without negatives are left out.")
            number = sum(1 + len(example.negatives) for example in examples)
            say(f"{number:,} scores of {name} are{place or ' in memory'}")
            return examples
        if not self.methods:
            raise UsageError(
                "Labelled pairs have labels of their own, and pairs = given adds nothing to them.",
                "Choose how to find new pairs: bm25, model or random.",
            )
        silver = silver_pairs(teacher, data, **common)
        say(f"{len(data):,} gold pairs, and {len(silver):,} silver ones labelled by {name}{place}")
        return [*data, *silver]

    def label_dev(self, teacher: Any, dev: Dev, say: Say) -> Dev:
        """Dev examples with the teacher's scores of some of their wrong candidates, for the loss.

        Labelled pairs and a corpus that is searched stay as they are.
        """
        if isinstance(dev, RetrievalSet) or not dev or records_of(dev) == "pairs":
            return dev
        most = self.settings.num_negatives
        examples = with_candidates_as_negatives(cast("Sequence[Example]", dev), most)
        to_score = [example for example in examples if example.negatives]
        if not to_score:
            return dev
        store = self.store
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
            say(f"The teacher's scores of {len(found):,} dev examples are in {store}")
        scored = iter(found)
        for place, example in enumerate(examples):
            if example.negatives:
                own = next(scored)
                examples[place] = replace(example, negatives=own.negatives, scores=own.scores)
        return examples


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
