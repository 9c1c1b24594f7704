"""A model and its loss as one module, so that whatever wraps it sees a step from ids to loss."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from polyrank.models.base import Model
from polyrank.models.cross_encoder import CrossEncoder
from polyrank.training.losses import in_batch_softmax, listwise_softmax


class Objective(nn.Module):
    """The batches of a collator in, the loss of the step out; float32 from the vectors on."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.model = model

    def forward(self, **step: Any) -> Tensor:
        """The loss of one step: a scalar."""
        model: Any = self.model
        if isinstance(model, CrossEncoder):
            scores = model(step["pairs"])
            return listwise_softmax(scores.view(-1, step["num_candidates"]))
        contexts, candidates = model(step["contexts"], step["candidates"])
        columns = candidates[step["identities"]]
        return in_batch_softmax(model.score(contexts, columns), step["identities"])
