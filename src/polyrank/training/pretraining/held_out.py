"""The figures of pre-training, on pairs of articles and conversations that are never trained on.

Letters: B pairs of one task, U different documents.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from polyrank.models.base import Model
from polyrank.pretraining.pairs import Pair
from polyrank.tokens.batching import in_order
from polyrank.training.collators.numbered import Numbered
from polyrank.training.figures import move
from polyrank.training.pretraining.collator import ABSENT, PretrainingCollator, document
from polyrank.training.pretraining.objective import Pretraining, accidental
from polyrank.training.pretraining.records import CorpusPairs, is_in_batch

METRIC = "held_out"
"""The mean over the tasks of recall@1, of masked tokens that are right, and of right answers."""
AT_ONCE = 64


def measure_of_corpus(
    module: Pretraining, collator: PretrainingCollator, records: CorpusPairs
) -> tuple[Callable[[Model], dict[str, float]], str]:
    """The function that measures the figures of each task, and the name of their mean."""
    tasks = {name: pairs for name, pairs in records.held_out.items() if pairs}
    if not tasks:
        return lambda model: {}, "none"

    def measure(model: Model) -> dict[str, float]:
        found: dict[str, float] = {}
        main = []
        for name, pairs in tasks.items():
            if is_in_batch(pairs[0]):
                figures = ranked(module, collator, pairs)
            else:
                figures = read_as_one(module, collator, pairs)
            main += [figures.pop("main")]
            found |= {f"{name}_{figure}": value for figure, value in figures.items()}
        return {METRIC: sum(main) / len(main), **found}

    return measure, METRIC


@torch.inference_mode()
def ranked(
    module: Pretraining, collator: PretrainingCollator, pairs: Sequence[Pair]
) -> dict[str, float]:
    """recall@k and MRR of each pair's document among the documents of all."""
    model = module.model
    step = collator.softmax(pairs)
    texts: Any = list(dict.fromkeys(document(pair) for pair in pairs))
    contexts = model.encode_contexts([pair.first for pair in pairs])
    scores = model.score(contexts, model.encode_candidates(texts))  # (B, U)
    own = step["identities"]
    hits = accidental(step["wanted"], step["answers"])
    hits[torch.arange(len(own)), own] = False
    scores = scores.masked_fill(hits, -torch.inf)
    right = scores.gather(1, own[:, None])
    ranks = 1 + (scores >= right).sum(dim=1) - 1
    figures = {f"recall@{k}": share(ranks <= k) for k in (1, 5, 10, 50, 100)}
    return {"main": figures["recall@1"], **figures, "mrr": float((1 / ranks).mean())}


@torch.no_grad()
def read_as_one(
    module: Pretraining, collator: PretrainingCollator, pairs: Sequence[Pair]
) -> dict[str, float]:
    """The shares of masked tokens, and of answers to whether the second follows, that are right."""
    tokens, answers = [], []
    for start in range(0, len(pairs), AT_ONCE):
        numbered = [Numbered(start + n, pair) for n, pair in enumerate(pairs[start:][:AT_ONCE])]
        step = move(collator(numbered), module.model.device)
        outputs = in_order([module.encode("joined", one) for one in step["joined"]], step["joined"])
        masked = step["labels"] != ABSENT
        logits = module.masked_head(outputs[:, 1:][masked], module.embeddings)
        tokens.append(logits.argmax(dim=-1) == step["labels"][masked])
        asked = step["follows"] != ABSENT
        follows = module.follows_head(outputs[asked, 0]).argmax(dim=-1)
        answers.append(follows == step["follows"][asked])
    right = share(torch.cat(tokens))
    found = torch.cat(answers)
    if not len(found):
        return {"main": right, "masked": right}
    return {"main": share(found), "masked": right, "follows": share(found)}


def share(right: Tensor) -> float:
    """The share of true values; 0 of none."""
    return float(right.float().mean()) if len(right) else 0.0
