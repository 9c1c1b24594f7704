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

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from polyrank.errors import UsageError
from polyrank.models.backbone import Backbone
from polyrank.models.bi_encoder import BiEncoder
from polyrank.models.heads import FollowsHead, MaskedHead
from polyrank.models.two_tower import TwoTower
from polyrank.pretraining.pairs import Pair
from polyrank.tokens.batching import Batch
from polyrank.tokens.masking import Masking
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
from polyrank.training.pretraining.collator import ABSENT, PretrainingCollator, document
from polyrank.training.pretraining.corpora import CorpusPairs

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
            require_one_base(model)
            require_both_ways(model)
            masking = Masking(model.tokenizer.pretrained, examples.masking)
        tokens = some_tokens(model, examples if masking is not None else [])
        module = PretrainingModule(
            model,
            given.objective,
            self.loss,
            tokens=tokens,
            seed=config.seed,
            one_for_both=one_for_both(model, examples),
        )
        collator = PretrainingCollator(
            model,
            examples.config,
            masking,
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
        return loss


class PretrainingModule(TwoTowers):
    """A bi-encoder and, for each tower that reads pairs as one text, the heads for masked tokens
    and for whether a text follows.
    """

    parts = ("contexts", "candidates", "joined")

    def __init__(
        self,
        model: TwoTower,
        objective: ObjectiveConfig,
        loss: Loss,
        *,
        tokens: Tensor,
        seed: int,
        one_for_both: bool,
    ) -> None:
        """`tokens` are ids as often as texts of the run have them, of any number. With
        `one_for_both`, one encoder is trained, and `finish` makes both towers of it.
        """
        super().__init__(model, objective, loss)
        self.one_for_both = one_for_both
        width = model.context_tower.width
        self.masked_heads, self.follows_heads = nn.ModuleList(), nn.ModuleList()
        for embeddings in map(embeddings_of, self.readers):
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(seed)
                counts = torch.bincount(tokens, minlength=len(embeddings))
                head = MaskedHead(width, embeddings.detach(), counts)
                self.masked_heads.append(head.to(model.device))
                self.follows_heads.append(FollowsHead(width).to(model.device))

    @property
    def readers(self) -> list[Backbone]:
        """The towers that read pairs as one text, each its share of them."""
        model = self.model
        if model.candidate_tower is None or self.one_for_both:
            return [model.context_tower]
        return [model.context_tower, model.candidate_tower]

    def encode(self, part: str, batch: Batch) -> Tensor:
        """Contexts (B, 1, d), candidates (U, d); of pairs read as one, the first output and those
        at the masked tokens: (n, 1 + K, h).
        """
        if part != "joined":
            return super().encode(part, batch)
        outputs = self.readers[int(batch["reader"])](batch)  # (n, T, h)
        places = batch["positions"][:, :, None].expand(-1, -1, outputs.shape[-1])
        picked = torch.cat([outputs[:, :1], outputs.gather(1, places)], dim=1)
        return picked.to(torch.promote_types(picked.dtype, torch.float32))

    def masked_logits(self, reader: int, outputs: Tensor) -> Tensor:
        """What stands at masked tokens, of a tower's outputs there: (M, h) → (M, V)."""
        logits: Tensor = self.masked_heads[reader](outputs, embeddings_of(self.readers[reader]))
        return logits

    def finish(self) -> None:
        """Make both towers of the one encoder that was trained, where one was."""
        if self.one_for_both and self.model.candidate_tower is not None:
            self.model.candidate_tower.load_state_dict(self.model.context_tower.state_dict())


def require_one_base(model: TwoTower) -> None:
    """Raise UsageError for two encoders that cannot read the same pairs as one text."""
    if model.has_two_bases:
        raise UsageError(
            "The tasks read a pair as one text, which two encoders with their own vocabularies "
            "cannot both do.",
            "Pre-train each encoder in its own run and join them with candidate_base, or leave "
            "out mlm, next_sentence and next_utterance.",
        )


def require_both_ways(model: TwoTower) -> None:
    """Raise UsageError for encoders that do not see what comes after a masked token."""
    if any(tower.is_causal for tower in model.towers):
        raise UsageError(
            "The tasks read a pair as one text from both sides, but the encoder reads forwards "
            "only.",
            "Choose an encoder that reads both ways, or leave out mlm, next_sentence and "
            "next_utterance.",
        )


def one_for_both(model: TwoTower, examples: CorpusPairs) -> bool:
    """Whether one encoder is trained for two towers: they are equal, and no task distinguishes
    them. A pair that is read as one text belongs to neither side. Two towers would learn the same,
    each from half of the pairs.
    """
    if model.candidate_tower is None or model.has_two_bases or examples.is_compared:
        return False
    other = model.candidate_tower.state_dict()
    return all(
        torch.equal(value, other[name]) for name, value in model.context_tower.state_dict().items()
    )


def embeddings_of(tower: Backbone) -> Tensor:
    """The word embeddings of an encoder: (V, e)."""
    encoder: Any = tower.encoder
    weight: Tensor = encoder.get_input_embeddings().weight
    return weight


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


def sum_of_masked_tokens(
    module: PretrainingModule, reader: int, outputs: Tensor, labels: Tensor
) -> Tensor:
    """The sum of the cross-entropies of a tower's masked tokens: (M, h), (M,) → ()."""

    def summed(some: Tensor, wanted: Tensor) -> Tensor:
        logits = module.masked_logits(reader, some)
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
