"""A copy of an encoder made for inference: lower precision, packed weights (see `scoring.matmul`).

Knows nothing of texts or scores.
"""

from __future__ import annotations

import copy
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim.optimizer import register_optimizer_step_post_hook

from polyrank.models.adapters.layers import is_adapted, merged_copy
from polyrank.models.backbone import KEPT, choose_attention
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


class ConvertedLinear(nn.Module):
    """A linear layer whose weight takes the dtype of its inputs for each product."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.weight, self.bias = linear.weight, linear.bias

    def forward(self, inputs: Tensor) -> Tensor:
        """(…, in) → (…, out)."""
        bias = None if self.bias is None else self.bias.to(inputs.dtype)
        return functional.linear(inputs, self.weight.to(inputs.dtype), bias)


class ConvertedEmbedding(nn.Module):
    """A table of vectors of which only those that are looked up take another dtype."""

    def __init__(self, embedding: nn.Embedding, dtype: torch.dtype) -> None:
        super().__init__()
        self.embedding, self.dtype = embedding, dtype

    @property
    def weight(self) -> Tensor:
        """The whole table, in its own dtype."""
        return self.embedding.weight

    def forward(self, ids: Tensor) -> Tensor:
        """(…) → (…, h)."""
        different, places = ids.unique(return_inverse=True)
        small = copy.copy(self.embedding)  # with what its class adds, such as Gemma's scale
        small._parameters = {
            "weight": nn.Parameter(self.embedding.weight[different].to(self.dtype), False)
        }
        small.padding_idx = None
        looked_up: Tensor = small(places)
        return looked_up


def inference_copy(module: nn.Module, dtype: torch.dtype, rows: int) -> nn.Module:
    """A copy for inference in `dtype`; `rows` is the usual number of tokens of a batch.

    In the dtype of the original, the copy shares every parameter that is not packed with it. Of
    weights that are kept in 16 bits, there is no second copy: they are shared in their own dtype,
    and otherwise converted where they are used. Buffers that no file has, such as the angles of
    rotary positions, keep their precision.
    """
    module = merged_copy(module) if is_adapted(module) else module
    parameter = next(module.parameters())
    is_kept = parameter.dtype in KEPT
    # nothing is copied twice: what stands for a parameter is the parameter, or its rounded form
    own: dict[int, Any] = {id(p): p for p in module.parameters()}
    if dtype != parameter.dtype and not is_kept:
        own = {key: nn.Parameter(p.detach().to(dtype), False) for key, p in own.items()}
    clone = copy.deepcopy(module, own)
    saved = clone.state_dict(keep_vars=True)
    for part in clone.modules():
        for name, buffer in part.named_buffers(recurse=False):
            if buffer.is_floating_point() and any(buffer is each for each in saved.values()):
                setattr(part, name, buffer.to(dtype))
    if is_kept and dtype != parameter.dtype:
        convert_at_use(clone, dtype)
    elif not is_kept and parameter.device.type == "cpu" and can_pack(dtype):
        pack(clone, rows)
    choose_attention(getattr(clone, "encoder", None), "sdpa")  # training on a CPU uses another
    return clone.eval()


def pack(module: nn.Module, rows: int) -> None:
    """Replace every linear layer below `module` by its packed form."""
    for name, child in list(module.named_children()):
        if type(child) is nn.Linear:
            setattr(module, name, PackedLinear(child, rows))
        else:
            pack(child, rows)


def convert_at_use(module: nn.Module, dtype: torch.dtype) -> None:
    """Compute below `module` in `dtype`, from large weights that stay in another."""
    for name, child in list(module.named_children()):
        if type(child) is nn.Linear:
            setattr(module, name, ConvertedLinear(child))
        elif isinstance(child, nn.Embedding):
            setattr(module, name, ConvertedEmbedding(child, dtype))
        else:
            convert_at_use(child, dtype)
    for name, parameter in list(module.named_parameters(recurse=False)):
        setattr(module, name, nn.Parameter(parameter.detach().to(dtype), False))


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
