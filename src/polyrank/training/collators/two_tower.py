"""The steps of bi- and poly-encoders.

Letters: B contexts, N candidates of the step, U different ones, C candidates of each context,
n pairs.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from polyrank.models.cross_encoder import CrossEncoder
from polyrank.models.two_tower import TwoTower
from polyrank.records import Context, Example
from polyrank.tokens.batching import Batch, batches
from polyrank.training.collators.numbered import Numbered, drawn_responses
from polyrank.training.gather import text_identity

ABSENT = -1
"""The row of a candidate that a context with fewer candidates does not have."""


class TwoTowerTexts:
    """Texts to batches of token ids, as the model reads them apart."""

    def __init__(self, model: TwoTower | CrossEncoder, token_budget: int) -> None:
        self.tokenizer = model.tokenizer
        self.config = model.config
        self.token_budget = token_budget

    def contexts(self, contexts: Sequence[Context]) -> list[Batch]:
        """Contexts cut by length."""
        sequences = self.tokenizer.contexts(contexts, self.config.max_context_length)
        return batches(sequences, self.tokenizer.pad_id, budget=self.token_budget)

    def candidates(self, texts: Sequence[Context]) -> list[Batch]:
        """Candidates cut by length; a title and its text are joined by the separator."""
        sequences = self.tokenizer.candidates(texts, self.config.max_candidate_length)
        return batches(sequences, self.tokenizer.pad_id, budget=self.token_budget)


class TwoTowerCollator:
    """Steps of the in-batch softmax: the responses of the others are the negatives.

    Beside them stand each example's own negatives and `extra_negatives` drawn from `pool` for it.
    `log_frequencies` are those of each text of the training set, where the loss wants them.
    """

    def __init__(
        self,
        model: TwoTower | CrossEncoder,
        token_budget: int,
        *,
        pool: Sequence[str] = (),
        extra_negatives: int = 0,
        seed: int = 0,
        log_frequencies: Mapping[str, float] | None = None,
        teacher: TwoTower | CrossEncoder | None = None,
    ) -> None:
        self.read = TwoTowerTexts(model, token_budget)
        self.taught = None if teacher is None else TwoTowerTexts(teacher, token_budget)
        self.pool = pool
        self.extra_negatives = extra_negatives
        self.seed = seed
        self.log_frequencies = log_frequencies

    def __call__(self, step: Sequence[Numbered]) -> dict[str, Any]:
        """`contexts` and `candidates`: batches cut by length; `identities` (N,): the row of each
        column's text among the candidates, responses first, then negatives; `context_texts` (B,)
        and `texts` (U,): numbers that are equal for equal texts in every process;
        `log_frequencies` (U,). With a teacher, `teacher_contexts` and `teacher_candidates` are the
        same texts as it reads them.
        """
        examples: list[Example] = [numbered.example for numbered in step]
        columns = [example.response for example in examples]
        for numbered in step:
            columns += self.negatives(numbered)
        rows = {text: row for row, text in enumerate(dict.fromkeys(columns))}
        made: dict[str, Any] = {
            "contexts": self.read.contexts([example.context for example in examples]),
            "candidates": self.read.candidates(list(rows)),
            "identities": torch.tensor([rows[text] for text in columns]),
            "context_texts": torch.tensor([text_identity(one.context) for one in examples]),
            "texts": torch.tensor([text_identity(text) for text in rows]),
        }
        if self.log_frequencies is not None:
            made["log_frequencies"] = torch.tensor([self.log_frequencies[text] for text in rows])
        if self.taught is not None:
            made["teacher_contexts"] = self.taught.contexts([one.context for one in examples])
            made["teacher_candidates"] = self.taught.candidates(list(rows))
        return made

    def negatives(self, numbered: Numbered) -> list[str]:
        """The example's own wrong responses, then drawn ones."""
        example: Example = numbered.example
        own = list(example.negatives)
        if self.extra_negatives == 0:
            return own
        draw = numbered.draw(self.seed)
        return own + drawn_responses(self.pool, example.response, self.extra_negatives, draw)


def log_frequencies(
    examples: Sequence[Example], pool: Sequence[str], extra_negatives: int
) -> dict[str, float]:
    """The log q of every text: how many columns of it an example brings to a step on average.

    As a response, as a negative, and as one drawn from the pool; without negatives, q is a
    response's share of the training set.
    """
    counts = Counter(example.response for example in examples)
    counts.update(text for example in examples for text in example.negatives)
    drawn = extra_negatives / len(pool) if pool else 0.0
    return {text: math.log(count / len(examples) + drawn) for text, count in counts.items()}


class OwnCandidatesCollator:
    """Steps in which each context meets its own candidates alone: triplets and teachers' scores."""

    def __init__(self, model: TwoTower, token_budget: int) -> None:
        self.read = TwoTowerTexts(model, token_budget)

    def __call__(self, step: Sequence[Numbered]) -> dict[str, Any]:
        """`contexts` and `candidates`: batches cut by length; `own` (B, C): the rows of each
        context's candidates, the response first, filled up with −1; `teacher` (B, C): the
        teacher's scores, where the examples have them, filled up with 0.
        """
        examples: list[Example] = [numbered.example for numbered in step]
        candidates = [(example.response, *example.negatives) for example in examples]
        different = dict.fromkeys(text for texts in candidates for text in texts)
        rows = {text: row for row, text in enumerate(different)}
        made: dict[str, Any] = {
            "contexts": self.read.contexts([example.context for example in examples]),
            "candidates": self.read.candidates(list(rows)),
            "own": filled([[rows[text] for text in texts] for texts in candidates], ABSENT),
        }
        if all(example.scores is not None for example in examples):
            made["teacher"] = filled([example.scores or () for example in examples], 0.0)
        return made


class TwoTowerPairCollator:
    """Steps of labelled pairs: the first text is the context, the second the candidate."""

    def __init__(self, model: TwoTower, token_budget: int) -> None:
        self.read = TwoTowerTexts(model, token_budget)

    def __call__(self, step: Sequence[Numbered]) -> dict[str, Any]:
        """`contexts` and `candidates`: batches cut by length; `first` and `second` (n,): the rows
        of each pair's texts; `labels` (n,).
        """
        pairs = [numbered.example for numbered in step]
        first = {text: row for row, text in enumerate(dict.fromkeys(p.first for p in pairs))}
        second = {text: row for row, text in enumerate(dict.fromkeys(p.second for p in pairs))}
        return {
            "contexts": self.read.contexts(list(first)),
            "candidates": self.read.candidates(list(second)),
            "first": torch.tensor([first[pair.first] for pair in pairs]),
            "second": torch.tensor([second[pair.second] for pair in pairs]),
            "labels": torch.tensor([pair.label for pair in pairs]),
        }


def filled(rows: Sequence[Sequence[float]], fill: float) -> Tensor:
    """Rows of different lengths as one tensor: (B, C)."""
    width = max(len(row) for row in rows)
    return torch.tensor([[*row, *[fill] * (width - len(row))] for row in rows])
