"""The losses of pre-training: in-batch softmax, masked tokens, and whether a text follows.

Letters: B pairs of the in-batch softmax, N documents of all processes, n pairs read as one, K
masked tokens of each, M all masked tokens, h width of the encoder, V tokens of the vocabulary.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from polyrank.models.heads import FollowsHead, MaskedHead
from polyrank.models.two_tower import TwoTower
from polyrank.tokens.batching import Batch
from polyrank.training import losses
from polyrank.training.gather import total
from polyrank.training.objectives.registry import ObjectiveConfig
from polyrank.training.objectives.two_tower import TwoTowerObjective, everyones, everyones_texts
from polyrank.training.pretraining.collator import ABSENT

LOGITS_AT_ONCE = 2**25
"""Logits of masked tokens that are kept for the way back; of more, a part is worked out at once."""


class Pretraining(TwoTowerObjective):
    """A step's loss is the mean over its pairs, each by its own task.

    A pair of the in-batch softmax counts its cross-entropy; one that is read as a single text the
    mean cross-entropy of masked tokens, that of all such pairs together, and where it asks whether
    the second follows, that cross-entropy too. So a task's share of the pairs is its weight.
    """

    parts = ("contexts", "candidates", "joined")

    def __init__(
        self, model: TwoTower, settings: ObjectiveConfig, *, tokens: Tensor, seed: int
    ) -> None:
        """`tokens` are ids as often as texts of the run have them, of any number."""
        super().__init__(model, settings)
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

    def share(self, encoded: dict[str, Tensor], step: dict[str, Any]) -> Tensor:
        """This process's part of the sum over all pairs, over their number."""
        device = self.model.device
        pairs = total(step["count"], device)
        loss = torch.zeros((), device=device)
        if total(len(step["identities"]), device):
            loss = loss + self.softmax(encoded, step) / pairs
        joined, masked = total(len(step["follows"]), device), step["labels"] != ABSENT
        asked = step["follows"] != ABSENT
        num_masked = total(int(masked.sum()), device)
        if bool(masked.any()):
            tokens = self.masked_tokens(encoded["joined"][:, 1:][masked], step["labels"][masked])
            loss = loss + tokens / num_masked * (joined / pairs)
        if bool(asked.any()):
            logits = self.follows_head(encoded["joined"][asked, 0])
            follows = functional.cross_entropy(logits, step["follows"][asked], reduction="sum")
            loss = loss + follows / pairs
        return loss

    def softmax(self, encoded: dict[str, Tensor], step: dict[str, Any]) -> Tensor:
        """The sum of the in-batch softmax over this process's pairs."""
        identities = step["identities"]
        count, dimension = len(identities), self.model.dimension
        none = self.embeddings.new_zeros(0, dimension).requires_grad_()
        contexts = encoded.get("contexts", none[:, None])
        candidates = encoded.get("candidates", none)
        columns = everyones(candidates[identities], count)  # (N, d)
        texts, answered, frequencies = everyones_texts(step, count, logq=self.settings.logq)
        answers = everyones(step["answers"][identities], count)  # (N, 64)
        if count == 0:  # the others' steps still need this process
            return columns.sum() * 0
        loss = losses.in_batch_softmax(
            self.scores(contexts, columns),
            texts,
            contexts=answered,
            log_frequencies=frequencies,
            hits=accidental(step["wanted"], answers),
        )
        return loss * count

    def masked_tokens(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """The sum of the cross-entropies of masked tokens: (M, h), (M,) → ()."""
        embeddings = self.embeddings

        def summed(some: Tensor, wanted: Tensor) -> Tensor:
            logits = self.masked_head(some, embeddings)  # (M, V)
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
