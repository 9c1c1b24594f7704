"""One training step: loss and gradients, whatever the objective, on one or several processes.

Knows nothing of optimisers.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from polyrank.training.gather import add_up, num_processes
from polyrank.training.gradient_cache import cached_backward, is_worthwhile
from polyrank.training.objectives.module import TrainingModule

Autocast = Callable[[], AbstractContextManager[Any]]


def gradient_step(module: nn.Module, step: dict[str, Any], *, autocast: Autocast) -> Tensor:
    """Add the gradients of the step's loss to those of the parameters; returns the loss: ().

    `module` is a `TrainingModule`, or one inside DistributedDataParallel; `step` is on its device.
    With several processes, the step is that of all their batches together, and every process ends
    with the same gradients and the same loss. `autocast` makes the context that encoders run in; do
    not enter it around this call.
    """
    wrapped = isinstance(module, DistributedDataParallel)
    objective: Any = module.module if wrapped else module
    assert isinstance(objective, TrainingModule)
    synchronised: AbstractContextManager[Any] = nullcontext()
    if isinstance(module, DistributedDataParallel):
        synchronised = module.no_sync()  # gradients are added up here, and not averaged
    several = num_processes() > 1
    parameters = list(objective.parameters())
    earlier = [parameter.grad for parameter in parameters] if several else []
    if several:  # what earlier steps left has been added up already
        for parameter in parameters:
            parameter.grad = None
    with synchronised:
        if uses_cache(objective, step, autocast):
            loss = cached_backward(objective, step, autocast)
        else:
            with autocast():
                loss = objective(**step)
            loss.backward()
    if not several:
        return loss.detach()
    add_up(parameters)
    for parameter, gradient in zip(parameters, earlier, strict=True):
        if gradient is not None:
            parameter.grad = gradient if parameter.grad is None else gradient + parameter.grad
    loss = loss.detach().clone()
    torch.distributed.all_reduce(loss)
    return loss


def uses_cache(objective: TrainingModule, step: dict[str, Any], autocast: Autocast) -> bool:
    """Whether a step goes through the gradient cache."""
    choice = objective.settings.gradient_cache
    if choice != "auto":
        return choice == "always"
    device = objective.model.device
    with autocast():
        half = torch.is_autocast_enabled(device.type)
    return is_worthwhile(objective, step, 2 if half else 4)
