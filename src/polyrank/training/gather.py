"""Rows, texts and gradients across the processes of a step; with one process, nothing happens.

Each process computes its share of the loss, and the shares sum to the loss of all. So the gradients
of gathered rows, and of the parameters, are summed over the processes.

Letters: W processes, R rows of this one, A rows of all.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, distributed, nn

BUCKET = 2**24
"""The number of elements that are summed over the processes at once."""
blocks_alone: list[None] = []
"""One entry for each block of `alone` that this process is in."""


def num_processes() -> int:
    """How many processes compute a step together."""
    if blocks_alone:
        return 1
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_world_size()
    return 1


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """Compute the steps in this block without the other processes."""
    blocks_alone.append(None)
    try:
        yield
    finally:
        blocks_alone.pop()


def gather_rows(rows: Tensor) -> Tensor:
    """The rows of all processes, with gradients: (R, …) → (A, …).

    This process's own rows come first, then those of the next processes, in a circle. The numbers
    of rows may differ. All processes must call it, and run its backward pass, in the same order.
    """
    if num_processes() == 1:
        return rows
    counts = row_counts(rows)
    if not any(counts):
        return rows
    gathered: Tensor = Gather.apply(rows, counts)
    return gathered


def gather_texts(texts: Sequence[str]) -> list[str]:
    """The texts of all processes, in the order of `gather_rows`."""
    if num_processes() == 1:
        return list(texts)
    parts: list[Any] = [None] * num_processes()
    distributed.all_gather_object(parts, list(texts))
    rank = distributed.get_rank()
    return [text for part in (*parts[rank:], *parts[:rank]) for text in part]


def sum_over_processes(number: int | float, device: torch.device) -> float:
    """The sum of a number over all processes."""
    if num_processes() == 1:
        return number
    value = torch.tensor(float(number), dtype=torch.float64, device=exact_device(device))
    distributed.all_reduce(value)
    return float(value)


def sum_gradients(parameters: Iterable[nn.Parameter]) -> None:
    """Replace each gradient by its sum over all processes.

    A gradient that only some processes have counts as zeros in the others; one that no process has
    stays missing.
    """
    if num_processes() == 1:
        return
    trained = [parameter for parameter in parameters if parameter.requires_grad]
    if not trained:
        return
    have = torch.tensor([p.grad is not None for p in trained], device=trained[0].device).int()
    distributed.all_reduce(have, op=distributed.ReduceOp.MAX)
    bucket: list[Tensor] = []
    for parameter, there in zip(trained, have.tolist(), strict=True):
        if not there:
            continue
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
        full = sum(gradient.numel() for gradient in bucket) + parameter.numel() > BUCKET
        if bucket and (full or bucket[0].dtype != parameter.grad.dtype):
            sum_bucket(bucket)
            bucket = []
        bucket.append(parameter.grad)
    sum_bucket(bucket)


def sum_bucket(gradients: list[Tensor]) -> None:
    """Sum some gradients of one dtype over all processes, in place."""
    if not gradients:
        return
    flat = torch.cat([gradient.reshape(-1) for gradient in gradients])
    distributed.all_reduce(flat)
    parts = flat.split([gradient.numel() for gradient in gradients])
    for gradient, part in zip(gradients, parts, strict=True):
        gradient.copy_(part.view_as(gradient))


class Gather(torch.autograd.Function):
    """Rows of all processes; the backward pass sums all processes' gradients of one's own rows."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, counts: list[int]) -> Tensor:
        """(R, …) → (A, …), own rows first."""
        ctx.counts = counts
        most, rank = max(counts), distributed.get_rank()
        padded = rows.new_zeros(most, *rows.shape[1:])
        padded[: len(rows)] = rows
        parts = [torch.empty_like(padded) for _ in counts]
        distributed.all_gather(parts, padded)
        order = [*range(rank, len(counts)), *range(rank)]
        return torch.cat([parts[process][: counts[process]] for process in order])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        """(A, …) → (R, …)."""
        (gradient,) = gradients
        counts, rank = ctx.counts, distributed.get_rank()
        order = [*range(rank, len(counts)), *range(rank)]
        padded = gradient.new_zeros(len(counts), max(counts), *gradient.shape[1:])
        for process, part in zip(order, gradient.split([counts[p] for p in order]), strict=True):
            padded[process, : counts[process]] = part
        distributed.all_reduce(padded)
        return padded[rank, : counts[rank]], None


def row_counts(rows: Tensor) -> list[int]:
    """The number of rows of each process."""
    own = torch.tensor([len(rows)], device=rows.device)
    counts = [torch.empty_like(own) for _ in range(num_processes())]
    distributed.all_gather(counts, own)
    return [int(count) for count in counts]


def exact_device(device: torch.device) -> torch.device:
    """Where a float64 can be summed: not on Apple's GPUs."""
    return torch.device("cpu") if device.type == "mps" else device
