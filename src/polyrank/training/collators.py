"""Examples to the batches of one training step, each text tokenised and encoded once.

Knows the models' tokenisers and lengths; knows nothing of losses. What is drawn depends on the
seed and on which examples stand in the step, so that a resumed run draws the same.

Letters: B contexts, N candidates of the step, C candidates of each context.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from polyrank.models.cross_encoder import CrossEncoder
from polyrank.models.two_tower import TwoTower
from polyrank.records import Example
from polyrank.tokens.batching import batches


class Numbered(NamedTuple):
    """An example and its place in the training set."""

    place: int
    example: Example


class NumberedExamples(torch.utils.data.Dataset[Numbered]):
    """Examples by their place."""

    def __init__(self, examples: Sequence[Example]) -> None:
        self.examples = examples

    def __len__(self) -> int:
        return len(self.examples)

    def __getitem__(self, place: int) -> Numbered:
        return Numbered(place, self.examples[place])


class TwoTowerCollator:
    """Steps of bi- and poly-encoders: the responses of the others are the negatives."""

    def __init__(self, model: TwoTower, token_budget: int) -> None:
        self.texts = model.texts
        self.config = model.config
        self.token_budget = token_budget

    def __call__(self, step: Sequence[Numbered]) -> dict[str, Any]:
        """`contexts` and `candidates`: batches cut by length; `identities` (N,): the row of each
        column's text among the candidates, responses first, then the examples' negatives.
        """
        examples = [numbered.example for numbered in step]
        columns = [example.response for example in examples]
        columns += [text for example in examples for text in example.negatives]
        rows = {text: row for row, text in enumerate(dict.fromkeys(columns))}
        contexts = self.texts.contexts(
            [example.context for example in examples], self.config.max_context_length
        )
        candidates = self.texts.candidates(list(rows), self.config.max_candidate_length)
        pad_id, budget = self.texts.pad_id, self.token_budget
        return {
            "contexts": batches(contexts, pad_id, budget=budget),
            "candidates": batches(candidates, pad_id, budget=budget),
            "identities": torch.tensor([rows[text] for text in columns]),
        }


class CrossCollator:
    """Steps of the cross-encoder: each context with its response and n wrong ones."""

    def __init__(
        self,
        model: CrossEncoder,
        examples: Sequence[Example],
        num_negatives: int,
        token_budget: int,
        seed: int,
    ) -> None:
        self.model = model
        self.pool = list(dict.fromkeys(example.response for example in examples))
        self.num_negatives = num_negatives
        self.token_budget = token_budget
        self.seed = seed

    def __call__(self, step: Sequence[Numbered]) -> dict[str, Any]:
        """`pairs`: batches cut by length of the B · C pairs, each context's response first."""
        draw = random.Random(f"{self.seed}:{[numbered.place for numbered in step]}")
        contexts, candidates = [], []
        for _, example in step:
            texts = [example.response, *self.negatives(example, draw)]
            contexts += [example.context] * len(texts)
            candidates += texts
        ids, segments = self.model.encode_pairs(contexts, candidates)
        pad_id = self.model.texts.pad_id
        return {
            "pairs": batches(ids, pad_id, segments=segments, budget=self.token_budget),
            "num_candidates": 1 + self.num_negatives,
        }

    def negatives(self, example: Example, draw: random.Random) -> list[str]:
        """The example's own wrong responses first, then ones of the training set."""
        own = [text for text in example.negatives if text != example.response]
        others = [text for text in example.candidates or () if text != example.response]
        chosen = own[: self.num_negatives]
        chosen += draw.sample(others, min(len(others), self.num_negatives - len(chosen)))
        while len(chosen) < self.num_negatives:
            text = draw.choice(self.pool)
            if text != example.response:
                chosen.append(text)
        return chosen
