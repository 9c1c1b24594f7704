"""The options of a command: a frozen dataclass, filled from flags over YAML over defaults.

A field carries its words, so a settings class of a lower layer needs nothing from here: either a
text below the field, or metadata.

    help        the words for --help; every field needs them
    flag        the flag, where it is not the field's name with dashes, such as "--num-codes"
    short       a one-letter flag such as "-k"
    positional  the name of an argument without a flag, such as "INDEX"
    metavar     the word for the value in --help
    split       False keeps the commas in the values of a tuple
    unless      the switches that allow a required value to be missing; it is None then

A field whose type is a dataclass is flattened: its fields become flags of the command and names in
YAML. `Options.presets` may override the defaults. Knows nothing of typer (see `command`).
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

from polyrank.cli.flags import Flag, Options, base_type, default_of, flags_of
from polyrank.config import coerce, field_types, load_yaml, require
from polyrank.errors import UsageError, nearest
from polyrank.models.config import EngineName

T = TypeVar("T", bound=Options)
CANDIDATES = (
    "one text per line; JSONL of objects with text and, optionally, id and metadata; or a CSV, TSV "
    "or Parquet file with a column such as text or answer."
)
"""What a file of candidates holds, in words for --help."""


@dataclass(frozen=True, kw_only=True)
class DeviceOptions(Options):
    """What every command has: where to compute. Inherit from it."""

    device: str = dataclasses.field(
        default="auto",
        metadata={
            "help": "The device: auto, cpu, cuda, cuda:N or mps.",
            "metavar": "DEVICE",
        },
    )


def option(
    default: Any = MISSING,
    *,
    help: str,
    flag: str | None = None,
    short: str | None = None,
    metavar: str | None = None,
    split: bool = True,
    unless: tuple[str, ...] = (),
) -> Any:
    """A field that becomes a flag; required without a `default`."""
    words: dict[str, Any] = {"help": help, "flag": flag, "short": short, "metavar": metavar}
    words["split"] = split
    words["unless"] = unless
    return dataclasses.field(default=default, metadata=words)


def fixed(value: Any) -> Any:
    """A field that a base class has a flag for, and that has this value here, without a flag."""
    return dataclasses.field(default=value, metadata={"fixed": True})


def positional(metavar: str, *, help: str, default: Any = MISSING) -> Any:
    """A field that becomes an argument; a tuple takes all that are left, commas included."""
    words = {"help": help, "positional": metavar, "split": False}
    return dataclasses.field(default=default, metadata=words)


def flattened(
    default: Any = MISSING, *, hide: Iterable[str] = (), help: Mapping[str, str] | None = None
) -> Any:
    """A field whose settings class becomes flags of the command.

    `default` is an instance with other defaults than the class has; the names in `hide` stay at
    their defaults and get no flag; `help` has other words for some of the names.
    """
    words = {"hide": tuple(hide), "words": help or {}}
    return dataclasses.field(default=default, metadata=words)


def any_of(alternatives: Mapping[str, Any], *, hide: Iterable[str] = ()) -> Any:
    """A `dict[str, Any]` field that takes the settings of whichever alternative is chosen later.

    `alternatives` are the settings of each, by the words that --help has for it; their values are
    the defaults that it states. Every name of any of them becomes one flag; the dict holds only
    what was given, for `config.from_mapping` with the chosen class. The command warns of names that
    this class lacks.
    """
    words = {"alternatives": alternatives, "hide": tuple(hide)}
    return dataclasses.field(default_factory=dict, metadata=words)


@dataclass(frozen=True, kw_only=True)
class ModelOptions(DeviceOptions):
    """Options of every command that runs a model. Inherit from it."""

    dtype: Literal["auto", "float32", "bfloat16"] = option(
        "auto", help="The precision of inference. auto is bfloat16 if the hardware has it."
    )
    batch_tokens: int | None = option(
        None, help="The number of tokens in one batch, with padding. By default, the model's own."
    )

    def __post_init__(self) -> None:
        tokens = self.batch_tokens
        require(tokens is None or tokens >= 1, "--batch-tokens", "at least 1", tokens)


@dataclass(frozen=True, kw_only=True)
class SourceOptions(ModelOptions):
    """Options of every command that takes one model, by its folder or its id. Inherit from it."""

    revision: str | None = option(
        None,
        help="The branch, tag or commit of a model that is given by its id on the hub. By default, "
        "main.",
    )


@dataclass(frozen=True, kw_only=True)
class InferenceOptions(ModelOptions):
    """Options of every command that runs a model and trains none. Inherit from it."""

    engine: EngineName = option(
        "auto",
        help="What computes: torch runs a model's weights; onnx and openvino run the graphs of an "
        "exported one. auto takes what the folder has.",
    )


def load(path: Path, options: ModelOptions, *, revision: str | None = None) -> Any:
    """The saved model in a folder, for inference, of any architecture, placed as the options say.

    A hub id stands for the model of a `revision`. Raises ModelError, UsageError or
    MissingExtraError.
    """
    from polyrank.models.checkpoint import load_model

    return load_model(
        path,
        device=options.device,
        dtype=options.dtype,
        batch_tokens=options.batch_tokens,
        revision=revision,
        trainable=False,
        engine=options.engine if isinstance(options, InferenceOptions) else "auto",
    )


def build(cls: type[T], given: Mapping[str, Any], config: Path | None, where: str) -> T:
    """The options from flags (`given`: only what was typed) over YAML, presets and the defaults.

    Presets come from the options' class: `presets(values)` gives settings, by name, that suit what
    flags and YAML say. Raises UsageError for an unknown setting, a value of another type or a
    missing required one.
    """
    flags = {flag.name: flag for flag in flags_of(cls)}
    values = {} if config is None else read_settings(config, flags, where)
    for name, text in given.items():
        flag = flags[name]
        values[name] = coerce(parse(text, flag), flag.type, flag.shown, where)
    values = {**cls.presets(values), **values}
    for flag in flags.values():
        if flag.required and flag.name not in values:
            if any(values.get(switch) for switch in flag.unless):
                values[flag.name] = None
                continue
            raise UsageError(
                f"{where}: {flag.shown} is required and missing.",
                f"Give it, or write `{flag.name}: …` into the file of --config; {where} --help "
                "shows how.",
            )
    given_flags = [flag for flag in flags.values() if flag.name in values]
    return assemble(cls, (), given_flags, values)


def read_settings(config: Path, flags: Mapping[str, Flag], where: str) -> dict[str, Any]:
    """The settings of a YAML file, each checked against the type of its flag."""
    settings = load_yaml(config)
    for name in settings:
        if name not in flags:
            remedy = nearest(name, flags, listed_by=f"{where} --help-all")
            raise UsageError(f"{config}: there is no setting {name!r}.", remedy)
    return {
        name: coerce(value, flags[name].type, name, str(config)) for name, value in settings.items()
    }


def assemble(
    cls: Any,
    path: tuple[str, ...],
    flags: Sequence[Flag],
    values: Mapping[str, Any],
    base: Any = MISSING,
) -> Any:
    """Build the dataclass at `path` and, first, those nested in it; `base` has its defaults."""
    own = {flag.name: values[flag.name] for flag in flags if flag.path == path}
    for field in dataclasses.fields(cls):
        inner = field_types(cls)[field.name]
        if "alternatives" in field.metadata:
            below = (*path, field.name)
            own[field.name] = {flag.name: values[flag.name] for flag in flags if flag.path == below}
        elif dataclasses.is_dataclass(inner):
            default = default_of(field) if base is MISSING else getattr(base, field.name)
            own[field.name] = assemble(inner, (*path, field.name), flags, values, default)
    return cls(**own) if base is MISSING else dataclasses.replace(base, **own)


def settings_of(options: Any) -> dict[str, Any]:
    """All settings of built options, by name, as YAML takes them: what `build` reads back.

    Of a field made by `any_of`, only what was given.
    """
    settings: dict[str, Any] = {}
    for flag in flags_of(type(options)):
        value = options
        for name in flag.path:
            value = getattr(value, name)
        if isinstance(value, dict):
            if flag.name in value:
                settings[flag.name] = plain(value[flag.name])
        else:
            settings[flag.name] = plain(getattr(value, flag.name))
    return settings


def plain(value: Any) -> Any:
    """A value as YAML has it."""
    if isinstance(value, tuple):
        return [plain(item) for item in value]
    return str(value) if isinstance(value, Path) else value


def parse(text: Any, flag: Flag) -> Any:
    """What was typed as a value of the flag's type, or as it is where it cannot be read so."""
    if flag.is_switch:
        return text
    if flag.is_list:
        inner = get_args(base_type(flag.type))[0]
        pieces = [piece for item in text for piece in (item.split(",") if flag.split else [item])]
        return [parse_one(piece, inner) for piece in pieces]
    return parse_one(text, flag.type)


def parse_one(text: str, expected: Any) -> Any:
    """One value; `none` is null where null is allowed."""
    origin = get_origin(expected)
    if origin in (Union, types.UnionType):
        kinds = get_args(expected)
        if type(None) in kinds and text.lower() == "none":
            return None
        readings = (parse_one(text, kind) for kind in kinds if kind is not type(None))
        return next((value for value in readings if not isinstance(value, str)), text)
    if origin is Literal:
        return next((choice for choice in get_args(expected) if str(choice) == text), text)
    if expected in (int, float):
        try:
            return expected(text)
        except ValueError:
            return text
    return Path(text) if expected is Path else text
