"""Teachers of whole steps: which candidates of a step each of them scores, and their scores as one
teacher's.

A teacher that reads texts separately encodes the texts of the step once and scores all candidates
for all contexts; a cross-encoder whose gate is closed is one of them. Any other reads pairs, so it
scores few candidates for each context: the response, the example's negatives, and those that the
student finds hardest. Knows nothing of the student.

Letters: B contexts of this process, R responses and N candidates of all processes, K teachers, C
candidates that are scored for each context, U different candidates of this process.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from polyrank.records import Context
from polyrank.training.batches import ABSENT, TextBatcher, filled
from polyrank.training.gather import gather_texts
from polyrank.training.module import CrossReadApart, TwoTowers, reading_apart
from polyrank.training.objectives.kl import mean_scores
from polyrank.training.objectives.registry import ObjectiveConfig
from polyrank.training.teaching.teacher import Teacher

FEW = 8
"""Candidates that a teacher that reads pairs scores for each context besides its own, by default:
a step then costs it about nine pairs for each context."""
OF_ALL, OF_FEW = (8.0, 1.0), (1.0, 0.5)
"""The temperature and the teachers' share of the loss where they score all candidates of a step,
and where they score few, by default (docs/log.md)."""


@dataclass(frozen=True)
class StepTexts:
    """The texts of a step in this process, for teachers that read pairs. They stay as they are when
    the step is moved to a device.
    """

    contexts: Sequence[Context]
    columns: Sequence[str]
    """The candidates: the responses first, then the negatives."""


class Teachers:
    """The teachers of a run."""

    def __init__(
        self,
        models: Sequence[Any],
        objective: ObjectiveConfig,
        batch_tokens: int,
    ) -> None:
        """`batch_tokens`: of each batch that they encode. Raises UsageError for a model with
        classes.
        """
        self.apart: list[TwoTowers | CrossReadApart] = []
        self.of_pairs: list[Teacher] = []
        for model in models:
            teacher = Teacher(model)
            if reads_apart(model):
                self.apart.append(reading_apart(model, ObjectiveConfig(), no_loss).eval())
            else:
                self.of_pairs.append(teacher)
        self.readers = [TextBatcher(module.model, batch_tokens) for module in self.apart]
        self.num_candidates = objective.teacher_candidates
        if self.num_candidates is None and self.of_pairs:
            self.num_candidates = FEW
        temperature, share = OF_FEW if self.num_candidates is not None else OF_ALL
        self.temperature: float = objective.distillation_temperature or temperature
        self.share: float = objective.teacher_share or share

    def prepare(
        self, contexts: Sequence[Context], columns: Sequence[str], own: Sequence[Sequence[int]]
    ) -> dict[str, Any]:
        """What the teachers need of a step, beside what the student does.

        `columns` are all candidates of the step in this process, and `own` the columns of each
        context's response and negatives. Gives `teachers`, the parts of those that read texts
        separately; where few candidates are scored, `own_columns` (B, C), filled up with −1; and
        `step_texts`, where a teacher reads pairs.
        """
        texts = list(dict.fromkeys(columns))
        made: dict[str, Any] = {
            "teachers": [
                {"contexts": read.contexts(contexts), "candidates": read.candidates(texts)}
                for read in self.readers
            ]
        }
        if self.num_candidates is not None:
            made["own_columns"] = filled(own, ABSENT)
        if self.of_pairs:
            made["step_texts"] = StepTexts(contexts, columns)
        return made

    @torch.no_grad()
    def teach(
        self,
        scores: Tensor,
        texts: Tensor,
        num_responses: int,
        present: Tensor,
        step: dict[str, Any],
    ) -> tuple[Tensor, Tensor]:
        """The teachers' scores of candidates as those of one (B, N), and which are scored (B, N).

        scores (B, N): the student's; texts (N,): equal for equal texts, those of the R responses
        first; present (B, N): the response of each context, and what is wrong for it.
        """
        scored = present
        if self.num_candidates is not None:
            own = columns_in_all(step["own_columns"], num_responses)
            scored = hardest(scores, present, texts, own, self.num_candidates)
        found = [
            scores_of_module(module, parts, step)
            for module, parts in zip(self.apart, step["teachers"], strict=True)
        ]
        if self.of_pairs:
            found += self.scores_of_pairs(step["step_texts"], scored)
        several = torch.stack([one.to(scores.dtype) for one in found])  # (K, B, N)
        return mean_scores(several, scored, self.temperature), scored

    def scores_of_pairs(self, step: StepTexts, scored: Tensor) -> list[Tensor]:
        """The scores (B, N) of each teacher that reads pairs, 0 where nothing is scored."""
        count = len(step.contexts)
        columns = gather_texts(step.columns[:count]) + gather_texts(step.columns[count:])
        places = scored.nonzero()  # (n, 2)
        pairs = [(step.contexts[row], columns[column]) for row, column in places.tolist()]
        found = []
        for teacher in self.of_pairs:
            values = torch.tensor(teacher.score(pairs, show_progress_bar=False))
            empty = torch.zeros(scored.shape, device=scored.device)
            found.append(empty.index_put(tuple(places.T), values.to(scored.device)))
        return found


def reads_apart(model: Any) -> bool:
    """Whether the texts of a step can be encoded without each other, by the model's own weights,
    and then compared.
    """
    if model.engine is not None:
        return False
    return model.architecture != "cross" or model.is_gate_closed


def no_loss(*_: Any) -> Tensor:
    """What a teacher minimises."""
    raise TypeError("A teacher is not trained.")


def scores_of_module(
    module: TwoTowers | CrossReadApart, parts: dict[str, Any], step: dict[str, Any]
) -> Tensor:
    """A teacher's scores of this process's contexts and the candidates of all processes: (B, N).

    `parts` are the texts of the step as it reads them.
    """
    device, dtype = module.model.device.type, module.model.compute_dtype
    with torch.autocast(device, dtype=dtype, enabled=dtype != torch.float32):
        encoded = module.encode_step(parts)
    return module.score_step(encoded, step)


def columns_in_all(own: Tensor, num_responses: int) -> Tensor:
    """Columns of this process (B, C) as columns of all, which begin with all R responses."""
    return torch.where(own >= len(own), own + (num_responses - len(own)), own)


def hardest(scores: Tensor, present: Tensor, texts: Tensor, own: Tensor, count: int) -> Tensor:
    """Each context's own candidates, and the `count` others of the highest score: (B, N) booleans.

    scores (B, N); present (B, N): what may be chosen; texts (N,): equal for equal texts; own
    (B, C): columns, filled up with −1. Of the others, each text is chosen once.
    """
    places = torch.arange(len(texts), device=texts.device)
    there = (own >= 0)[:, :, None]
    is_own = (there & (own[:, :, None] == places)).any(dim=1)  # (B, N)
    in_own = (there & (texts[own.clamp(min=0)][:, :, None] == texts)).any(dim=1)
    is_repeated = (texts[:, None] == texts).tril(-1).any(dim=1)  # (N,)
    others = present & ~in_own & ~is_repeated
    best = scores.masked_fill(~others, -torch.inf).topk(min(count, len(texts)), dim=1).indices
    is_best = torch.zeros_like(present).scatter(1, best, True)
    return (is_own & present) | (is_best & others)
