"""The objective of pre-training: pairs of a corpus, compared in the batch, read as one text or
decoded.

The loss of a step is the mean over its pairs, each by its own task. A pair of the in-batch softmax
counts its cross-entropy; one that is read as a single text the mean cross-entropy of masked tokens,
that of all such pairs together, and where it asks whether the second follows, that cross-entropy
too. One that is decoded counts the mean cross-entropy of the decoder's masked tokens, and that of
the encoder's. So a task's share of the pairs is its weight. docs/pretraining.md names the papers.

Letters: B pairs of the in-batch softmax, U different documents, N documents of all processes, n
pairs read as one or decoded, K masked tokens of the one that has most, R those of its response, M
all masked tokens, h width of the encoder, V tokens of the vocabulary, d dimensions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from polyrank.errors import UsageError
from polyrank.models.bi_encoder import BiEncoder
from polyrank.models.two_tower import TwoTower
from polyrank.pretraining.pairs import Pair
from polyrank.training.gather import sum_over_processes
from polyrank.training.module import TrainingModule, columns_of_all
from polyrank.training.objectives.in_batch_softmax import in_batch_softmax, texts_of_all
from polyrank.training.objectives.objective import (
    Collator,
    Evaluation,
    Given,
    Objective,
    Records,
)
from polyrank.training.pretraining.collator import ABSENT, PretrainingCollator, document
from polyrank.training.pretraining.corpora import CorpusPairs
from polyrank.training.pretraining.module import PretrainingModule, embeddings_of

LOGITS_AT_ONCE = 2**25
"""Logits of masked tokens that are kept for the backward pass; of more, a part is computed at a
time."""
COUNTED = 2000
"""Pairs whose tokens are counted, for the prediction of masked ones to begin with."""


class Pretraining(Objective):
    """Pairs of the in-batch softmax, and pairs of which some tokens are masked."""

    name = "pretraining"
    records = ("corpus",)
    architectures = ("bi",)

    def check(self, given: Given) -> None:
        """Tasks without pairs have been refused with their corpus."""

    def make(self, given: Given) -> tuple[TrainingModule, Collator]:
        """Raises ModelError for a tokeniser that cannot mask, where a task masks."""
        model, examples, config = given.model, given.examples, given.config
        masks = bool(examples.readings - {"apart"})
        if masks:
            require_one_base(model)
            require_both_ways(model)
        tokens = some_tokens(model, examples if masks else [])
        module = PretrainingModule(
            model,
            given.objective,
            self.loss,
            tokens=tokens,
            seed=config.seed,
            one_for_both=one_for_both(model, examples),
            has_decoder="decoded" in examples.readings,
            at_every_token=examples.config.decoder_vector == "every",
            num_answers=examples.num_answers,
        )
        collator = PretrainingCollator(
            model,
            examples.config,
            examples.masking if masks else None,
            config.train_batch_tokens,
            config.seed,
            num_readers=len(module.readers),
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
        joined = sum_over_processes(len(step["follows"]), device)
        num_masked = sum_over_processes(int((step["labels"] != ABSENT).sum()), device)
        for reader in range(len(module.readers)):
            masked, asked = read_by(reader, step)
            if bool(masked.any()):
                outputs = encoded["joined"][:, 1:][masked]
                tokens = sum_of_masked_tokens(module, reader, outputs, step["labels"][masked])
                loss = loss + tokens / num_masked * (joined / pairs)
            if bool(asked.any()):
                logits = module.follows_heads[reader](encoded["joined"][asked, 0])
                follows = functional.cross_entropy(logits, step["follows"][asked], reduction="sum")
                loss = loss + follows / pairs
        return loss + loss_of_decoded(module, encoded, step, pairs)


def require_one_base(model: TwoTower) -> None:
    """Raise UsageError for two encoders that cannot read the same pairs as one text."""
    if model.has_two_bases:
        raise UsageError(
            "The tasks predict masked tokens of both texts of a pair, which two encoders with "
            "their own vocabularies cannot both do.",
            "Pre-train each encoder in its own run and join them with candidate_base, or leave "
            "out mlm, cmae, next_sentence and next_utterance.",
        )


def require_both_ways(model: TwoTower) -> None:
    """Raise UsageError for encoders that do not see what comes after a masked token."""
    if any(tower.is_causal for tower in model.towers):
        raise UsageError(
            "The tasks predict masked tokens from both sides, but the encoder reads forwards only.",
            "Choose an encoder that reads both ways, or leave out mlm, cmae, next_sentence and "
            "next_utterance.",
        )


def one_for_both(model: TwoTower, examples: CorpusPairs) -> bool:
    """Whether one encoder is trained for two towers: they are equal, and no task distinguishes
    them. A pair that is read as one text or decoded belongs to neither side. Two towers would learn
    the same, each from half of the pairs.
    """
    if model.candidate_tower is None or model.has_two_bases or "apart" in examples.readings:
        return False
    other = model.candidate_tower.state_dict()
    return all(
        torch.equal(value, other[name]) for name, value in model.context_tower.state_dict().items()
    )


def read_by(reader: int, step: dict[str, Any]) -> tuple[Tensor, Tensor]:
    """Of the pairs that a tower reads as one: which tokens are masked, and which pairs ask whether
    the second follows: (n, K), (n,).
    """
    own = step["readers"] == reader
    return (step["labels"] != ABSENT) & own[:, None], (step["follows"] != ABSENT) & own


def sum_of_softmax(
    module: PretrainingModule, encoded: dict[str, Tensor], step: dict[str, Any]
) -> Tensor:
    """The sum of the in-batch softmax over this process's pairs."""
    identities = step["identities"]
    count, dimension = len(identities), module.model.dimension
    like = embeddings_of(module.model.context_tower)
    none = like.new_zeros(0, dimension).requires_grad_()
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


def loss_of_decoded(
    module: PretrainingModule, encoded: dict[str, Tensor], step: dict[str, Any], pairs: float
) -> Tensor:
    """This process's part of the loss of the pairs that are decoded; `pairs` are all of a step."""
    device = module.model.device
    outputs = encoded.get("decoded", torch.zeros((), device=device))
    loss = outputs.sum() * 0  # of texts too short to mask anything, too
    decoded = sum_over_processes(len(step["decoding_readers"]), device)
    for text in ("context", "response"):
        num_masked = sum_over_processes(int((step[f"{text}_labels"] != ABSENT).sum()), device)
        for reader in range(len(module.readers)):
            outputs, labels = decoded_by(reader, text, encoded, step)
            if len(labels):
                is_response = text == "response"
                tokens = sum_of_masked_tokens(
                    module, reader, outputs, labels, of_decoder=is_response
                )
                loss = loss + tokens / num_masked * (decoded / pairs)
    return loss


def decoded_by(
    reader: int, text: str, encoded: dict[str, Tensor], step: dict[str, Any]
) -> tuple[Tensor, Tensor]:
    """Of the pairs that a tower reads for a decoder, the outputs at the masked tokens of their
    `context` or `response`, and these tokens: (M, h), (M,).
    """
    labels = step[f"{text}_labels"]  # (n, K) or (n, R)
    own = (labels != ABSENT) & (step["decoding_readers"] == reader)[:, None]
    if not bool(own.any()):
        return torch.zeros(0), labels[own]
    outputs, in_context = encoded["decoded"], step["context_labels"].shape[1]
    outputs = outputs[:, :in_context] if text == "context" else outputs[:, in_context:]
    return outputs[own], labels[own]


def sum_of_masked_tokens(
    module: PretrainingModule,
    reader: int,
    outputs: Tensor,
    labels: Tensor,
    *,
    of_decoder: bool = False,
) -> Tensor:
    """The sum of the cross-entropies of a tower's masked tokens, or of its decoder's:
    (M, h), (M,) → ().
    """

    def summed(some: Tensor, wanted: Tensor) -> Tensor:
        logits = module.masked_logits(reader, some, of_decoder=of_decoder)
        return functional.cross_entropy(logits, wanted, reduction="sum")

    rows = max(LOGITS_AT_ONCE // len(embeddings_of(module.readers[reader])), 1)
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


def some_tokens(model: BiEncoder, examples: Sequence[Pair]) -> Tensor:
    """The token ids of the first `COUNTED` pairs of a run, one after the other."""
    texts = [text for pair in examples[:COUNTED] for text in (pair.first, document(pair))]
    rows = model.tokenizer.encode_turns(texts)
    return torch.tensor([token for row in rows for token in row], dtype=torch.int64)
