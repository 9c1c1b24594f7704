"""What the commands that train share: how their processes join, how they say and show what runs.

`torchrun` starts such a command once for each device; the first process speaks for all.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from polyrank.cli.flags import flag_of, flags_of
from polyrank.cli.options import settings_of
from polyrank.cli.output import Output
from polyrank.config import to_mapping
from polyrank.models.config import CONFIGS
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


NOT_SETTINGS = ("show_config", "restart")


def show_config(options: Any, architecture: str | None, output: Output) -> None:
    """Print the settings of built options; with --json, as one object.

    Settings of the model that nobody gave stand in comments, since the base may bring its own.
    """
    settings = settings_of(options)
    for name in NOT_SETTINGS:
        settings.pop(name, None)
    flags = {flag.name: flag for flag in flags_of(type(options))}
    missing = [name for name, value in settings.items() if value is None and flags[name].required]
    for name in missing:
        del settings[name]
    output.say("\n".join(lines(settings, missing, architecture)))
    output.result({"config": settings, "missing": missing})


def lines(settings: dict[str, Any], missing: list[str], architecture: str | None) -> list[str]:
    """The lines of the YAML file."""
    import yaml

    shown = [f"# {name}: is required" for name in missing]
    shown += yaml.safe_dump(settings, sort_keys=False, allow_unicode=True).splitlines()
    if architecture is not None:
        rest = to_mapping(CONFIGS[architecture]())
        unset = {name: value for name, value in rest.items() if name not in settings}
        if unset:
            shown.append("# As follows, unless the base brings its own:")
            shown += [f"# {line}" for line in yaml.safe_dump(unset, sort_keys=False).splitlines()]
    return shown
