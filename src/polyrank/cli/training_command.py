"""What the commands that train share: how their processes join, and how they say what runs.

`torchrun` starts such a command once for each device; the first process speaks for all.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from polyrank.cli.flags import flag_of
from polyrank.cli.output import Output
from polyrank.training import processes
from polyrank.training.config import TrainingConfig, without_effect


class Silent(Output):
    """The output of a process that another one speaks for."""

    def say(self, text: str = "") -> None:
        """Say nothing."""

    def warn(self, text: str) -> None:
        """Warn of nothing."""

    def result(self, result: Mapping[str, Any]) -> None:
        """Give nothing."""


@contextmanager
def joining_processes(device: str, output: Output) -> Iterator[tuple[str, Output]]:
    """Connect the processes of a run; gives this process's own device and output."""
    output = output if processes.is_first() else Silent(json=output.json)
    own = processes.own_device(device)
    processes.connect(own)
    try:
        yield own, output
    finally:
        processes.disconnect()


def checkpoint_kept(output: Path, kept: str = ", and the last checkpoint is kept") -> str:
    """The words after Ctrl-C."""
    return f"What stood at {output} before is unchanged{kept}: run the same command again to go on."


def warn_of_idle_training(config: TrainingConfig, output: Output) -> None:
    """Warn of settings of training that the others take the effect from."""
    for setting in without_effect(config):
        output.warn(f"{flag_of(setting)} has no effect beside the other settings.")


def place(model: Any) -> str:
    """Where is trained, in words; of several GPUs, how to use the others."""
    import torch

    number = processes.count()
    if number > 1:
        return f"{number} processes on {model.device.type}"
    if model.device.type == "cuda" and torch.cuda.device_count() > 1:
        others = torch.cuda.device_count()
        return (
            f"one of {others} GPUs (torchrun --nproc-per-node {others} -m polyrank train … takes "
            "all)"
        )
    return str(model.device.type)


def command_line() -> str:
    """What was typed, as one would type it again."""
    number = processes.count()
    starter = ["torchrun", "--nproc-per-node", str(number), "-m"] if number > 1 else []
    return shlex.join([*starter, "polyrank", *sys.argv[1:]])
