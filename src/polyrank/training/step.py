"""One training step: loss and gradients, whatever the objective, on one or several processes.

A step is computed at once or through the gradient cache, where a step of any size needs only the
memory of one pass through the encoder. Texts are encoded without gradients; the loss of their
vectors gives the gradient of each vector; then each batch is encoded again, with gradients, and
goes back from those. By the chain rule the result is that of the plain step (Gao et al., 2021,
Scaling deep contrastive learning batch size under memory limited setup). Dropout draws the same
both times.

Knows nothing of which objective it serves, nor of optimisers.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from polyrank.models.backbone import Backbone
from polyrank.models.base import Model
from polyrank.tokens import grouping
from polyrank.tokens.batching import Batch, in_order
from polyrank.training.gather import num_processes, sum_gradients
from polyrank.training.module import TrainingModule

Autocast = Callable[[], AbstractContextManager[Any]]
CPU_SHARE, DEVICE_SHARE = 0.25, 0.5
"""The share of the memory that the graphs of a plain step may take."""


def precision_of(model: Model) -> AbstractContextManager[Any]:
    """The precision that the encoders run in while they are trained: mixed, or float32."""
    if model.compute_dtype == torch.float32:
        return nullcontext()
    return torch.autocast(model.device.type, dtype=model.compute_dtype)


def gradient_step(module: nn.Module, step: dict[str, Any], *, autocast: Autocast) -> Tensor:
    """Add the gradients of the step's loss to those of the parameters; returns the loss: ().

    `module` is a `TrainingModule`, or one inside DistributedDataParallel; `step` is on its device.
    With several processes, the step is that of all their batches together, and every process ends
    with the same gradients and the same loss. `autocast` makes the context that encoders run in; do
    not enter it around this call.
    """
    inner: Any = module.module if isinstance(module, DistributedDataParallel) else module
    assert isinstance(inner, TrainingModule)
    synchronised: AbstractContextManager[Any] = nullcontext()
    if isinstance(module, DistributedDataParallel):
        synchronised = module.no_sync()  # gradients are summed here, and not averaged
    several = num_processes() > 1
    parameters = list(inner.parameters())
    earlier = [parameter.grad for parameter in parameters] if several else []
    if several:  # what earlier steps left has been summed already
        for parameter in parameters:
            parameter.grad = None
    with synchronised:
        if uses_cache(inner, step, autocast):
            loss = cached_backward(inner, step, autocast)
        else:
            with autocast():
                loss = inner(**step)
            loss.backward()
    if not several:
        return loss.detach()
    sum_gradients(parameters)
    for parameter, gradient in zip(parameters, earlier, strict=True):
        if gradient is not None:
            parameter.grad = gradient if parameter.grad is None else gradient + parameter.grad
    loss = loss.detach().clone()
    torch.distributed.all_reduce(loss)
    return loss


def uses_cache(module: TrainingModule, step: dict[str, Any], autocast: Autocast) -> bool:
    """Whether a step goes through the gradient cache."""
    choice = module.objective.gradient_cache
    if choice != "auto":
        return choice == "always"
    device = module.model.device
    with autocast():
        half = torch.is_autocast_enabled(device.type)
    return is_worthwhile(module, step, 2 if half else 4)


def cached_backward(module: TrainingModule, step: dict[str, Any], autocast: Autocast) -> Tensor:
    """Add the gradients of the step's loss, and return the loss, with one batch's graph at a time.

    Equal to the plain step in value and gradient, up to the rounding of sums.
    """
    device = module.model.device
    with torch.no_grad(), autocast():
        vectors, states = {}, {}
        for part in module.present_parts(step):
            batches: list[Batch] = step[part]
            states[part] = [RandomState(device) for _ in batches]
            rows = []
            for state, batch in zip(states[part], batches, strict=True):
                state.keep()
                rows.append(module.encode(part, batch))
            vectors[part] = in_order(rows, batches).requires_grad_()
    torch.clear_autocast_cache()  # copies of weights that know no gradients
    loss = module.loss(vectors, step)
    loss.backward()
    after = RandomState(device)
    after.keep()
    with autocast():
        for part in module.present_parts(step):
            gradient = vectors.pop(part).grad
            assert gradient is not None
            for state, batch in zip(states[part], step[part], strict=True):
                state.restore()
                encoded = module.encode(part, batch)
                if not encoded.requires_grad:
                    break  # a frozen tower
                with torch.autocast(device.type, enabled=False):
                    encoded.backward(gradient[batch["rows"]])
    after.restore()
    return loss.detach()


class RandomState:
    """The state of the generators that dropout on a device draws from."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.states: list[Tensor] = []

    def keep(self) -> None:
        """Keep the present state."""
        self.states = [torch.get_rng_state()]
        if self.device.type == "cuda":
            self.states.append(torch.cuda.get_rng_state(self.device))
        elif self.device.type == "mps":
            self.states.append(torch.mps.get_rng_state())

    def restore(self) -> None:
        """Go back to what was kept."""
        torch.set_rng_state(self.states[0])
        if self.device.type == "cuda":
            torch.cuda.set_rng_state(self.states[1], self.device)
        elif self.device.type == "mps":
            torch.mps.set_rng_state(self.states[1])


def is_worthwhile(module: TrainingModule, step: Mapping[str, Any], bytes_per_value: int) -> bool:
    """Whether the graphs of a plain step would take more than their share of the memory.

    A step of two batches or less gains nothing. Depends on the step and the machine alone, so that
    a resumed run decides alike.
    """
    if sum(len(step[part]) for part in module.parts) <= 2:
        return False
    towers = module.model.towers
    needed = sum(
        graph_bytes(towers[-1 if part == "candidates" else 0], step[part], bytes_per_value)
        for part in module.parts
    )
    return needed > memory_for_graphs(module.model.device)


def graph_bytes(tower: Backbone, batches: Iterable[Batch], bytes_per_value: int) -> float:
    """Roughly how many bytes a plain step keeps for its backward pass.

    A layer of an ordinary encoder keeps, for each token, about 10 vectors of its width (queries,
    keys, values, sums, norms), 2 of its intermediate width, and a row of attention for each head.
    Static embeddings keep nothing of the kind.
    """
    if tower.is_static:
        return 0.0
    config: Any = tower.encoder.config
    width = config.hidden_size
    layers = getattr(config, "num_hidden_layers", 12)
    heads = getattr(config, "num_attention_heads", 12)
    intermediate = getattr(config, "intermediate_size", 4 * width)
    values = 0
    for batch in batches:
        tokens, compared = padded_size(batch)
        values += tokens * (10 * width + 2 * intermediate) + compared * heads
    return float(values * layers * bytes_per_value)


def padded_size(batch: Batch) -> tuple[int, int]:
    """The tokens of a batch and the pairs of tokens that its attention compares, padded."""
    if "context_ids" in batch:
        return grouping.size_of(batch)
    rows, length = batch["input_ids"].shape
    return rows * length, rows * length**2


def memory_for_graphs(device: torch.device) -> float:
    """The bytes that the graphs of a step may take: a share of the machine's or device's memory."""
    if device.type == "cuda":
        return DEVICE_SHARE * torch.cuda.get_device_properties(device).total_memory
    try:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        memory = 8 * 2**30
    for limit in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            memory = min(memory, int(Path(limit).read_text(encoding="ascii")))
        except (OSError, ValueError):  # no such limit, or "max"
            continue
    return CPU_SHARE * memory / max(int(os.environ.get("LOCAL_WORLD_SIZE", "1")), 1)
