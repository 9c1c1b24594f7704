"""The steps of the cross-encoder.

Letters: B contexts, C candidates of each context, n pairs.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import torch

from polyrank.models.cross_encoder import CrossEncoder
from polyrank.records import Context, Example
from polyrank.tokens.batching import Batch, batches
from polyrank.training.collators.numbered import Numbered, drawn_responses, responses_of
from polyrank.training.collators.two_tower import ABSENT, filled


class CrossPairs:
    """Pairs of texts to batches of token ids, as the model reads them."""

    def __init__(self, model: CrossEncoder, token_budget: int) -> None:
        self.model = model
        self.token_budget = token_budget

    def pairs(self, contexts: Sequence[Context], candidates: Sequence[str]) -> list[Batch]:
        """Pairs cut by length."""
        ids, segments = self.model.encode_pairs(contexts, candidates)
        pad_id = self.model.tokenizer.pad_id
        return batches(ids, pad_id, segments=segments, budget=self.token_budget)


class CrossCollator(CrossPairs):
    """Each context with its response and wrong ones, of the example or drawn."""

    def __init__(
        self,
        model: CrossEncoder,
        examples: Sequence[Example],
        num_negatives: int,
        token_budget: int,
        seed: int,
    ) -> None:
        super().__init__(model, token_budget)
        self.pool = responses_of(examples)
        self.num_negatives = num_negatives
        self.seed = seed

    def __call__(self, step: Sequence[Numbered]) -> dict[str, Any]:
        """`pairs`: batches cut by length of the B · C pairs, each context's response first."""
        contexts: list[Context] = []
        candidates: list[str] = []
        for numbered in step:
            example: Example = numbered.example
            texts = [example.response, *self.negatives(example, numbered.draw(self.seed))]
            contexts += [example.context] * len(texts)
            candidates += texts
        return {
            "pairs": self.pairs(contexts, candidates),
            "num_candidates": 1 + self.num_negatives,
        }

    def negatives(self, example: Example, draw: random.Random) -> list[str]:
        """The example's own wrong responses first, then ones of the training set."""
        own = [text for text in example.negatives if text != example.response]
        others = [text for text in example.candidates or () if text != example.response]
        chosen = own[: self.num_negatives]
        chosen += draw.sample(others, min(len(others), self.num_negatives - len(chosen)))
        missing = self.num_negatives - len(chosen)
        return chosen + drawn_responses(self.pool, example.response, missing, draw)


class CrossTeacherCollator(CrossPairs):
    """Each context with its response and all its negatives, and a teacher's scores of them."""

    def __call__(self, step: Sequence[Numbered]) -> dict[str, Any]:
        """`pairs`: batches cut by length; `own` (B, C): the rows of each context's pairs, the
        response first, filled up with −1; `teacher` (B, C).
        """
        contexts: list[Context] = []
        candidates: list[str] = []
        own = []
        for numbered in step:
            example: Example = numbered.example
            texts = (example.response, *example.negatives)
            own.append(range(len(candidates), len(candidates) + len(texts)))
            contexts += [example.context] * len(texts)
            candidates += texts
        return {
            "pairs": self.pairs(contexts, candidates),
            "own": filled(own, ABSENT),
            "teacher": filled([numbered.example.scores for numbered in step], 0.0),
        }


class CrossPairCollator(CrossPairs):
    """Labelled pairs."""

    def __call__(self, step: Sequence[Numbered]) -> dict[str, Any]:
        """`pairs`: batches cut by length of the n pairs; `labels` (n,)."""
        pairs = [numbered.example for numbered in step]
        return {
            "pairs": self.pairs([pair.first for pair in pairs], [pair.second for pair in pairs]),
            "labels": torch.tensor([pair.label for pair in pairs]),
        }
