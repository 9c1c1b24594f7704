"""One pass over two texts by two encoders: each reads its own text, and they attend to each other.

Attention has no weights, so that queries, keys and values of both texts meet in it whoever made
them; all that has weights works on one token at a time and can be told which token it gets.

Letters: B pairs, T tokens of a pair, h width.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from polyrank.models.inference import PackedLinear

READING = threading.RLock()
"""An encoder is told whose tokens it reads for one pass at a time."""


@contextlib.contextmanager
def side_by_side(first: nn.Module, second: nn.Module, seconds: Tensor) -> Iterator[None]:
    """While it lasts, `first` treats the tokens marked in `seconds` (B, T) as `second` would.

    Both are encoders of one form. Every layer with weights is called once a side, with the tokens
    of that side.
    """
    others = dict(second.named_modules())
    order = torch.argsort(seconds.reshape(-1).to(torch.uint8), stable=True)
    split = Split(order, torch.argsort(order), int((~seconds).sum()), seconds.shape)
    with READING, contextlib.ExitStack() as hooks:
        for name, module in first.named_modules():
            if has_weights(module):
                sides = Sided(others[name], split)
                hooks.callback(module.register_forward_pre_hook(sides.before).remove)
                hooks.callback(module.register_forward_hook(sides.after).remove)
        yield


def has_weights(module: nn.Module) -> bool:
    """Whether it is a layer that works on single tokens, with weights of its own."""
    return isinstance(module, (nn.Linear, nn.LayerNorm, nn.Embedding, PackedLinear))


class Split:
    """Which tokens of a batch are whose: (B·T,) places, those of the first side first."""

    def __init__(self, order: Tensor, back: Tensor, firsts: int, shape: torch.Size) -> None:
        self.order = order
        self.back = back
        self.firsts = firsts
        self.shape = shape


class Sided:
    """The calls around one layer of the first encoder."""

    def __init__(self, other: nn.Module, split: Split) -> None:
        self.other = other
        self.split = split
        self.theirs = torch.empty(0)

    def before(self, _: nn.Module, args: tuple[Any, ...]) -> tuple[Tensor]:
        """Give the other encoder's layer its tokens, and leave the first its own."""
        inputs: Tensor = args[0]
        split = self.split
        inner = inputs.shape[2:]
        tokens = inputs.expand(*split.shape, *inner).reshape(-1, *inner)
        ours, theirs = tokens[split.order].tensor_split([split.firsts])
        self.theirs = self.other(theirs)
        return (ours,)

    def after(self, _: nn.Module, __: Any, ours: Tensor) -> Tensor:
        """The outputs of both, each at its token: (B, T, h)."""
        joined = torch.cat([ours, self.theirs])[self.split.back]
        return joined.view(*self.split.shape, -1)
