"""The objective of pre-training: pairs of a corpus, of the in-batch softmax or read as one text.

The loss of a step is the mean over its pairs, each by its own task. A pair of the in-batch softmax
counts its cross-entropy; one that is read as a single text the mean cross-entropy of masked tokens,
that of all such pairs together, and where it asks whether the second follows, that cross-entropy
too. So a task's share of the pairs is its weight. docs/pretraining.md names the papers.

Letters: B pairs of the in-batch softmax, U different documents, N documents of all processes, n
pairs read as one, K masked tokens of the one that has most, M all masked tokens, T tokens, h width
of the encoder, V tokens of the vocabulary, d dimensions.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence
from torch.utils.checkpoint import checkpoint

from polyrank.data.answers import text_identity
from polyrank.models.bi_encoder import BiEncoder
from polyrank.models.heads import FollowsHead, MaskedHead
from polyrank.models.two_tower import TwoTower
from polyrank.pretraining.pairs import Pair
from polyrank.records import Context
from polyrank.tokens.batching import Batch, batches
from polyrank.tokens.masking import Masking
from polyrank.tokens.tokenizer import cut
from polyrank.training.batches import Item, TextBatcher
from polyrank.training.gather import sum_over_processes
from polyrank.training.module import Loss, TrainingModule, TwoTowers, columns_of_all
from polyrank.training.objectives.in_batch_softmax import in_batch_softmax, texts_of_all
from polyrank.training.objectives.objective import (
    Collator,
    Evaluation,
    Given,
    Objective,
    Records,
)
from polyrank.training.objectives.registry import ObjectiveConfig
from polyrank.training.pretraining.config import PretrainingConfig

ABSENT = -100
"""The label of what is not to be predicted."""
WANTED, ANSWERS = 4, 64
"""The most keys of a pair that count for accidental hits."""
LOGITS_AT_ONCE = 2**25
"""Logits of masked tokens that are kept for the backward pass; of more, a part is computed at a
time."""
COUNTED = 2000
"""Pairs whose tokens are counted, for the prediction of masked ones to begin with."""


class Pretraining(Objective):
    """Pairs of the in-batch softmax, and pairs read as one text with some of its tokens masked."""

    name = "pretraining"
    records = ("corpus",)
    architectures = ("bi",)

    def check(self, given: Given) -> None:
        """Tasks without pairs have been refused with their corpus."""

    def make(self, given: Given) -> tuple[TrainingModule, Collator]:
        """Raises ModelError for a tokeniser that cannot mask, where a task masks."""
        model, examples, config = given.model, given.examples, given.config
        masking = None
        if examples.masking is not None:
            masking = Masking(model.tokenizer.pretrained, examples.masking)
        budget = config.train_batch_tokens
        collator = PretrainingCollator(model, examples.config, masking, budget, config.seed)
        tokens = some_tokens(model, examples if masking is not None else [])
        module = PretrainingModule(
            model, given.objective, self.loss, tokens=tokens, seed=config.seed
        )
        return module, collator

    def dev_steps(self, given: Given, dev: Records) -> Sequence[Sequence[Pair]]:
        """Held-out pairs, in steps that are made as those of the training are."""
        steps: Sequence[Sequence[Pair]] = given.examples.held_out_steps
        return steps

    def evaluation(self, given: Given, module: Any, collator: Any) -> Evaluation | None:
        """Figures of the held-out pairs of each task."""
        from polyrank.training.pretraining.held_out import evaluation_of_corpus

        return evaluation_of_corpus(module, collator, given.examples)

    def loss(
        self, module: PretrainingModule, encoded: dict[str, Tensor], step: dict[str, Any]
    ) -> Tensor:
        """This process's part of the sum over all pairs, over their number."""
        device = module.model.device
        pairs = sum_over_processes(step["count"], device)
        loss = torch.zeros((), device=device)
        if sum_over_processes(len(step["identities"]), device):
            loss = loss + sum_of_softmax(module, encoded, step) / pairs
        joined, masked = sum_over_processes(len(step["follows"]), device), step["labels"] != ABSENT
        asked = step["follows"] != ABSENT
        num_masked = sum_over_processes(int(masked.sum()), device)
        if bool(masked.any()):
            tokens = sum_of_masked_tokens(
                module, encoded["joined"][:, 1:][masked], step["labels"][masked]
            )
            loss = loss + tokens / num_masked * (joined / pairs)
        if bool(asked.any()):
            logits = module.follows_head(encoded["joined"][asked, 0])
            follows = functional.cross_entropy(logits, step["follows"][asked], reduction="sum")
            loss = loss + follows / pairs
        return loss


class PretrainingModule(TwoTowers):
    """A bi-encoder, and the heads for masked tokens and for whether a text follows."""

    parts = ("contexts", "candidates", "joined")

    def __init__(
        self,
        model: TwoTower,
        objective: ObjectiveConfig,
        loss: Loss,
        *,
        tokens: Tensor,
        seed: int,
    ) -> None:
        """`tokens` are ids as often as texts of the run have them, of any number."""
        super().__init__(model, objective, loss)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            width = model.context_tower.width
            counts = torch.bincount(tokens, minlength=len(self.embeddings))
            head = MaskedHead(width, self.embeddings.detach(), counts)
            self.masked_head = head.to(model.device)
            self.follows_head = FollowsHead(width).to(model.device)

    @property
    def embeddings(self) -> Tensor:
        """The encoder's word embeddings: (V, e)."""
        encoder: Any = self.model.context_tower.encoder
        weight: Tensor = encoder.get_input_embeddings().weight
        return weight

    def encode(self, part: str, batch: Batch) -> Tensor:
        """Contexts (B, 1, d), candidates (U, d); of pairs read as one, the first output and those
        at the masked tokens: (n, 1 + K, h).
        """
        if part != "joined":
            return super().encode(part, batch)
        outputs = self.model.context_tower(batch)  # (n, T, h)
        places = batch["positions"][:, :, None].expand(-1, -1, outputs.shape[-1])
        picked = torch.cat([outputs[:, :1], outputs.gather(1, places)], dim=1)
        return picked.to(torch.promote_types(picked.dtype, torch.float32))


def sum_of_softmax(
    module: PretrainingModule, encoded: dict[str, Tensor], step: dict[str, Any]
) -> Tensor:
    """The sum of the in-batch softmax over this process's pairs."""
    identities = step["identities"]
    count, dimension = len(identities), module.model.dimension
    none = module.embeddings.new_zeros(0, dimension).requires_grad_()
    contexts = encoded.get("contexts", none[:, None])
    candidates = encoded.get("candidates", none)
    columns = columns_of_all(candidates[identities], count)  # (N, d)
    texts, answered, frequencies = texts_of_all(step, count, logq=module.objective.logq)
    answers = columns_of_all(step["answers"][identities], count)  # (N, 64)
    if count == 0:  # the others' steps still need this process
        return columns.sum() * 0
    loss = in_batch_softmax(
        module.score_all(contexts, columns),
        texts,
        contexts=answered,
        log_frequencies=frequencies,
        hits=accidental(step["wanted"], answers),
    )
    return loss * count


def sum_of_masked_tokens(module: PretrainingModule, outputs: Tensor, labels: Tensor) -> Tensor:
    """The sum of the cross-entropies of masked tokens: (M, h), (M,) → ()."""
    embeddings = module.embeddings

    def summed(some: Tensor, wanted: Tensor) -> Tensor:
        logits = module.masked_head(some, embeddings)  # (M, V)
        return functional.cross_entropy(logits, wanted, reduction="sum")

    rows = max(LOGITS_AT_ONCE // len(embeddings), 1)
    if len(labels) <= rows:
        return summed(outputs, labels)
    parts = zip(outputs.split(rows), labels.split(rows), strict=True)
    return torch.stack([checkpoint(summed, *part, use_reentrant=False) for part in parts]).sum()


def accidental(wanted: Tensor, answers: Tensor) -> Tensor:
    """Which documents answer what a pair asks for: (B, W), (N, A) → (B, N)."""
    found = torch.zeros(len(wanted), len(answers), dtype=torch.bool, device=wanted.device)
    used = [column for column in answers.T if bool((column >= 0).any())]
    for asked in wanted.T:
        if bool((asked >= 0).any()):
            for column in used:
                found |= asked[:, None] == column[None, :]
    return found


class PretrainingCollator:
    """Pairs of a corpus to a step; what is masked depends on the seed and the pairs' numbers."""

    def __init__(
        self,
        model: TwoTower,
        config: PretrainingConfig,
        masking: Masking | None,
        token_budget: int,
        seed: int,
    ) -> None:
        self.read = TextBatcher(model, token_budget)
        self.config = config
        self.masking = masking
        self.seed = seed

    def __call__(self, step: Sequence[Item]) -> dict[str, Any]:
        """`contexts`, `candidates` and `joined`: batches cut by length, of which any may be none;
        `identities`, `context_texts`, `texts` and `log_frequencies` as in `InBatchCollator`;
        `wanted` (B, 4) and `answers` (U, 64): keys, filled up with numbers that match nothing;
        `labels` (n, K): the masked tokens; `follows` (n,): 1, 0 or no question; `count`: pairs.
        """
        pairs: list[Pair] = [item.example for item in step]
        apart = [pair for pair in pairs if not pair.is_joined]
        joined = [item for item in step if item.example.is_joined]
        made = {**self.softmax(apart), "count": len(pairs), "joined": []}
        made |= {"labels": torch.zeros(0, 1).long(), "follows": torch.zeros(0).long()}
        return made | self.masked(joined) if joined else made

    def softmax(self, pairs: Sequence[Pair]) -> dict[str, Any]:
        """What the in-batch softmax needs of its pairs."""
        rows: dict[Context, int] = {}
        documents: list[Pair] = []
        for pair in pairs:
            if rows.setdefault(document(pair), len(documents)) == len(documents):
                documents.append(pair)
        return {
            "contexts": self.read.contexts([pair.first for pair in pairs]),
            "candidates": self.read.candidates(list(rows)),
            "identities": torch.tensor([rows[document(pair)] for pair in pairs]).long(),
            "context_texts": numbers(text_identity(pair.first) for pair in pairs),
            "texts": numbers(text_identity(text) for text in rows),
            "log_frequencies": torch.tensor([math.log(pair.frequency) for pair in documents]),
            "wanted": keys([pair.wanted for pair in pairs], WANTED, -1),
            "answers": keys([pair.answers for pair in documents], ANSWERS, -2),
        }

    def masked(self, step: Sequence[Item]) -> dict[str, Any]:
        """Pairs read as one text, some of their tokens masked."""
        assert self.masking is not None
        pairs: list[Pair] = [item.example for item in step]
        texts = self.read.tokenizer
        room = self.config.max_joined_length - texts.pair_overhead
        firsts = texts.encode_turns([pair.first for pair in pairs])
        seconds = texts.encode_turns([document(pair) for pair in pairs])
        fitting = [fitted(*both, room) for both in zip(firsts, seconds, strict=True)]
        rows, segments = zip(*(texts.join(*both) for both in fitting), strict=True)
        ids = pad_sequence([torch.tensor(row) for row in rows], True, float(texts.pad_id))
        ids = ids.long()  # (n, T)
        draws = [self.draws(item, len(row)) for item, row in zip(step, rows, strict=True)]
        uniform = pad_sequence(draws, True).permute(2, 0, 1)  # (3, n, T)
        corrupted, chosen = self.masking(ids, uniform)
        positions, labels = picked(ids, chosen)
        cut_ids = [one[: len(row)] for one, row in zip(corrupted.tolist(), rows, strict=True)]
        made = batches(cut_ids, texts.pad_id, segments=segments, budget=self.read.token_budget)
        for batch in made:
            batch["positions"] = positions[batch["rows"]]
        follows = [ABSENT if pair.label is None else pair.label for pair in pairs]
        return {"joined": made, "labels": labels, "follows": torch.tensor(follows)}

    def draws(self, item: Item, length: int) -> Tensor:
        """What decides over the tokens of a pair, whatever else stands in the step: (T, 3)."""
        seed = item.draw(self.seed).getrandbits(62)
        return torch.rand(length, 3, generator=torch.Generator().manual_seed(seed))


def document(pair: Pair) -> Context:
    """The second text of a pair, after its title where it has one."""
    return pair.second if pair.second_title is None else (pair.second_title, pair.second)


def fitted(first: list[int], second: list[int], room: int) -> tuple[list[int], list[int]]:
    """Two texts cut to `room` tokens: the longer loses most; the first its oldest, the second its
    last.
    """
    half = room // 2
    own = max(half, room - len(second))
    first = cut(first, own, "left")
    return first, cut(second, room - len(first), "right")


def picked(ids: Tensor, chosen: Tensor) -> tuple[Tensor, Tensor]:
    """Where the chosen tokens of each row are, filled up with 0, and what they are, filled up with
    no label: ids (n, T) → (n, K), (n, K).
    """
    counts = chosen.sum(dim=1)
    most = max(int(counts.max()), 1)
    order = chosen.byte().argsort(dim=1, descending=True, stable=True)[:, :most]
    there = torch.arange(order.shape[1])[None, :] < counts[:, None]
    return order * there, ids.gather(1, order).masked_fill(~there, ABSENT)


def numbers(values: Iterable[int]) -> Tensor:
    """64-bit numbers, also of nothing."""
    return torch.tensor(list(values), dtype=torch.int64)


def keys(sets: Sequence[frozenset[int]], most: int, fill: int) -> Tensor:
    """The smallest `most` keys of each, filled up: (len(sets), most)."""
    rows = [sorted(one)[:most] for one in sets]
    filled = [[*row, *[fill] * (most - len(row))] for row in rows]
    return torch.tensor(filled, dtype=torch.int64).view(len(sets), most)


def some_tokens(model: BiEncoder, examples: Sequence[Pair]) -> Tensor:
    """The token ids of the first `COUNTED` pairs of a run, one after the other."""
    texts = [text for pair in examples[:COUNTED] for text in (pair.first, document(pair))]
    rows = model.tokenizer.encode_turns(texts)
    return torch.tensor([token for row in rows for token in row], dtype=torch.int64)
