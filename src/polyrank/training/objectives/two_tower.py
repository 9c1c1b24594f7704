"""The objectives of bi- and poly-encoders.

Letters: B contexts of this process, m vectors of each, R responses and N candidates of all
processes, C candidates of each context, n pairs, d dimensions.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from polyrank.models.pooling import reduce
from polyrank.models.two_tower import TwoTower
from polyrank.tokens.batching import Batch, in_order, mask_of
from polyrank.training import losses
from polyrank.training.gather import gather_rows, num_processes
from polyrank.training.objectives.module import TrainingModule
from polyrank.training.objectives.registry import ObjectiveConfig

LOGITS_AT_ONCE = 2**24
"""Inner products of a poly-encoder that are kept for the way back; more are worked out twice."""


class TwoTowerObjective(TrainingModule):
    """Encodes contexts and candidates; `raw` vectors are neither normalised nor scaled."""

    parts: ClassVar[tuple[str, ...]] = ("contexts", "candidates")
    raw = False
    model: TwoTower

    def encode(self, part: str, batch: Batch) -> Tensor:
        """Contexts (B, m, d), candidates (B, d)."""
        model = self.model
        side = "context" if part == "contexts" else "candidate"
        tower = model.context_tower
        if side == "candidate" and model.candidate_tower is not None:
            tower = model.candidate_tower
        outputs = tower(batch)
        with torch.autocast(model.device.type, enabled=False):  # vectors in float32
            outputs = outputs.to(torch.promote_types(outputs.dtype, torch.float32))
            if self.raw:
                return self.raw_vectors(side, outputs, batch)
            finish = model.finish_contexts if side == "context" else model.finish_candidates
            return finish(outputs, batch)

    def raw_vectors(self, side: str, outputs: Tensor, batch: Batch) -> Tensor:
        """Vectors before normalisation and temperature: (B, m, d) or (B, d)."""
        model, config, mask = self.model, self.model.config, mask_of(batch)
        if side == "context":
            vectors = model.context_vectors(outputs, mask)
            projection = model.context_projection
        else:
            vectors = reduce(outputs, mask, config.reduction, config.reduction_tokens)
            projection = model.candidate_projection or model.context_projection
        return vectors if projection is None else projection(vectors)

    def scores(self, contexts: Tensor, candidates: Tensor) -> Tensor:
        """Every context against every candidate, in blocks where there are many: (B, N)."""
        model = self.model
        rows = max(LOGITS_AT_ONCE // (contexts.shape[1] * len(candidates)), 1)
        if contexts.shape[1] == 1 or rows >= len(contexts):
            return model.score(contexts, candidates)
        return torch.cat(
            [
                checkpoint(
                    model.score, block, candidates, use_reentrant=False, preserve_rng_state=False
                )
                for block in contexts.split(rows)
            ]
        )


class InBatchSoftmax(TwoTowerObjective):
    """The in-batch softmax, of contexts and, if symmetric, of responses; and what a teacher says
    of the same columns, if there is one.
    """

    teacher: InBatchTeacher | None = None

    def matrix(self, encoded: dict[str, Tensor], step: dict[str, Any]) -> Tensor:
        """This process's contexts against the candidates of all processes: (B, N)."""
        contexts, columns = encoded["contexts"], encoded["candidates"][step["identities"]]
        return self.scores(contexts, everyones(columns, len(contexts)))

    def share(self, encoded: dict[str, Tensor], step: dict[str, Any]) -> Tensor:
        """The loss of this process's contexts among the candidates of all processes."""
        contexts = encoded["contexts"]
        count = len(contexts)
        texts, answered, frequencies = everyones_texts(step, count, logq=self.settings.logq)
        scores = self.matrix(encoded, step)
        loss = losses.in_batch_softmax(
            scores, texts, contexts=answered, log_frequencies=frequencies
        )
        if self.settings.symmetric:
            if num_processes() == 1:
                turned = scores[:, :count].T
            else:
                own = encoded["candidates"][step["identities"][:count]]
                turned = self.scores(gather_rows(contexts), own).T  # (B, R)
            responses = texts[: len(answered)]
            loss = (loss + losses.in_batch_softmax(turned, answered, contexts=responses)) / 2
        if self.teacher is not None:
            present = ~losses.known_answers(count, texts, answered)
            temperature = self.settings.distillation_temperature
            wanted = self.teacher.scores(step).to(scores.dtype)
            taught = losses.kl_divergence(scores, wanted, present, temperature)
            share = self.settings.teacher_share
            loss = (1 - share) * loss + share * taught
        return self.shared(loss, count)


class InBatchTeacher:
    """A model that scores every context of a step against every candidate, and is not trained.

    It is no part of the module that it teaches, so that it is neither saved nor counted there.
    """

    def __init__(self, objective: Any) -> None:
        """`objective` is an in-batch softmax around the teacher."""
        self.objective = objective.eval()

    @torch.no_grad()
    def scores(self, step: dict[str, Any]) -> Tensor:
        """This process's contexts against the candidates of all processes: (B, N)."""
        model = self.objective.model
        device, dtype = model.device.type, model.compute_dtype
        encoded = {}
        for part in self.objective.parts:
            batches = step[f"teacher_{part}"]
            with torch.autocast(device, dtype=dtype, enabled=dtype != torch.float32):
                rows = [self.objective.encode(part, batch) for batch in batches]
            encoded[part] = in_order(rows, batches)
        matrix: Tensor = self.objective.matrix(encoded, step)
        return matrix


def everyones_texts(
    step: dict[str, Any], count: int, *, logq: bool
) -> tuple[Tensor, Tensor, Tensor | None]:
    """What the in-batch softmax knows of the texts of all processes, this one's `count` first.

    The identities of the candidates (N,), of the contexts that the responses answer (R,) and, if
    asked, the log frequencies of the candidates (N,).
    """
    places = step["identities"]
    texts = everyones(step["texts"][places], count)
    answered = gather_rows(step["context_texts"])
    frequencies = everyones(step["log_frequencies"][places], count) if logq else None
    return texts, answered, frequencies


def everyones(columns: Tensor, count: int) -> Tensor:
    """The columns of all processes: all responses, this process's `count` first, then all else."""
    if num_processes() == 1:
        return columns
    return torch.cat([gather_rows(columns[:count]), gather_rows(columns[count:])])


class Triplet(TwoTowerObjective):
    """Euclidean distances of each context to its response and its own negatives."""

    raw = True

    def share(self, encoded: dict[str, Tensor], step: dict[str, Any]) -> Tensor:
        """The mean over all (context, negative)."""
        contexts = encoded["contexts"][:, 0]  # (B, d)
        candidates = encoded["candidates"][step["own"].clamp(min=0)]  # (B, C, d)
        present = (step["own"] >= 0)[:, 1:]
        loss = losses.triplet(
            contexts, candidates[:, 0], candidates[:, 1:], present, self.settings.margin
        )
        return self.shared(loss, int(present.sum()))


class Distillation(TwoTowerObjective):
    """A teacher's scores of each context's own candidates."""

    def __init__(self, model: TwoTower, settings: ObjectiveConfig, *, margins: bool) -> None:
        super().__init__(model, settings)
        self.margins = margins

    def share(self, encoded: dict[str, Tensor], step: dict[str, Any]) -> Tensor:
        """Margin-MSE or the KL divergence."""
        candidates = encoded["candidates"][step["own"].clamp(min=0)]  # (B, C, d)
        scores = self.model.score_each(encoded["contexts"], candidates)  # (B, C)
        return distilled(self, scores, step, margins=self.margins)


def distilled(
    objective: TrainingModule, scores: Tensor, step: dict[str, Any], *, margins: bool
) -> Tensor:
    """The share of a loss that brings scores (B, C) to the teacher's."""
    present = step["own"] >= 0
    teacher = step["teacher"].to(scores.dtype)
    if margins:
        loss = losses.margin_mse(scores, teacher, present)
        return objective.shared(loss, int(present[:, 1:].sum()))
    temperature = objective.settings.distillation_temperature
    loss = losses.kl_divergence(scores, teacher, present, temperature)
    return objective.shared(loss, len(scores))


class GradedPairs(TwoTowerObjective):
    """Similarities of labelled pairs: by their values, or by their order (CoSENT).

    The similarity of a pair is its score times the temperature: the cosine for a bi-encoder with
    similarity = cosine, and for a poly-encoder the cosines that its attention weighs.
    """

    def __init__(self, model: TwoTower, settings: ObjectiveConfig, *, ordered: bool) -> None:
        super().__init__(model, settings)
        self.ordered = ordered

    def share(self, encoded: dict[str, Tensor], step: dict[str, Any]) -> Tensor:
        """CoSENT over the pairs of all processes, or the squared error."""
        contexts = encoded["contexts"][step["first"]]  # (n, m, d)
        candidates = encoded["candidates"][step["second"]]  # (n, d)
        scores = self.model.score_each(contexts, candidates[:, None, :])[:, 0]
        similarities = scores * self.model.config.temperature
        labels = step["labels"].to(scores.dtype)
        if not self.ordered:
            return self.shared(losses.regression(similarities, labels), len(labels))
        all_labels = gather_rows(labels)
        loss = losses.cosent(gather_rows(similarities), all_labels, self.settings.scale)
        return loss / num_processes()


class PairClassification(TwoTowerObjective):
    """Sentence-BERT's classifier over the two vectors of a pair, which is no part of the model."""

    raw = True

    def __init__(
        self, model: TwoTower, settings: ObjectiveConfig, *, num_labels: int, seed: int
    ) -> None:
        super().__init__(model, settings)
        width = model.dimension * len(settings.concatenation.split(","))
        self.classifier = nn.Linear(width, num_labels)
        generator = torch.Generator().manual_seed(seed)
        nn.init.normal_(self.classifier.weight, std=0.02, generator=generator)
        nn.init.zeros_(self.classifier.bias)
        self.classifier.to(model.device)

    def share(self, encoded: dict[str, Tensor], step: dict[str, Any]) -> Tensor:
        """Cross-entropy of the classes."""
        u = encoded["contexts"][step["first"], 0]  # (n, d)
        v = encoded["candidates"][step["second"]]  # (n, d)
        features = losses.concatenated(u, v, self.settings.concatenation)
        logits = functional.linear(features, self.classifier.weight, self.classifier.bias)
        labels = step["labels"]
        return self.shared(losses.class_softmax(logits, labels), len(labels))
