"""The processes of one run, as `torchrun` and `accelerate launch` start them.

One process is `first`: it speaks, evaluates and writes. The others do their share of every step.
What one process alone finds out, an error included, is told to all through a group of its own, so
that they stop together and with one message. Knows nothing of models. Needs no torch as long as
there is one process.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any, TypeVar

from polyrank.errors import PolyrankError, TrainingError

T = TypeVar("T")
LAUNCHED = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR")
PATIENCE = timedelta(days=7)
"""The others wait so long for the first, which evaluates alone."""

control: dict[str, Any] = {}
"""The group for words among the processes, once they have met."""


def count() -> int:
    """The number of processes of this run."""
    return int(os.environ["WORLD_SIZE"]) if all(name in os.environ for name in LAUNCHED) else 1


def rank() -> int:
    """The number of this process, from 0."""
    return int(os.environ["RANK"]) if count() > 1 else 0


def is_first() -> bool:
    """Whether this process speaks, evaluates and writes."""
    return rank() == 0


def own_device(device: str) -> str:
    """The device of this process: of several on one machine, each takes a GPU of its own."""
    if count() == 1 or device not in ("auto", "cuda"):
        return device
    import torch

    return f"cuda:{os.environ['LOCAL_RANK']}" if torch.cuda.is_available() else device


def meet(device: str) -> None:
    """Wait for the other processes and connect with them; nothing where there are none."""
    if count() == 1 or "group" in control:
        return
    import torch
    from accelerate import PartialState

    on_cpu = not device.startswith("cuda") and not (device == "auto" and torch.cuda.is_available())
    PartialState(cpu=on_cpu, timeout=PATIENCE)
    control["group"] = torch.distributed.new_group(backend="gloo", timeout=PATIENCE)


def part() -> None:
    """Leave the other processes; nothing where there are none."""
    if control.pop("group", None) is not None:
        import torch

        torch.distributed.destroy_process_group()


def gather(value: T) -> list[T]:
    """The value of each process, by its number."""
    if "group" not in control:
        return [value]
    import torch

    values: list[Any] = [None] * count()
    torch.distributed.all_gather_object(values, value, group=control["group"])
    return values


def wait() -> None:
    """Go on when all processes have come here."""
    gather(None)


@contextlib.contextmanager
def together() -> Iterator[None]:
    """An error of any process in the block becomes the error of all, said by one of them."""
    own: PolyrankError | None = None
    try:
        yield
    except PolyrankError as error:
        own = error
    for number, theirs in enumerate(gather(own)):
        if theirs is not None:
            found = own if own is not None and number == rank() else theirs
            found.said_elsewhere = number != rank()
            raise found


def from_first(function: Callable[[], T]) -> T:
    """What the first process gets from `function`, on all processes; its errors too."""
    result: Any = None
    with together():
        if is_first():
            result = function()
    return gather(result)[0]


def common(error: PolyrankError) -> PolyrankError:
    """An error that every process has found: the first says it."""
    error.said_elsewhere = not is_first()
    return error


@contextlib.contextmanager
def losing_others() -> Iterator[None]:
    """Say that another process has stopped, where torch says that a connection was lost."""
    try:
        yield
    except RuntimeError as error:
        words = str(error).lower()
        lost = any(word in words for word in ("connection", "gloo", "nccl", "peer"))
        if count() == 1 or not lost:
            raise
        raise TrainingError(
            f"Process {rank()} has lost the others: {' '.join(str(error).split())[:200]}.",
            "One of them has stopped; its own message says why.",
        ) from error
