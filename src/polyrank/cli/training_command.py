"""What the commands that train share: how their processes join, how they say and show what runs.

`torchrun` starts such a command once for each device; the first process speaks for all.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from polyrank.cli.flags import flag_of, flags_of
from polyrank.cli.options import settings_of
from polyrank.cli.output import Output
from polyrank.config import field_types, to_mapping
from polyrank.models.config import CONFIGS
from polyrank.training import processes
from polyrank.training.config import STANDARD, TrainingConfig, without_effect


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
    return (
        f"What stood at {output} before is unchanged{kept}: run the same command again to resume."
    )


def warn_of_idle_training(
    config: TrainingConfig, output: Output, default: TrainingConfig = STANDARD
) -> None:
    """Warn of training settings that have no effect beside the others."""
    for setting in without_effect(config, default):
        output.warn(f"{flag_of(setting)} has no effect beside the other settings.")


def place(model: Any) -> str:
    """Where the model is trained, in words; with several GPUs, how to use the others."""
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


ARCHITECTURES = {"bi": "bi-encoder", "poly": "poly-encoder", "cross": "cross-encoder"}
NOT_SETTINGS = ("show_config", "restart")
NO_DEFAULTS: Mapping[str, Any] = {}


def show_config(
    options: Any,
    architectures: Sequence[str],
    output: Output,
    defaults: Mapping[str, Any] = NO_DEFAULTS,
) -> None:
    """Print the settings of built options; with --json, as one object.

    Settings of the model that nobody gave stand in comments, with the values that will run:
    `defaults` are the command's own.
    """
    settings = settings_of(options)
    for name in NOT_SETTINGS:
        settings.pop(name, None)
    flags = {flag.name: flag for flag in flags_of(type(options))}
    missing = [name for name, value in settings.items() if value is None and flags[name].required]
    for name in missing:
        del settings[name]
    shown = [f"# {name}: is required" for name in missing]
    shown += lines(settings)
    known = options.base is not None and Path(options.base).is_dir()
    unless = "" if known else ", unless the base brings its own"
    for architecture in architectures:
        model = model_settings(architecture, options, defaults)
        unset = {name: value for name, value in model.items() if name not in options.model}
        shown.append(f"# The other settings of the {ARCHITECTURES[architecture]}{unless}:")
        shown += [f"# {line}" for line in lines(unset)]
    output.say("\n".join(shown))
    output.result({"config": settings, "missing": missing})


def model_settings(architecture: str, options: Any, defaults: Mapping[str, Any]) -> dict[str, Any]:
    """All settings of the model that will run, as far as its base is known.

    Lengths that the encoder cannot place will be cut.
    """
    known = field_types(CONFIGS[architecture])
    given = {name: value for name, value in options.model.items() if name in known}
    if options.base is not None and Path(options.base).is_dir():
        from polyrank.models.loading import inherit

        defaults = inherit(architecture, Path(options.base), defaults)
    return to_mapping(CONFIGS[architecture](**{**defaults, **given}))


def lines(settings: Mapping[str, Any]) -> list[str]:
    """Settings as the lines of a YAML file."""
    import yaml

    shown: str = yaml.safe_dump(dict(settings), sort_keys=False, allow_unicode=True)
    return shown.splitlines()
