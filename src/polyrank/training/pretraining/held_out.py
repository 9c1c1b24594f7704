"""The figures of pre-training, on pairs of articles and conversations that are never trained on.

Letters: B pairs of one task, U different documents, n pairs of a step, K masked tokens of the one
that has most, M all masked tokens, h width of the encoder, V tokens of the vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from polyrank.models.base import Model
from polyrank.pretraining.pairs import Pair
from polyrank.progress import watched
from polyrank.records import Context
from polyrank.tokens.batching import in_order
from polyrank.training.batches import Item, move
from polyrank.training.objectives.objective import Collator, Evaluation, in_steps
from polyrank.training.pretraining.collator import ABSENT, ANSWERS, WANTED, document, keys
from polyrank.training.pretraining.corpora import CorpusPairs
from polyrank.training.pretraining.module import PretrainingModule, at
from polyrank.training.pretraining.objective import accidental, read_by

METRIC = "held_out"
"""The mean over the tasks of recall@1, of masked tokens that are right, and of right answers.
For cmae, the tokens are those of the decoder."""
AT_ONCE = 64


def evaluation_of_corpus(
    module: PretrainingModule, collator: Collator, examples: CorpusPairs
) -> Evaluation | None:
    """The function that measures the figures of each task, and the name of their mean."""
    tasks = {name: pairs for name, pairs in examples.held_out.items() if pairs}
    if not tasks:
        return None

    def measure(model: Model) -> dict[str, float]:
        found: dict[str, float] = {}
        main = []
        for name, pairs in tasks.items():
            match pairs[0].reading:
                case "apart":
                    figures = ranked(module, pairs)
                case "joined":
                    figures = read_as_one(module, collator, pairs)
                case "decoded":
                    figures = decoded(module, collator, pairs)
            main += [figures.pop("main")]
            found |= {f"{name}_{figure}": value for figure, value in figures.items()}
        return {METRIC: sum(main) / len(main), **found}

    return Evaluation(measure, METRIC)


@torch.inference_mode()
def ranked(module: PretrainingModule, pairs: Sequence[Pair]) -> dict[str, float]:
    """recall@k and MRR of each pair's document among the documents of all."""
    model = module.model
    texts: Any = documents_of(pairs)
    contexts = [pair.first for pair in pairs]
    scores = model.score(contexts, texts, show_progress_bar=watched())
    ranks = ranks_of(scores, pairs)
    figures = {f"recall@{k}": share(ranks <= k) for k in (1, 5, 10, 50, 100)}
    return {"main": figures["recall@1"], **figures, "mrr": float((1 / ranks).mean())}


def documents_of(pairs: Sequence[Pair]) -> list[Context]:
    """The different documents of some pairs."""
    return list(dict.fromkeys(document(pair) for pair in pairs))


def ranks_of(scores: Tensor, pairs: Sequence[Pair]) -> Tensor:
    """The rank, from 1, of each pair's document, with what else answers it left out: (B,).

    scores (B, U) of the firsts and `documents_of` the pairs; equal scores count as better.
    """
    rows = {text: row for row, text in enumerate(documents_of(pairs))}
    own = torch.tensor([rows[document(pair)] for pair in pairs])
    answers = {rows[document(pair)]: pair.answers for pair in reversed(pairs)}
    hits = accidental(
        keys([pair.wanted for pair in pairs], WANTED, -1),
        keys([answers[row] for row in range(len(rows))], ANSWERS, -2),
    )
    hits[torch.arange(len(own)), own] = False
    scores = scores.masked_fill(hits, -torch.inf)
    return (scores >= scores.gather(1, own[:, None])).sum(dim=1)


@torch.no_grad()
def read_as_one(
    module: PretrainingModule, collator: Collator, pairs: Sequence[Pair]
) -> dict[str, float]:
    """The shares of masked tokens, and of answers to whether the second follows, that are right."""
    tokens, answers = [], []
    for start in range(0, len(pairs), AT_ONCE):
        items = [Item(start + n, pair) for n, pair in enumerate(pairs[start:][:AT_ONCE])]
        step = move(collator(items), module.model.device)
        outputs = module.encode_step(step)["joined"]
        for reader in range(len(module.readers)):
            masked, asked = read_by(reader, step)
            found = module.masked_logits(reader, outputs[:, 1:][masked]).argmax(dim=-1)
            tokens.append(found == step["labels"][masked])
            follows = module.follows_heads[reader](outputs[asked, 0]).argmax(dim=-1)
            answers.append(follows == step["follows"][asked])
    right = share(torch.cat(tokens))
    follow = torch.cat(answers)
    if not len(follow):
        return {"main": right, "masked": right}
    return {"main": share(follow), "masked": right, "follows": share(follow)}


@torch.no_grad()
def decoded(
    module: PretrainingModule, collator: Collator, pairs: Sequence[Pair]
) -> dict[str, float]:
    """The loss of the decoder with the vector of each pair's first text, and with the vector of
    another pair: the difference is what a vector says of its second text. And the shares of masked
    tokens that are right, of second texts and of first.
    """
    own, shuffled = Predictions(), Predictions()
    first = Predictions()
    place = 0
    for some in in_steps(pairs, AT_ONCE):
        items = [Item(place + n, pair) for n, pair in enumerate(some)]
        place += len(some)
        step = move(collator(items), module.model.device)
        read = [module.read(batch) for batch in step["decoded"]]
        vectors = in_order([each for _, each in read], step["decoded"])  # (n, h)
        for batch, (outputs, _) in zip(step["decoded"], read, strict=True):
            rows, reader = batch["rows"], int(batch["reader"])
            labels = step["context_labels"][rows]
            there = at(batch["positions"], outputs)[labels != ABSENT]
            first.add(module.masked_logits(reader, there), labels)
            labels = step["response_labels"][rows]
            for found, given in ((own, vectors), (shuffled, vectors.roll(1, 0))):
                there = module.decode(batch, given[rows])[labels != ABSENT]
                found.add(module.masked_logits(reader, there, of_decoder=True), labels)
    figures = {
        "decoded": own.share,
        "decoder_loss": own.loss,
        "shuffled_decoder_loss": shuffled.loss,
        "masked": first.share,
    }
    return {"main": own.share, **figures}


class Predictions:
    """Predictions of masked tokens: how many are right, and their loss."""

    def __init__(self) -> None:
        self._right: list[Tensor] = []
        self._losses: list[Tensor] = []

    def add(self, logits: Tensor, labels: Tensor) -> None:
        """Add the M predictions (M, V) of labels (n, K), of which those that are absent have
        none.
        """
        wanted = labels[labels != ABSENT]
        self._right.append(logits.argmax(dim=-1) == wanted)
        self._losses.append(functional.cross_entropy(logits, wanted, reduction="none"))

    @property
    def share(self) -> float:
        """The share of right ones; 0 of none."""
        return share(torch.cat(self._right))

    @property
    def loss(self) -> float:
        """The mean cross-entropy; 0 of none."""
        losses = torch.cat(self._losses)
        return float(losses.mean()) if len(losses) else 0.0


def share(right: Tensor) -> float:
    """The share of true values; 0 of none."""
    return float(right.float().mean()) if len(right) else 0.0
