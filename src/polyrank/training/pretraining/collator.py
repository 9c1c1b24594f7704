"""Turns pairs of a corpus into the batches of a step: texts that are read separately, pairs that
are read as one text, and pairs whose second text is decoded.

Knows nothing of losses. What is masked, and which of two towers reads a pair, depends on the seed
and the pair's number alone.

Letters: B pairs of the in-batch softmax, U different documents, n pairs read as one or decoded, K
masked tokens of the one that has most, R those of a response, T tokens.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from polyrank.data.answers import text_identity
from polyrank.models.two_tower import TwoTower
from polyrank.pretraining.pairs import Pair
from polyrank.records import Context
from polyrank.tokens.batching import Batch, batches, collate, mask_of, plan
from polyrank.tokens.masking import Masking
from polyrank.tokens.masking_config import MaskingConfig
from polyrank.tokens.tokenizer import cut
from polyrank.training.batches import Item, TextBatcher
from polyrank.training.pretraining.config import PretrainingConfig

ABSENT = -100
"""The label of what is not to be predicted."""
WANTED, ANSWERS = 4, 64
"""The most keys of a pair that count for accidental hits."""


class PretrainingCollator:
    """Pairs of a corpus to a step; what is masked depends on the seed and the pairs' numbers."""

    def __init__(
        self,
        model: TwoTower,
        config: PretrainingConfig,
        masking: MaskingConfig | None,
        batch_tokens: int,
        seed: int,
        *,
        num_readers: int = 1,
    ) -> None:
        """`num_readers` towers share the pairs that are read as one text or decoded.

        Raises ModelError for a tokeniser that cannot mask, where there is a `masking`.
        """
        self.read = TextBatcher(model, batch_tokens)
        self.config = config
        self.masking: dict[str, Masking] = {}
        """By what it masks; empty where nothing is masked."""
        if masking is not None:
            own = {"joined": masking, "response": masking.of_response()}
            if masking.context_masked_share > 0:
                own["context"] = masking.of_context()
            pretrained = model.tokenizer.pretrained
            self.masking = {name: Masking(pretrained, one) for name, one in own.items()}
        self.seed = seed
        self.num_readers = num_readers

    def __call__(self, step: Sequence[Item]) -> dict[str, Any]:
        """`contexts`, `candidates`, `joined` and `decoded`: batches cut by length, of which any may
        be none; `identities`, `context_texts`, `texts` and `log_frequencies` as in
        `InBatchCollator`; `wanted` (B, 4) and `answers` (U, 64): keys, filled up with numbers that
        match nothing; `labels` (n, K): the masked tokens; `follows` (n,): a label or no question;
        `readers` (n,): the number of the tower that reads each, as `reader` in the batches of
        `joined`; of those that are decoded, `context_labels` (n, K), `response_labels` (n, R) and
        `decoding_readers` (n,); `count`: pairs.
        """
        pairs: list[Pair] = [item.example for item in step]
        apart = [pair for pair in pairs if pair.reading == "apart"]
        joined = [item for item in step if item.example.reading == "joined"]
        decoded = [item for item in step if item.example.reading == "decoded"]
        made = {**self.softmax(apart), "count": len(pairs), "joined": [], "decoded": []}
        labels = ("labels", "context_labels", "response_labels")
        made |= dict.fromkeys(labels, torch.zeros(0, 1).long())
        numbers = ("follows", "readers", "decoding_readers")
        made |= dict.fromkeys(numbers, torch.zeros(0).long())
        made |= self.masked(joined) if joined else {}
        return made | self.to_decode(decoded) if decoded else made

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
        pairs: list[Pair] = [item.example for item in step]
        texts = self.read.model.tokenizer
        room = self.config.max_joined_length - texts.pair_overhead
        firsts = texts.encode_turns([pair.first for pair in pairs])
        seconds = texts.encode_turns([document(pair) for pair in pairs])
        fitting = [fitted(*both, room) for both in zip(firsts, seconds, strict=True)]
        rows, segments = zip(*(texts.join(*both) for both in fitting), strict=True)
        draws = [self.draws(item, len(row)) for item, row in zip(step, rows, strict=True)]
        corrupted, positions, labels = self.corrupted("joined", rows, draws)
        readers = torch.tensor([self.reader(item) for item in step])
        made: list[Batch] = []
        for reader in range(self.num_readers):
            own = (readers == reader).nonzero()[:, 0]
            for batch in batches(
                [corrupted[row] for row in own],
                texts.pad_id,
                segments=[segments[row] for row in own],
                budget=self.read.batch_tokens,
            ):
                batch["rows"] = own[batch["rows"]]
                batch["positions"] = positions[batch["rows"]]
                batch["reader"] = torch.tensor(reader)
                made.append(batch)
        follows = [ABSENT if pair.label is None else pair.label for pair in pairs]
        return {
            "joined": made,
            "labels": labels,
            "follows": torch.tensor(follows),
            "readers": readers,
        }

    def to_decode(self, step: Sequence[Item]) -> dict[str, Any]:
        """Pairs of which a tower reads the first text, as the model reads contexts, or candidates
        if it is a passage; a decoder gets its vector and what is left of the second.
        """
        model = self.read.model
        pairs: list[Pair] = [item.example for item in step]
        is_context = not isinstance(pairs[0].first, str)
        read = model.context_ids if is_context else model.candidate_ids
        first = read([pair.first for pair in pairs])
        most = model.config.max_candidate_length
        second = [ids[:most] for ids in model.tokenizer.encode_turns([*map(document, pairs)])]
        lengths = [len(one) + len(other) for one, other in zip(first, second, strict=True)]
        draws = [self.draws(item, count) for item, count in zip(step, lengths, strict=True)]
        context_draws = [draw[: len(ids)] for draw, ids in zip(draws, first, strict=True)]
        response_draws = [draw[len(ids) :] for draw, ids in zip(draws, first, strict=True)]
        first, positions, context_labels = self.corrupted("context", first, context_draws)
        second, places, response_labels = self.corrupted("response", second, response_draws)
        readers = torch.tensor([self.reader(item) for item in step])
        made: list[Batch] = []
        for reader in range(self.num_readers):
            own = (readers == reader).nonzero()[:, 0].numpy()
            for group in plan([lengths[row] for row in own], self.read.batch_tokens):
                rows = own[group]
                batch = collate(first, rows, model.tokenizer.pad_id)
                response = collate(second, rows, model.tokenizer.pad_id)
                batch["positions"] = positions[batch["rows"]]
                batch["reader"] = torch.tensor(reader)
                batch["is_context"] = torch.tensor(is_context)
                batch["response_ids"] = response["input_ids"]
                batch["response_mask"] = mask_of(response)
                batch["response_positions"] = places[batch["rows"]]
                made.append(batch)
        return {
            "decoded": made,
            "context_labels": context_labels,
            "response_labels": response_labels,
            "decoding_readers": readers,
        }

    def corrupted(
        self, name: str, rows: Sequence[list[int]], draws: Sequence[Tensor]
    ) -> tuple[list[list[int]], Tensor, Tensor]:
        """Rows of ids with some tokens masked, where these are and what they were: n rows, (n, K),
        (n, K).
        """
        ids = self.padded(rows)  # (n, T)
        if name not in self.masking:
            return list(rows), ids.new_zeros(len(rows), 0), ids.new_zeros(len(rows), 0)
        uniform = pad_sequence(list(draws), True).permute(2, 0, 1)  # (3, n, T)
        masked, chosen = self.masking[name](ids, uniform)
        cut_ids = [one[: len(row)] for one, row in zip(masked.tolist(), rows, strict=True)]
        return cut_ids, *picked(ids, chosen)

    def padded(self, rows: Sequence[list[int]]) -> Tensor:
        """Rows of ids as one tensor: (n, T)."""
        each = [torch.tensor(row, dtype=torch.int64) for row in rows]
        return pad_sequence(each, True, self.read.model.tokenizer.pad_id)

    def reader(self, item: Item) -> int:
        """The number of the tower that reads a pair, whatever else is in the step."""
        return item.draw(self.seed + 1).randrange(self.num_readers)

    def draws(self, item: Item, length: int) -> Tensor:
        """What decides over the tokens of a pair, whatever else stands in the step: (T, 3)."""
        seed = item.draw(self.seed).getrandbits(62)
        return torch.rand(length, 3, generator=torch.Generator().manual_seed(seed))


def document(pair: Pair) -> Context:
    """The second text of a pair, after its title where it has one."""
    return pair.second if pair.second_title is None else (pair.second_title, pair.second)


def fitted(first: list[int], second: list[int], room: int) -> tuple[list[int], list[int]]:
    """Two texts cut to `room` tokens. The longer one loses more; the first loses its beginning, the
    second its end.
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
    """64-bit numbers, even if there are none."""
    return torch.tensor(list(values), dtype=torch.int64)


def keys(sets: Sequence[frozenset[int]], most: int, fill: int) -> Tensor:
    """The smallest `most` keys of each, filled up: (len(sets), most)."""
    rows = [sorted(one)[:most] for one in sets]
    filled = [[*row, *[fill] * (most - len(row))] for row in rows]
    return torch.tensor(filled, dtype=torch.int64).view(len(sets), most)
