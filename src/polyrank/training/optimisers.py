"""The optimiser of a run and its learning rates.

Knows which parameters come with the base; knows nothing of losses or of the loop.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn
from torch.optim.lr_scheduler import LRScheduler
from transformers import get_scheduler

from polyrank.models.base import Model
from polyrank.training.config import TrainingConfig

CODES = ("codes", "recency")
"""What the parameters of codes are called, wherever they are."""
THRESHOLD = 1e-4
"""The share by which a dev loss must fall below the lowest so far, as in torch."""


def build_optimiser(
    module: nn.Module, model: Model, config: TrainingConfig
) -> torch.optim.Optimizer:
    """The optimiser of every trained parameter of `module`, which holds `model` as `model`."""
    groups = parameter_groups(module, model, config)
    betas = (0.9, config.beta2)
    if config.optimiser == "adamax":
        return torch.optim.Adamax(groups, betas=betas)
    return torch.optim.AdamW(groups, betas=betas, fused=model.device.type != "mps")


def parameter_groups(
    module: nn.Module, model: Model, config: TrainingConfig
) -> list[dict[str, Any]]:
    """Parameters by whether they come with the base, and whether they are matrices.

    Weight decay is for the matrices of an encoder alone, and for AdamW alone. `setting` names the
    learning rate of a group: that of the encoders, whatever they are, of codes, or of all else.
    """
    towers = tuple(f"model.{name}." for name in model.tower_names)
    is_static = model.towers[0].is_static
    encoders = config.learning_rate if config.lora_rank is None else config.lora_learning_rate
    rate = config.static_learning_rate if is_static else encoders
    rates = {
        "learning_rate": rate,
        "new_learning_rate": config.new_learning_rate,
        "code_learning_rate": config.code_learning_rate,
    }
    groups: dict[tuple[str, bool], list[nn.Parameter]] = {}
    for name, parameter in module.named_parameters():
        if parameter.requires_grad:
            setting = "learning_rate" if name.startswith(towers) else "new_learning_rate"
            if name.rpartition(".")[2] in CODES and setting == "new_learning_rate":
                setting = "code_learning_rate"
            groups.setdefault((setting, parameter.ndim > 1), []).append(parameter)
    decay = config.weight_decay if config.optimiser == "adamw" and not is_static else 0.0
    return [
        {
            "params": parameters,
            "lr": rates[setting],
            "setting": setting,
            "weight_decay": decay if is_matrix and setting == "learning_rate" else 0.0,
        }
        for (setting, is_matrix), parameters in groups.items()
    ]


def warmup_steps(config: TrainingConfig, steps: int) -> int:
    """The steps of warm-up of a run of `steps`."""
    return int(config.warmup) if config.warmup >= 1 else math.ceil(steps * config.warmup)


def build_schedule(
    optimiser: torch.optim.Optimizer, config: TrainingConfig, steps: int
) -> LRScheduler:
    """The learning rates of a run of `steps`."""
    warmup = warmup_steps(config, steps)
    if config.schedule == "plateau":
        return PlateauSchedule(optimiser, warmup, config.plateau_factor)
    schedule: LRScheduler = get_scheduler(
        config.schedule, optimiser, num_warmup_steps=warmup, num_training_steps=steps
    )
    return schedule


class PlateauSchedule(LRScheduler):
    """Linear warm-up, then constant, times `factor` after each evaluation that is a plateau.

    This is how Humeau et al. (2020) fine-tune. An evaluation is a plateau as for torch's
    ReduceLROnPlateau with a patience of 0: its loss is not below the lowest so far by more than
    the share `THRESHOLD` of it. As in the authors' code, what is evaluated during the warm-up does
    not count. All of its state is in `state_dict`, so that a resumed run has the same learning
    rates.
    """

    def __init__(self, optimiser: torch.optim.Optimizer, warmup: int, factor: float) -> None:
        self.warmup = warmup
        self.factor = factor
        self.scale = 1.0
        self.lowest = math.inf
        super().__init__(optimiser)

    def get_lr(self) -> list[float | torch.Tensor]:
        """The learning rate of each group for the next step."""
        share = min((self.last_epoch + 1) / (self.warmup + 1), 1.0)
        return [rate * share * self.scale for rate in self.base_lrs]

    def observe(self, loss: float) -> None:
        """Lower the rates from now on if a dev loss has stopped falling."""
        if self.last_epoch <= self.warmup:
            return
        if loss < self.lowest * (1 - THRESHOLD):
            self.lowest = loss
            return
        self.scale *= self.factor
        for group, rate in zip(self.optimizer.param_groups, self.get_lr(), strict=True):
            group["lr"] = rate
        self._last_lr = self.get_lr()
