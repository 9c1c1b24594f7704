"""Settings: frozen keyword-only dataclasses to and from plain mappings, JSON and YAML.

Knows how to check a value against a field's type, but not what the settings mean.
"""

from __future__ import annotations

import contextlib
import dataclasses
import operator
import types
import typing
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

from polyrank.errors import UsageError, nearest

T = TypeVar("T")
NO_NAMES: Mapping[str, str] = types.MappingProxyType({})
LARGEST_SETTINGS = 1 << 16
"""Bytes of a file of settings: YAML of a megabyte can take minutes to read."""
MOST_VALUES = 10_000
"""Values in a file of settings."""


def from_mapping(cls: type[T], values: Mapping[str, Any], *, where: str) -> T:
    """Build the dataclass `cls` from `values`; `where` says whose settings these are.

    Raises UsageError for an unknown name (naming the nearest), a missing required one, or a value
    of another type.
    """
    hints = field_types(cls)
    for name in values:
        if name not in hints:
            raise UsageError(
                f"{where}: there is no setting {name!r}.", nearest(str(name), hints.keys())
            )
    for field in dataclasses.fields(cls):  # type: ignore[arg-type]
        required = (
            field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        )
        if required and field.name not in values:
            raise UsageError(
                f"{where}: the setting {field.name!r} is required and missing.",
                f"Give it a value of type {describe(hints[field.name])}.",
            )
    checked = {name: coerce(value, hints[name], name, where) for name, value in values.items()}
    return cls(**checked)


def to_mapping(config: Any) -> dict[str, Any]:
    """The settings as plain JSON-ready values."""
    plain: dict[str, Any] = {}
    for field in dataclasses.fields(config):
        plain[field.name] = plain_value(getattr(config, field.name))
    return plain


def plain_value(value: Any) -> Any:
    """A value of a setting as JSON has it; a settings class is a mapping."""
    if isinstance(value, tuple):
        return tuple(plain_value(item) for item in value)
    if dataclasses.is_dataclass(value):
        return to_mapping(value)
    return str(value) if isinstance(value, Path) else value


def load_yaml(path: Path) -> dict[str, Any]:
    """Read a YAML mapping of settings; dashes in names count as underscores.

    Raises UsageError if the file cannot be read, is too large or is not a mapping.
    """
    import yaml

    try:
        with open(path, "rb") as file:  # it may be a pipe
            content = file.read(LARGEST_SETTINGS + 1)
        if len(content) > LARGEST_SETTINGS:
            raise UsageError(
                f"The configuration file {path} has more than {LARGEST_SETTINGS:,} bytes.",
                "Give --config a file of settings, and the data with their own options.",
            )
        loaded = parse_yaml(content.decode("utf-8"))
    except OSError as error:
        raise UsageError(
            f"The configuration file {path} cannot be read: {error.strerror}.",
            "Give --config the path of a YAML file.",
        ) from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None)
        reason = problem or " ".join(str(error).split())
        place = "" if mark is None else f", line {mark.line + 1}"
        raise UsageError(
            f"The configuration file {path}{place} is not valid YAML: {reason}.",
            "Write one `name: value` per line.",
        ) from error
    if loaded is None:
        return {}
    if not isinstance(loaded, dict):
        raise UsageError(
            f"The configuration file {path} must hold settings by name, got "
            f"{'a list' if isinstance(loaded, list) else 'a single value'}.",
            "Write one `name: value` per line, such as: epochs: 3",
        )
    return {str(name).replace("-", "_"): value for name, value in loaded.items()}


def parse_yaml(text: str) -> Any:
    """The value of a text in YAML.

    Raises YAMLError if it is not YAML; ValueError if it is longer than settings are or has more
    values, since a few aliases can stand for a billion.
    """
    import yaml

    if len(text) > LARGEST_SETTINGS:
        raise ValueError(f"it has more than {LARGEST_SETTINGS:,} characters")

    class Loader(yaml.SafeLoader):
        def flatten_mapping(self, node: Any) -> None:  # what `<<` stands for
            super().flatten_mapping(node)
            require_at_most(len(node.value))

    loaded = yaml.load(text, Loader)
    waiting, count = [loaded], 0
    while waiting:
        value = waiting.pop()
        if isinstance(value, (dict, list)):
            waiting += value.values() if isinstance(value, dict) else value
            count += 1 + len(value)
        require_at_most(count)
    return loaded


def require_at_most(count: int) -> None:
    """Raise ValueError for more values than a file of settings may have."""
    if count > MOST_VALUES:
        raise ValueError(f"it has more than {MOST_VALUES:,} values")


def field_types(cls: Any) -> dict[str, Any]:
    """The resolved type of every field of a dataclass."""
    hints = typing.get_type_hints(cls)
    return {field.name: hints[field.name] for field in dataclasses.fields(cls)}


def coerce(value: Any, expected: Any, name: str, where: str) -> Any:
    """Return `value` as the type `expected`, or raise UsageError."""
    origin = get_origin(expected)
    if origin in (Union, types.UnionType):
        options = get_args(expected)
        if value is None and type(None) in options:
            return None
        for option in options:
            if option is not type(None):
                try:
                    return coerce(value, option, name, where)
                except UsageError:
                    continue
    elif origin is Literal:
        if value in get_args(expected):
            return value
        raise UsageError(
            f"{where}: {name} is {value!r}, which is not one of its values.",
            nearest(str(value), [str(option) for option in get_args(expected)]),
        )
    elif origin is tuple:
        if isinstance(value, (list, tuple)):
            return tuple(coerce(item, get_args(expected)[0], name, where) for item in value)
    elif expected is Path:
        if isinstance(value, (str, Path)):
            return Path(value)
    elif expected is float:
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            with contextlib.suppress(OverflowError):  # an integer of 400 digits
                return float(value)
    elif expected is int:
        if isinstance(value, int) and not isinstance(value, bool):
            return value
    elif isinstance(value, expected):
        return value
    elif isinstance(value, Mapping) and is_settings_class(expected):
        return from_mapping(expected, value, where=f"{where}, {name}")
    raise UsageError(
        f"{where}: {name} must be {describe(expected)}, got {value!r}.",
        "Change the value or leave the setting out.",
    )


def is_settings_class(expected: Any) -> bool:
    """Whether a type is a dataclass."""
    return isinstance(expected, type) and dataclasses.is_dataclass(expected)


def describe(expected: Any) -> str:
    """A type in words, for messages and help."""
    origin = get_origin(expected)
    if origin in (Union, types.UnionType):
        return " or ".join(
            "null" if option is type(None) else describe(option) for option in get_args(expected)
        )
    if origin is Literal:
        return "one of " + ", ".join(str(option) for option in get_args(expected))
    if origin is tuple:
        return "a list of " + describe(get_args(expected)[0])
    words = {int: "a whole number", float: "a number", str: "a text", bool: "true or false"}
    words[Path] = "a path"
    if is_settings_class(expected):
        return "settings " + ", ".join(field_types(expected))
    return words.get(expected, getattr(expected, "__name__", str(expected)))


def require(condition: bool, name: str, expected: str, value: Any) -> None:
    """Raise UsageError unless the condition holds."""
    if not condition:
        raise UsageError(f"{name} must be {expected}, got {value}.", "Change the value.")


def require_choice(name: str, value: str, known: Iterable[str]) -> None:
    """Raise UsageError, naming the nearest, unless `value` is one of `known`."""
    known = tuple(known)
    if value not in known:
        raise UsageError(f"There is no {name} {value!r}.", nearest(str(value), known))


def require_whole(name: str, value: Any, least: int = 1) -> int:
    """A whole number of at least `least`. Raises UsageError."""
    if isinstance(value, bool) or not hasattr(value, "__index__") or operator.index(value) < least:
        raise UsageError(
            f"{name} must be a whole number of at least {least}, got {value!r}.",
            "Change the value.",
        )
    return operator.index(value)


def with_keywords(
    where: str,
    keywords: Mapping[str, Any],
    *,
    hidden: Iterable[tuple[str, str]] = (),
    elsewhere: Mapping[str, str] = NO_NAMES,
    **objects: Any,
) -> dict[str, Any]:
    """Settings objects with the values of keywords, each put where a setting has its name.

    `objects`: an instance, or the class where none was given, by the name of the argument that
    takes it. `hidden`: (argument, setting) that no keyword sets. `elsewhere`: from the names that
    other libraries use to ours. Raises UsageError for an unknown name, naming the nearest, for a
    value of another type, and for a setting that both a keyword and an instance change.
    """
    left_out = set(hidden)
    owners: dict[str, str] = {}
    classes = {
        argument: given if isinstance(given, type) else type(given)
        for argument, given in objects.items()
    }
    for argument, cls in classes.items():
        for name in field_types(cls):
            if (argument, name) not in left_out:
                owners.setdefault(name, argument)
    for name in keywords:
        if name not in owners:
            known = elsewhere.get(name)
            remedy = nearest(name, owners) if known is None else f"Here it is {known!r}."
            raise UsageError(f"{where} has no setting {name!r}.", remedy)
    made = {}
    for argument, given in objects.items():
        base = given() if isinstance(given, type) else given
        own = {name: value for name, value in keywords.items() if owners[name] == argument}
        hints = field_types(classes[argument])
        for field in dataclasses.fields(base):
            value = getattr(base, field.name)
            if field.name in own and value != field.default:
                raise UsageError(
                    f"{where}: {field.name} is given twice, as {own[field.name]!r} and in "
                    f"{argument} as {value!r}.",
                    f"Leave one of the two out; {argument} may hold the rest of the settings.",
                )
        checked = {name: coerce(value, hints[name], name, where) for name, value in own.items()}
        made[argument] = dataclasses.replace(base, **checked)
    return made
