"""The processes of one run, as `torchrun` and `accelerate launch` start them.

The first process speaks, evaluates and writes; the others do their share of every step. What only
one process finds out, an error included, is sent to all through a group of its own, so that they
stop together and with one message. Knows nothing of models. Loads torch only where there are
several processes.
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
"""How long the others wait for the first, which evaluates alone."""

control: dict[str, Any] = {}
"""The group through which the processes send each other objects, once they are connected."""


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


def connect(device: str) -> None:
    """Wait for the other processes and connect to them; does nothing where there are none."""
    if count() == 1 or "group" in control:
        return
    import torch
    from accelerate import PartialState

    on_cpu = not device.startswith("cuda") and not (device == "auto" and torch.cuda.is_available())
    PartialState(cpu=on_cpu, timeout=PATIENCE)
    control["group"] = torch.distributed.new_group(backend="gloo", timeout=PATIENCE)


def disconnect() -> None:
    """Leave the other processes; does nothing where there are none."""
    if control.pop("group", None) is not None:
        import torch

        torch.distributed.destroy_process_group()


def gather_objects(value: T) -> list[T]:
    """The value of each process, in the order of their numbers."""
    if "group" not in control:
        return [value]
    import torch

    values: list[Any] = [None] * count()
    torch.distributed.all_gather_object(values, value, group=control["group"])
    return values


def barrier() -> None:
    """Wait until all processes have come here."""
    gather_objects(None)


@contextlib.contextmanager
def sharing_errors() -> Iterator[None]:
    """Raise an error of any process in the block in all of them; one of them tells people."""
    own: PolyrankError | None = None
    try:
        yield
    except PolyrankError as error:
        own = error
    for number, found in enumerate(gather_objects(own)):
        if found is not None:
            if own is not None and number == rank():
                raise own
            raise found.left_to_another_process()


def run_on_first(function: Callable[[], T]) -> T:
    """Call `function` in the first process; all get its result, or its error."""
    result: Any = None
    with sharing_errors():
        if is_first():
            result = function()
    return gather_objects(result)[0]


def said_once(error: PolyrankError) -> PolyrankError:
    """An error that every process has found; the first tells people."""
    return error if is_first() else error.left_to_another_process()


@contextlib.contextmanager
def explaining_lost_processes() -> Iterator[None]:
    """Say that another process has stopped, where torch says that a connection was lost."""
    try:
        yield
    except RuntimeError as error:
        words = str(error).lower()
        lost = any(word in words for word in ("connection", "gloo", "nccl", "peer"))
        if count() == 1 or not lost:
            raise
        raise TrainingError(
            f"Process {rank()} has lost contact with the others: "
            f"{' '.join(str(error).split())[:200]}.",
            "One of them has stopped; its own message says why.",
        ) from error
