"""What is trained: a model that encodes a step in parts, and the loss of the result.

A module encodes its parts (contexts, candidates, pairs) batch by batch, and its loss sees only the
vectors or scores; so a step can be computed at once, or through the gradient cache. Knows which
model encodes what; knows nothing of any one loss.

Letters: B contexts of this process, m vectors of each, N candidates of all processes, C candidates
of each context, n pairs, T tokens, d dimensions, h width of the encoder, L classes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from polyrank.models.base import Model
from polyrank.models.cross_encoder import CrossEncoder
from polyrank.models.two_tower import TwoTower
from polyrank.tokens.batching import Batch, in_order, mask_of
from polyrank.training.gather import gather_rows, num_processes, sum_over_processes
from polyrank.training.objectives.registry import ObjectiveConfig

Loss = Callable[[Any, dict[str, Tensor], dict[str, Any]], Tensor]
"""A module, what it encoded and the step to this process's share of the loss: ()."""
LOGITS_AT_ONCE = 2**24
"""Inner products of a poly-encoder that are kept for the backward pass; more are computed twice."""


class TrainingModule(nn.Module):
    """A model and its loss."""

    parts: ClassVar[tuple[str, ...]]
    """The names of what is encoded: each is a list of batches in a step."""

    def __init__(
        self,
        model: Model,
        objective: ObjectiveConfig,
        loss: Loss,
    ) -> None:
        super().__init__()
        self.model = model
        self.objective = objective
        self._loss = loss

    def encode(self, part: str, batch: Batch) -> Tensor:
        """The vectors or scores of one batch, in its own order of rows."""
        raise TypeError(f"{type(self).__name__} does not say how {part} are encoded.")

    def encode_step(self, step: dict[str, Any]) -> dict[str, Tensor]:
        """Every part that a step has, in the caller's order of rows."""
        encoded = {}
        for part in self.present_parts(step):
            batches: list[Batch] = step[part]
            encoded[part] = in_order([self.encode(part, batch) for batch in batches], batches)
        return encoded

    def present_parts(self, step: dict[str, Any]) -> list[str]:
        """The parts that a step has; one of mixed tasks may lack some."""
        return [part for part in self.parts if step[part]]

    def loss(self, encoded: dict[str, Tensor], step: dict[str, Any]) -> Tensor:
        """This process's share of the loss, in the precision of the vectors: ()."""
        with torch.autocast(self.model.device.type, enabled=False):
            return self._loss(self, encoded, step)

    def forward(self, **step: Any) -> Tensor:
        """This process's share of the loss of one step: ()."""
        return self.loss(self.encode_step(step), step)

    def finish(self) -> None:
        """Finish the model after the last step, when the best checkpoint has been chosen."""

    def share_of_mean(self, mean: Tensor, count: int) -> Tensor:
        """A mean over `count` things of this process as a share of the mean over all."""
        return mean * (count / sum_over_processes(count, self.model.device))


class TwoTowers(TrainingModule):
    """Encodes contexts and candidates with a bi- or poly-encoder.

    `raw` vectors are neither normalised nor divided by the temperature.
    """

    parts: ClassVar[tuple[str, ...]] = ("contexts", "candidates")
    model: TwoTower

    def __init__(
        self,
        model: TwoTower,
        objective: ObjectiveConfig,
        loss: Loss,
        *,
        raw: bool = False,
    ) -> None:
        super().__init__(model, objective, loss)
        self.raw = raw

    def encode(self, part: str, batch: Batch) -> Tensor:
        """Contexts (B, m, d), whose scores are the loss's logits; candidates (B, d)."""
        model = self.model
        is_context = part == "contexts"
        tower = model.context_tower if is_context else model.candidate_tower or model.context_tower
        outputs = tower(batch)
        with torch.autocast(model.device.type, enabled=False):  # vectors in float32
            outputs = outputs.to(torch.promote_types(outputs.dtype, torch.float32))
            if self.raw:
                project = model.project_contexts if is_context else model.project_candidates
                return project(outputs, batch)
            finish = model.logit_contexts if is_context else model.finish_candidates
            return finish(outputs, batch)

    def score_all(self, contexts: Tensor, candidates: Tensor) -> Tensor:
        """Every context against every candidate, in blocks where there are many: (B, N)."""
        model = self.model
        rows = max(LOGITS_AT_ONCE // (contexts.shape[1] * len(candidates)), 1)
        if contexts.shape[1] == 1 or rows >= len(contexts):
            return model.score_all(contexts, candidates)
        return torch.cat(
            [
                checkpoint(
                    model.score_all,
                    block,
                    candidates,
                    use_reentrant=False,
                    preserve_rng_state=False,
                )
                for block in contexts.split(rows)
            ]
        )

    def score_step(self, encoded: dict[str, Tensor], step: dict[str, Any]) -> Tensor:
        """This process's contexts against the candidates of all processes: (B, N)."""
        contexts, columns = encoded["contexts"], encoded["candidates"][step["identities"]]
        return self.score_all(contexts, columns_of_all(columns, len(contexts)))

    def score_own(self, encoded: dict[str, Tensor], step: dict[str, Any]) -> Tensor:
        """Each context against its own candidates: (B, C)."""
        candidates = encoded["candidates"][step["own"].clamp(min=0)]  # (B, C, d)
        return self.model.score_each(encoded["contexts"], candidates)

    def values_of_pairs(self, encoded: dict[str, Tensor], step: dict[str, Any]) -> Tensor:
        """The similarity of each pair, which is its logit times the temperature: (n,).

        It is the cosine for a bi-encoder with similarity = cosine, and for a poly-encoder the
        cosines that its attention weighs.
        """
        contexts = encoded["contexts"][step["first"]]  # (n, m, d)
        candidates = encoded["candidates"][step["second"]]  # (n, d)
        scores = self.model.score_each(contexts, candidates[:, None, :])[:, 0]
        return scores * self.model.config.temperature


class CrossReadApart(TrainingModule):
    """Encodes contexts and candidates with a cross-encoder that can read texts separately. Its gate
    is not used: each text of a step is encoded once, and every context is compared with every
    candidate token by token. The outputs of a text are padded with zeros.
    """

    parts = ("contexts", "candidates")
    model: CrossEncoder

    def encode(self, part: str, batch: Batch) -> Tensor:
        """Token outputs (B, T, h), T the most tokens of this side."""
        model, config = self.model, self.model.config
        tower, most = model.tower, config.max_context_length
        if part == "candidates":
            tower, most = model.candidate_tower or model.tower, config.max_candidate_length
        outputs = tower(batch)
        with torch.autocast(self.model.device.type, enabled=False):
            outputs = outputs.to(torch.promote_types(outputs.dtype, torch.float32))
            outputs = outputs * mask_of(batch)[:, :, None]
            return functional.pad(outputs, (0, 0, 0, max(most - outputs.shape[1], 0)))

    def score_step(self, encoded: dict[str, Tensor], step: dict[str, Any]) -> Tensor:
        """This process's contexts against the candidates of all processes: (B, N)."""
        contexts, places = encoded["contexts"], step["identities"]
        head: Any = self.model.head
        if num_processes() == 1:  # a text that stands twice is compared once
            scores: Tensor = head.score_all(contexts, encoded["candidates"])[:, places]
        else:
            columns = columns_of_all(encoded["candidates"][places], len(contexts))
            scores = head.score_all(contexts, columns)
        return scores


class CrossPairs(TrainingModule):
    """Scores pairs with a cross-encoder."""

    parts = ("pairs",)
    model: CrossEncoder

    def encode(self, part: str, batch: Batch) -> Tensor:
        """Scores of one batch, in its own order: (n,), or (n, L) for classes."""
        count = len(batch["rows"])
        in_place = {**batch, "rows": torch.arange(count, device=batch["rows"].device)}
        scores: Tensor = self.model([in_place])
        return scores

    def score_own(self, encoded: dict[str, Tensor], step: dict[str, Any]) -> Tensor:
        """Each context against its own candidates: (B, C)."""
        return encoded["pairs"][step["own"].clamp(min=0)]

    def values_of_pairs(self, encoded: dict[str, Tensor], step: dict[str, Any]) -> Tensor:
        """The value of each pair: (n,)."""
        return encoded["pairs"]


def reading_apart(
    model: TwoTower | CrossEncoder, objective: ObjectiveConfig, loss: Loss
) -> TwoTowers | CrossReadApart:
    """What encodes the texts of a step with a model, each on its own."""
    if isinstance(model, CrossEncoder):
        return CrossReadApart(model, objective, loss)
    return TwoTowers(model, objective, loss)


def columns_of_all(columns: Tensor, count: int) -> Tensor:
    """The columns of all processes: all responses, this process's `count` first, then all else."""
    if num_processes() == 1:
        return columns
    return torch.cat([gather_rows(columns[:count]), gather_rows(columns[count:])])
