"""What the commands that train share: options, processes, the run and its words, --show-config.

`torchrun` starts such a command once for each device; the first process speaks for all.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from polyrank.cli.flags import flag_of, flags_of
from polyrank.cli.options import SourceOptions, option, settings_of
from polyrank.cli.output import Output
from polyrank.config import field_types, from_mapping, to_mapping
from polyrank.display.words import took
from polyrank.models.config import CONFIGS, NAMES
from polyrank.progress import hidden
from polyrank.training import processes
from polyrank.training.config import STANDARD, TrainingConfig, without_effect
from polyrank.training.model_card import Provenance

if TYPE_CHECKING:
    from polyrank.records import Example, LabelledPair, RetrievalSet
    from polyrank.training.objectives.registry import ObjectiveConfig
    from polyrank.training.pretraining.corpora import CorpusPairs
    from polyrank.training.result import TrainingResult

NOT_SETTINGS = ("show_config", "restart")
NO_DEFAULTS: Mapping[str, Any] = {}


@dataclass(frozen=True, kw_only=True)
class RunOptions(SourceOptions):
    """Options of every command that trains. Inherit from it."""

    restart: bool = option(False, help="Discard an unfinished run of the same output.")
    tensorboard: Path | None = option(
        None, help="Write TensorBoard logs to this folder, below the name of the output."
    )
    show_config: bool = option(
        False, help="Print all settings as YAML, which --config reads, and train nothing."
    )


class Silent(Output):
    """The output of a process for which another one speaks."""

    def say(self, text: str = "") -> None:
        """Say nothing."""

    def warn(self, text: str) -> None:
        """Warn of nothing."""

    def result(self, result: Mapping[str, Any]) -> None:
        """Give nothing."""


@contextmanager
def joining_processes(device: str, output: Output) -> Iterator[tuple[str, Output]]:
    """Connect the processes of a run; gives this process's own device and output."""
    own = processes.own_device(device)
    processes.connect(own)
    try:
        if processes.is_first():
            yield own, output
        else:
            with hidden():
                yield own, Silent(json=output.json)
    finally:
        processes.disconnect()


def checkpoint_kept(output: Path, kept: str = ", and the last checkpoint is kept") -> str:
    """The words after Ctrl-C."""
    return (
        f"What stood at {output} before is unchanged{kept}: run the same command again to resume."
    )


def warn_of_idle_training(
    config: TrainingConfig,
    output: Output,
    default: TrainingConfig = STANDARD,
    presets: Mapping[str, Any] = NO_DEFAULTS,
) -> None:
    """Warn of training settings that were given and have no effect beside the others.

    `presets` are the settings of a recipe, which nobody gave.
    """
    known = field_types(TrainingConfig)
    papers = {name: value for name, value in presets.items() if name in known}
    for setting, cause in without_effect(config, replace(default, **papers)).items():
        value = getattr(config, cause)
        other = f"without {flag_of(cause)}" if value is None else f"with {flag_of(cause)} {value}"
        output.warn(f"{flag_of(setting)} has no effect {other}.")


def run_training(
    model: Any,
    examples: Sequence[Example] | Sequence[LabelledPair] | CorpusPairs,
    folder: Path,
    config: TrainingConfig,
    options: RunOptions,
    output: Output,
    *,
    doing: str,
    done: str,
    then: Sequence[str] = (),
    objective: ObjectiveConfig,
    provenance: Provenance,
    dev: Sequence[Example] | Sequence[LabelledPair] | RetrievalSet = (),
    teacher: Any = None,
) -> TrainingResult:
    """Train, save to `folder`, and tell people what happens and what to do next."""
    from polyrank.training.run import train

    output.say(f"{doing}, on {place(model)} in {str(model.compute_dtype).removeprefix('torch.')}")
    result = train(
        model,
        examples,
        folder,
        config,
        objective=objective,
        dev=dev,
        restart=options.restart,
        say=output.say,
        provenance=replace(provenance, command=command_line()),
        tensorboard=options.tensorboard,
        teacher=teacher,
        show_progress_bar=True,
    )
    time = took(result.seconds, result.pairs, "pairs")
    output.say(f"{done} in {time}; the model of step {result.best_step} is in")
    output.say(f"  {folder}")
    for line in then:
        output.say(line)
    return result


def summary(result: Mapping[str, Any], figures: str, **words: Any) -> dict[str, Any]:
    """What --json prints of a trained model; `figures` is the name for its figures."""
    names = ("steps", "pairs", "seconds", "best_step")
    return {**words, **{name: result[name] for name in names}, figures: result["figures"]}


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
    known = options.base is not None and Path(options.base).exists()
    unless = "" if known else ", unless the base brings its own"
    for architecture in architectures:
        model = model_settings(architecture, options, defaults)
        unset = {
            name: value
            for name, value in model.items()
            if name in flags and name not in options.model
        }
        shown.append(f"# The other settings of the {NAMES[architecture]}{unless}:")
        shown += [f"# {line}" for line in lines(unset)]
    output.say("\n".join(shown))
    output.result({"config": settings, "missing": missing})


def model_settings(architecture: str, options: Any, defaults: Mapping[str, Any]) -> dict[str, Any]:
    """All settings of the model that will run, as far as its base is known.

    Lengths that the encoder cannot place will be cut.
    """
    known = field_types(CONFIGS[architecture])
    given = {name: value for name, value in options.model.items() if name in known}
    if options.base is not None and Path(options.base).exists():
        from polyrank.models.default_head import with_head
        from polyrank.models.loading.settings import inherit

        defaults = inherit(architecture, Path(options.base), defaults)
        if architecture == "cross":
            task = {} if "task" in defaults else {"task": "rank"}
            given = with_head(Path(options.base), defaults, {**task, **given})
    config = from_mapping(CONFIGS[architecture], {**defaults, **given}, where="The model")
    return to_mapping(config)


def lines(settings: Mapping[str, Any]) -> list[str]:
    """Settings as the lines of a YAML file."""
    import yaml

    shown: str = yaml.safe_dump(dict(settings), sort_keys=False, allow_unicode=True)
    return shown.splitlines()
