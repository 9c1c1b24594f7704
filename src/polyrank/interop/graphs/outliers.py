"""Linear layers whose far larger input channels are multiplied apart. Knows no runtime.

Quantised, all inputs of a layer share one scale. Encoders of BERT's kind have a few channels that
are many times larger than all others, and only in the first token: they would leave few of the 256
steps to the rest. So these channels are zero for the layer, and a product of a few columns, which
keeps its precision, is added: W x = W x' + W[:, C] x[C].
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

from polyrank.models.backbone import Backbone

OUTLIER_RATIO = 3.0
"""How many times as large as the common channels an outlier is."""
MOST_OUTLIERS = 16
"""The most channels of a layer that are multiplied apart."""


class SplitLinear(nn.Module):
    """A linear layer that multiplies some channels of its inputs apart. Inference only."""

    def __init__(self, linear: nn.Linear, channels: Tensor) -> None:
        super().__init__()
        self.linear = linear
        self.channels: Tensor
        self.kept: Tensor
        self.columns: Tensor
        kept = torch.ones(linear.in_features).index_fill(0, channels, 0)
        columns = linear.weight.detach()[:, channels].T.contiguous()  # (C, out)
        for name, value in (("channels", channels), ("kept", kept), ("columns", columns)):
            self.register_buffer(name, value, persistent=False)

    def forward(self, inputs: Tensor) -> Tensor:
        """(…, in) → (…, out)."""
        rest: Tensor = self.linear(inputs * self.kept)
        return rest + inputs.index_select(-1, self.channels) @ self.columns


@contextlib.contextmanager
def outliers_apart(
    module: nn.Module, batches: Sequence[tuple[Tensor, ...]]
) -> Iterator[list[SplitLinear]]:
    """Split, for a while, the layers of a module's encoders that narrow and have outliers.

    These are the second layers of the feed-forward parts. Those that read normalised outputs can be
    smoothed without loss.

    Args:
        module: The module. It is restored afterwards.
        batches: Its inputs, which show the outliers.

    Yields:
        The layers that were split.
    """
    narrowing = [
        (parent, name, child)
        for encoder in module.modules()
        if isinstance(encoder, Backbone)
        for parent in encoder.modules()
        for name, child in parent.named_children()
        if type(child) is nn.Linear and child.out_features < child.in_features
    ]
    maxima = channel_maxima(module, [child for _, _, child in narrowing], batches)
    split = [
        (parent, name, SplitLinear(child, channels).eval())
        for (parent, name, child), found in zip(narrowing, maxima, strict=True)
        if len(channels := outliers(found))
    ]
    for parent, name, layer in split:
        setattr(parent, name, layer)
    try:
        yield [layer for _, _, layer in split]
    finally:
        for parent, name, layer in split:
            setattr(parent, name, layer.linear)


def channel_maxima(
    module: nn.Module, layers: Sequence[nn.Linear], batches: Sequence[tuple[Tensor, ...]]
) -> list[Tensor]:
    """The largest absolute value of each input channel of each layer: (in,) each."""
    maxima = [torch.zeros(layer.in_features) for layer in layers]

    def watch(place: int) -> None:
        def note(_: nn.Module, inputs: tuple[Tensor]) -> None:
            found = inputs[0].detach().abs().flatten(0, -2).amax(dim=0)
            maxima[place] = torch.maximum(maxima[place], found.float())

        handles.append(layers[place].register_forward_pre_hook(note))

    handles: list[torch.utils.hooks.RemovableHandle] = []
    for place in range(len(layers)):
        watch(place)
    try:
        with torch.no_grad():
            for batch in batches:
                module(*batch)
    finally:
        for handle in handles:
            handle.remove()
    return maxima


def outliers(maxima: Tensor) -> Tensor:
    """The channels that are far larger than the others, at most `MOST_OUTLIERS`."""
    if len(maxima) <= 2 * MOST_OUTLIERS:
        return torch.zeros(0, dtype=torch.int64)
    common = maxima.sort().values[-MOST_OUTLIERS - 1]
    return torch.nonzero(maxima > OUTLIER_RATIO * common)[:, 0]
