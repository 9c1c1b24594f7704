"""A copy of an encoder made for inference: lower precision, packed weights (see `scoring.matmul`).

Knows nothing of texts or scores.
"""

from __future__ import annotations

import copy
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_post_hook

from polyrank.scoring.matmul import Packed, can_pack


class PackedLinear(nn.Module):
    """A linear layer whose weight has oneDNN's own layout. Inference only, CPU only."""

    def __init__(self, linear: nn.Linear, rows: int) -> None:
        super().__init__()
        self.packed = Packed(linear.weight, rows)
        self.bias = None if linear.bias is None else linear.bias.detach()

    def forward(self, inputs: Tensor) -> Tensor:
        """(…, in) → (…, out)."""
        return self.packed(inputs, self.bias)


def inference_copy(module: nn.Module, dtype: torch.dtype, rows: int) -> nn.Module:
    """A copy for inference in `dtype`; `rows` is the usual number of tokens of a batch.

    In the dtype of the original, the copy shares every parameter that is not packed with it.
    """
    parameter = next(module.parameters())
    # nothing is copied twice: what stands for a parameter is the parameter, or its rounded form
    own: dict[int, Any] = {id(p): p for p in module.parameters()}
    if dtype != parameter.dtype:
        own = {key: nn.Parameter(p.detach().to(dtype), False) for key, p in own.items()}
    clone = copy.deepcopy(module, own).to(dtype)
    if parameter.device.type == "cpu" and can_pack(dtype):
        pack(clone, rows)
    clone_encoder: Any = getattr(clone, "encoder", None)
    if hasattr(clone_encoder, "set_attn_implementation"):
        clone_encoder.set_attn_implementation("sdpa")  # training on a CPU uses another
    return clone.eval()


def pack(module: nn.Module, rows: int) -> None:
    """Replace every linear layer below `module` by its packed form."""
    for name, child in list(module.named_children()):
        if type(child) is nn.Linear:
            setattr(module, name, PackedLinear(child, rows))
        else:
            pack(child, rows)


def optimizer_steps() -> int:
    """The number of optimiser steps in this process since the first call.

    The fused ones write parameters without raising their version, so that versions alone do not
    tell that a copy is out of date.
    """
    return step_counter()[0]


@cache
def step_counter() -> list[int]:
    """The one number that every optimiser raises after a step."""
    count = [0]

    def raise_count(*_: Any) -> None:
        count[0] += 1

    register_optimizer_step_post_hook(raise_count)
    return count
