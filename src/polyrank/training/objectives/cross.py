"""The objectives of the cross-encoder.

Letters: B contexts, C candidates of each, n pairs, L classes.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from polyrank.models.cross_encoder import CrossEncoder
from polyrank.tokens.batching import Batch, mask_of
from polyrank.training import losses
from polyrank.training.gather import num_processes
from polyrank.training.objectives.module import TrainingModule
from polyrank.training.objectives.registry import ObjectiveConfig, ObjectiveName
from polyrank.training.objectives.two_tower import distilled, everyones, everyones_texts


class CrossObjective(TrainingModule):
    """Scores pairs: (n,), or (n, L) for classes."""

    parts = ("pairs",)
    model: CrossEncoder

    def encode(self, part: str, batch: Batch) -> Tensor:
        """Scores of one batch, in its own order."""
        count = len(batch["input_ids"])
        in_place = {**batch, "rows": torch.arange(count, device=batch["rows"].device)}
        scores: Tensor = self.model([in_place])
        return scores


class CrossInBatch(TrainingModule):
    """The in-batch softmax of a cross-encoder that can read texts apart.

    Its gate has no part in this: the texts of a step are encoded once each, and every context is
    compared with every candidate token by token. The outputs of a text are filled up with zeros.
    """

    parts = ("contexts", "candidates")
    model: CrossEncoder

    def encode(self, part: str, batch: Batch) -> Tensor:
        """Token outputs (B, L, h), L the most tokens of this side."""
        model, config = self.model, self.model.config
        tower, most = model.tower, config.max_context_length
        if part == "candidates":
            tower, most = model.candidate_tower or model.tower, config.max_candidate_length
        outputs = tower(batch)
        with torch.autocast(self.model.device.type, enabled=False):
            outputs = outputs.to(torch.promote_types(outputs.dtype, torch.float32))
            outputs = outputs * mask_of(batch)[:, :, None]
            return functional.pad(outputs, (0, 0, 0, max(most - outputs.shape[1], 0)))

    def matrix(self, encoded: dict[str, Tensor], step: dict[str, Any]) -> Tensor:
        """This process's contexts against the candidates of all processes: (B, N)."""
        contexts, places = encoded["contexts"], step["identities"]
        head: Any = self.model.head
        if num_processes() == 1:  # a text that stands twice is compared once
            scores: Tensor = head.score_all(contexts, encoded["candidates"])[:, places]
        else:
            columns = everyones(encoded["candidates"][places], len(contexts))
            scores = head.score_all(contexts, columns)
        return scores

    def share(self, encoded: dict[str, Tensor], step: dict[str, Any]) -> Tensor:
        """The loss of this process's contexts among the candidates of all processes."""
        count = len(encoded["contexts"])
        texts, answered, frequencies = everyones_texts(step, count, logq=self.settings.logq)
        loss = losses.in_batch_softmax(
            self.matrix(encoded, step), texts, contexts=answered, log_frequencies=frequencies
        )
        return self.shared(loss, count)


class CrossRanking(CrossObjective):
    """Each context's response against wrong ones: in a list, or each pair by itself."""

    def __init__(self, model: CrossEncoder, settings: ObjectiveConfig, *, binary: bool) -> None:
        super().__init__(model, settings)
        self.binary = binary

    def share(self, encoded: dict[str, Tensor], step: dict[str, Any]) -> Tensor:
        """The listwise softmax or the binary cross-entropy."""
        scores = encoded["pairs"].view(-1, step["num_candidates"])  # (B, C)
        if not self.binary:
            return self.shared(losses.listwise_softmax(scores), len(scores))
        labels = torch.zeros_like(scores)
        labels[:, 0] = 1
        loss = losses.binary_cross_entropy(scores.reshape(-1), labels.reshape(-1))
        return self.shared(loss, scores.numel())


class CrossDistillation(CrossObjective):
    """A teacher's scores of each context's own candidates."""

    def __init__(self, model: CrossEncoder, settings: ObjectiveConfig, *, margins: bool) -> None:
        super().__init__(model, settings)
        self.margins = margins

    def share(self, encoded: dict[str, Tensor], step: dict[str, Any]) -> Tensor:
        """Margin-MSE or the KL divergence."""
        scores = encoded["pairs"][step["own"].clamp(min=0)]  # (B, C)
        return distilled(self, scores, step, margins=self.margins)


class CrossLabelled(CrossObjective):
    """Labelled pairs: classes, values, or yes and no."""

    def __init__(
        self, model: CrossEncoder, settings: ObjectiveConfig, *, name: ObjectiveName
    ) -> None:
        super().__init__(model, settings)
        self.name = name

    def share(self, encoded: dict[str, Tensor], step: dict[str, Any]) -> Tensor:
        """The mean over the pairs."""
        outputs, labels = encoded["pairs"], step["labels"]
        if self.name == "classification":
            loss = losses.class_softmax(outputs, labels)
        elif self.name == "regression":
            loss = losses.regression(outputs, labels.to(outputs.dtype))
        else:
            loss = losses.binary_cross_entropy(outputs, labels.to(outputs.dtype))
        return self.shared(loss, len(labels))
