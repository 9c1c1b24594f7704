"""What every objective is: a model and its loss as one module, from ids to loss.

It encodes in parts (contexts, candidates, pairs), batch by batch, and its loss sees only the
vectors or scores that came out; so a step can be taken at once, or through the gradient cache. On
several processes `loss` is this one's share of the loss; the shares add up.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from polyrank.models.base import Model
from polyrank.tokens.batching import Batch, in_order
from polyrank.training.gather import total
from polyrank.training.objectives.registry import ObjectiveConfig


class TrainingModule(nn.Module):
    """Base of the objectives. What it learns beside the model is its own parameters."""

    parts: ClassVar[tuple[str, ...]]
    """The names of what is encoded: each is a list of batches in a step."""

    def __init__(self, model: Model, settings: ObjectiveConfig) -> None:
        super().__init__()
        self.model = model
        self.settings = settings

    def encode(self, part: str, batch: Batch) -> Tensor:
        """The vectors or scores of one batch, in its own order of rows."""
        raise TypeError(f"{type(self).__name__} does not say how {part} are encoded.")

    def share(self, encoded: dict[str, Tensor], step: dict[str, Any]) -> Tensor:
        """This process's share of the loss, from what was encoded: a scalar."""
        raise TypeError(f"{type(self).__name__} has no loss.")

    def loss(self, encoded: dict[str, Tensor], step: dict[str, Any]) -> Tensor:
        """`share` in the precision of the vectors."""
        with torch.autocast(self.model.device.type, enabled=False):
            return self.share(encoded, step)

    def forward(self, **step: Any) -> Tensor:
        """This process's share of the loss of one step: a scalar."""
        encoded = {}
        for part in present(self, step):
            rows = [self.encode(part, batch) for batch in step[part]]
            encoded[part] = in_order(rows, step[part])
        return self.loss(encoded, step)

    def shared(self, mean: Tensor, count: int) -> Tensor:
        """A mean over `count` things of this process as a share of the mean over all."""
        return mean * (count / total(count, self.model.device))


def present(objective: TrainingModule, step: dict[str, Any]) -> list[str]:
    """The parts that a step has; one of mixed tasks may lack some."""
    return [part for part in objective.parts if step[part]]
