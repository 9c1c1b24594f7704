"""Turns records into the batches of one training step; each text is tokenised and encoded once.

Knows the models' tokenisers and lengths, and nothing of losses. What is drawn for a record depends
on the seed, the epoch and its place in the training set alone, so that a resumed run, and several
processes instead of one, draw the same.

Letters: B contexts, C candidates of each context, n pairs.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from polyrank.models.cross_encoder import CrossEncoder
from polyrank.models.two_tower import TwoTower
from polyrank.records import Context, Example
from polyrank.tokens.batching import Batch, batches
from polyrank.training.drawn_negatives import DrawnNegatives
from polyrank.training.module import CrossPairs, Loss, TrainingModule, TwoTowers
from polyrank.training.objectives.objective import Collator, Given

ABSENT = -1
"""The row of a candidate that a context with fewer candidates does not have."""


class Item(NamedTuple):
    """A record, its place in the training set, and the epoch that it is read in."""

    place: int
    example: Any
    epoch: int = 0

    def draw(self, seed: int) -> random.Random:
        """The generator for this record in this epoch, whatever else is in the step."""
        return random.Random(f"{seed}:{self.epoch}:{self.place}")


class TrainingSet(torch.utils.data.Dataset[Item]):
    """Records by their place. `set_epoch` changes what is drawn for them."""

    def __init__(self, examples: Sequence[Any]) -> None:
        self.examples = examples
        self.epoch = 0

    def __len__(self) -> int:
        return len(self.examples)

    def __getitem__(self, place: int) -> Item:
        return Item(place, self.examples[place], self.epoch)

    def set_epoch(self, epoch: int) -> None:
        """Say which epoch is read from now on, counted from 0."""
        self.epoch = epoch


class TextBatcher:
    """Turns texts into batches of token ids for a model that reads them separately."""

    def __init__(self, model: TwoTower | CrossEncoder, batch_tokens: int) -> None:
        self.model = model
        self.batch_tokens = batch_tokens

    def contexts(self, contexts: Sequence[Context]) -> list[Batch]:
        """Contexts cut by length."""
        sequences = self.model.context_ids(contexts)
        return batches(sequences, self.model.tokenizer.padding, budget=self.batch_tokens)

    def candidates(self, texts: Sequence[Context]) -> list[Batch]:
        """Candidates cut by length; a title and its text are joined by the separator."""
        sequences = self.model.candidate_ids(texts)
        return batches(sequences, self.model.candidate_tokenizer.padding, budget=self.batch_tokens)


class OwnCandidatesCollator:
    """Steps in which each context meets only its own candidates: triplets and teachers' scores."""

    def __init__(self, model: TwoTower, batch_tokens: int) -> None:
        self.read = TextBatcher(model, batch_tokens)

    def __call__(self, step: Sequence[Item]) -> dict[str, Any]:
        """`contexts` and `candidates`: batches cut by length; `own` (B, C): the rows of each
        context's candidates, the response first, filled up with −1; `teacher` (B, C): the
        teacher's scores, where the examples have them, filled up with 0.
        """
        examples: list[Example] = [item.example for item in step]
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


class LabelledPairsCollator:
    """Steps of labelled pairs: the first text is the context, the second the candidate."""

    def __init__(self, model: TwoTower, batch_tokens: int) -> None:
        self.read = TextBatcher(model, batch_tokens)

    def __call__(self, step: Sequence[Item]) -> dict[str, Any]:
        """`contexts` and `candidates`: batches cut by length; `first` and `second` (n,): the rows
        of each pair's texts; `labels` (n,).
        """
        pairs = [item.example for item in step]
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


class PairBatcher:
    """Turns pairs of texts into batches of token ids, as the model reads them."""

    def __init__(self, model: CrossEncoder, batch_tokens: int) -> None:
        self.model = model
        self.batch_tokens = batch_tokens

    def pairs(self, contexts: Sequence[Context], candidates: Sequence[str]) -> list[Batch]:
        """Pairs cut by length."""
        return self.model.pair_batches(contexts, candidates, self.batch_tokens)


class CrossOwnCandidatesCollator(PairBatcher):
    """Each context with its response and all its negatives, and a teacher's scores of them."""

    def __call__(self, step: Sequence[Item]) -> dict[str, Any]:
        """`pairs`: batches cut by length; `own` (B, C): the rows of each context's pairs, the
        response first, filled up with −1; `teacher` (B, C), where the examples have scores.
        """
        contexts: list[Context] = []
        candidates: list[str] = []
        own = []
        for item in step:
            texts = (item.example.response, *self.negatives(item))
            own.append(range(len(candidates), len(candidates) + len(texts)))
            contexts += [item.example.context] * len(texts)
            candidates += texts
        made = {"pairs": self.pairs(contexts, candidates), "own": filled(own, ABSENT)}
        return made | self.taught(step)

    def negatives(self, item: Item) -> Sequence[str]:
        """The example's own."""
        negatives: tuple[str, ...] = item.example.negatives
        return negatives

    def taught(self, step: Sequence[Item]) -> dict[str, Tensor]:
        """The teacher's scores."""
        return {"teacher": filled([item.example.scores for item in step], 0.0)}


class CrossDrawnCandidatesCollator(CrossOwnCandidatesCollator):
    """Each context with its response and wrong ones, of the example or drawn."""

    def __init__(
        self,
        model: CrossEncoder,
        pool: DrawnNegatives,
        num_negatives: int,
        batch_tokens: int,
        seed: int,
    ) -> None:
        super().__init__(model, batch_tokens)
        self.pool = pool
        self.num_negatives = num_negatives
        self.seed = seed

    def negatives(self, item: Item) -> list[str]:
        """The example's own wrong responses first, then its candidates, then drawn ones.

        None is right for the context, by any example, and none repeats; so a small training set
        may give fewer than `num_negatives`.
        """
        example: Example = item.example
        draw = item.draw(self.seed)
        own = self.pool.wrong(example, example.negatives)
        others = self.pool.wrong(example, example.candidates or ())
        left = [identity for identity in others if identity not in own]
        missing = max(self.num_negatives - len(own), 0)
        own |= {
            identity: others[identity] for identity in draw.sample(left, min(len(left), missing))
        }
        chosen = list(own.values())[: self.num_negatives]
        missing = self.num_negatives - len(chosen)
        return chosen + self.pool.draw(example, missing, draw, own)

    def taught(self, step: Sequence[Item]) -> dict[str, Tensor]:
        """What was drawn has no scores."""
        return {}


class CrossLabelledPairsCollator(PairBatcher):
    """Labelled pairs."""

    def __call__(self, step: Sequence[Item]) -> dict[str, Any]:
        """`pairs`: batches cut by length of the n pairs; `labels` (n,)."""
        pairs = [item.example for item in step]
        return {
            "pairs": self.pairs([pair.first for pair in pairs], [pair.second for pair in pairs]),
            "labels": torch.tensor([pair.label for pair in pairs]),
        }


def own_candidates(
    given: Given, loss: Loss, *, raw: bool = False
) -> tuple[TrainingModule, Collator]:
    """A module that scores each context's own candidates, and its batches.

    `raw` vectors of a bi- or poly-encoder are neither normalised nor divided by the temperature.
    """
    model, budget = given.model, given.config.train_batch_tokens
    if isinstance(model, CrossEncoder):
        return CrossPairs(model, given.objective, loss), CrossOwnCandidatesCollator(model, budget)
    module = TwoTowers(model, given.objective, loss, raw=raw)
    return module, OwnCandidatesCollator(model, budget)


def drawn_candidates(given: Given, loss: Loss) -> tuple[TrainingModule, Collator]:
    """A module that scores each context's response and `num_negatives` wrong ones, and its
    batches.
    """
    config = given.config
    pool = DrawnNegatives(given.examples, given.answers)
    collator = CrossDrawnCandidatesCollator(
        given.model, pool, config.num_negatives, config.train_batch_tokens, config.seed
    )
    return CrossPairs(given.model, given.objective, loss), collator


def labelled_pairs(
    given: Given,
    loss: Loss,
    *,
    raw: bool = False,
) -> tuple[TrainingModule, Collator]:
    """A module that encodes or scores labelled pairs, and its batches.

    `raw` as for `own_candidates`.
    """
    model, budget = given.model, given.config.train_batch_tokens
    if isinstance(model, CrossEncoder):
        return CrossPairs(model, given.objective, loss), CrossLabelledPairsCollator(model, budget)
    module = TwoTowers(model, given.objective, loss, raw=raw)
    return module, LabelledPairsCollator(model, budget)


def move(value: Any, device: torch.device) -> Any:
    """Move a step, or a part of one, to a device."""
    if isinstance(value, Tensor):
        return value.to(device)
    if isinstance(value, dict):
        return {name: move(item, device) for name, item in value.items()}
    return [move(item, device) for item in value] if isinstance(value, list) else value
