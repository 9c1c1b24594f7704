"""The flags of an options class: one for every field, nested settings classes flattened.

The words of a flag are the field's metadata "help", or the text that stands below the field in the
class. Knows fields and types; knows nothing of typer, of YAML or of values.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import textwrap
import types
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, replace
from functools import cache, reduce
from itertools import pairwise
from operator import or_
from pathlib import Path
from typing import Any, ClassVar, Literal, Union, get_args, get_origin

from polyrank.config import field_types

METAVARS = {int: "N", float: "X", str: "TEXT", Path: "PATH", bool: "BOOL"}


@dataclass(frozen=True, kw_only=True)
class Flag:
    """A flag or an argument of the command line, and a name in YAML."""

    name: str
    type: Any
    path: tuple[str, ...]
    default: Any
    """The value if nothing is given; None also if `cases` cover everything."""
    help: str
    flag: str
    short: str | None = None
    positional: str | None = None
    metavar: str = "VALUE"
    split: bool = True
    unless: tuple[str, ...] = ()
    """The switches that allow a required value to be missing."""
    cases: tuple[tuple[str, Any], ...] = ()
    """Other defaults, each with the words for when it applies: ("for cross", "first")."""

    @property
    def required(self) -> bool:
        """Whether it has no default."""
        return self.default is MISSING

    @property
    def is_switch(self) -> bool:
        """Whether it is a pair of flags, --x and --no-x, rather than a value."""
        return base_type(self.type) is bool

    @property
    def is_list(self) -> bool:
        """Whether it may be given several times."""
        return get_origin(base_type(self.type)) is tuple

    @property
    def shown(self) -> str:
        """What messages call it."""
        return self.positional or self.flag


class Options:
    """Base of the options of every command."""

    CASES: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    """Settings that change `presets`, by the words for them in --help."""

    @classmethod
    def presets(cls, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """Settings that override the defaults; flags and YAML (`values`) override them."""
        return {}


def flags_of(cls: type[Options]) -> tuple[Flag, ...]:
    """Every flag and argument of an options class: arguments first, inherited flags last."""
    usual = cls.presets({})
    others = {words: (values, cls.presets(values)) for words, values in cls.CASES.items()}
    found = [with_presets(flag, usual, others) for flag in walk(cls, (), MISSING, ())]
    names = [flag.name for flag in found]
    twice = {name for name in names if names.count(name) > 1}
    assert not twice, f"{cls.__name__}: several settings are called {twice}"
    own = inspect.get_annotations(cls)
    inherited = {name for name in field_types(cls) if name not in own}
    return tuple(sorted(found, key=lambda flag: (flag.positional is None, flag.name in inherited)))


def with_presets(
    flag: Flag,
    usual: Mapping[str, Any],
    others: Mapping[str, tuple[Mapping[str, Any], Mapping[str, Any]]],
) -> Flag:
    """The flag with the default that presets give it; `others` are those of each case, by its
    words: the settings that make it and the presets that they bring.
    """
    default = usual.get(flag.name, flag.default)
    cases: dict[Any, list[str]] = {}
    for words, (values, presets) in others.items():
        other = presets.get(flag.name, flag.default)
        if other != default and flag.name not in values:
            cases.setdefault(other, []).append(words)
    found = tuple((" or ".join(words), other) for other, words in cases.items())
    return replace(flag, default=default, cases=flag.cases + found)


def walk(
    cls: type, path: tuple[str, ...], instance: Any, hidden: tuple[str, ...]
) -> Iterator[Flag]:
    """Yield the flags below one dataclass; `instance` overrides the defaults of the class."""
    for field in dataclasses.fields(cls):
        if field.name in hidden or field.metadata.get("fixed"):
            continue
        expected = field_types(cls)[field.name]
        words = field.metadata
        default = default_of(field) if instance is MISSING else getattr(instance, field.name)
        below = (*path, field.name)
        if "alternatives" in words:
            yield from union(words["alternatives"], below, words["hide"])
        elif dataclasses.is_dataclass(expected):
            assert isinstance(expected, type)
            for flag in walk(expected, below, default, words.get("hide", ())):
                help = words.get("words", {}).get(flag.name)
                yield flag if help is None else replace(flag, help=help)
        else:
            yield Flag(
                name=field.name,
                type=expected,
                path=path,
                default=default,
                help=words.get("help") or texts_below_fields(cls).get(field.name, ""),
                flag=words.get("flag") or flag_of(field.name),
                short=words.get("short"),
                positional=words.get("positional"),
                metavar=words.get("metavar") or metavar_of(expected),
                split=words.get("split", True),
                unless=words.get("unless", ()),
            )


def union(
    alternatives: Mapping[str, Any], path: tuple[str, ...], hidden: tuple[str, ...]
) -> Iterator[Flag]:
    """Yield one flag for every name in any of the settings; the help says which have it."""
    by_name: dict[str, dict[str, Flag]] = {}
    for label, settings in alternatives.items():
        for flag in walk(type(settings), path, settings, hidden):
            if flag.flag not in label.split():
                by_name.setdefault(flag.name, {})[label] = flag
    owners = {name: getattr(one, "architecture", name) for name, one in alternatives.items()}
    for flags in by_name.values():
        who = list(dict.fromkeys(owners[label] for label in flags))
        labels: dict[Any, list[str]] = {}
        for label, flag in flags.items():
            same = labels.setdefault(flag.default, [])
            if not any(label.startswith(f"{other} with ") for other in same):
                same.append(label)
        first, *others = flags.values()
        expected = either([first.type, *(flag.type for flag in others)])
        yield replace(
            first,
            type=expected,
            default=first.default if len(labels) == 1 else None,
            cases=tuple((f"for {listed(each)}", value) for value, each in labels.items())
            if len(labels) > 1
            else (),
            help=first.help
            + ("" if set(owners.values()) == set(who) else f" Only for {listed(who)}."),
            metavar=metavar_of(expected),
        )


def listed(words: Sequence[str]) -> str:
    """Words as a sentence lists them: a, b and c."""
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1])))


def either(kinds: list[Any]) -> Any:
    """A type that accepts what any of the types accepts; choices become one list of choices."""
    if all(get_origin(kind) is Literal for kind in kinds):
        return Literal.__getitem__(tuple(choice for kind in kinds for choice in get_args(kind)))
    return reduce(or_, kinds)


def default_of(field: dataclasses.Field[Any]) -> Any:
    """The default of a field, or MISSING."""
    if field.default_factory is not MISSING:
        return field.default_factory()
    return field.default


@cache
def texts_below_fields(cls: Any) -> dict[str, str]:
    """The text below each field of a class and of its bases, on one line; none without source."""
    texts: dict[str, str] = {}
    for base in reversed(cls.__mro__[:-1]):
        try:
            tree = ast.parse(textwrap.dedent(inspect.getsource(base)))
        except (OSError, TypeError):
            continue
        body = tree.body[0].body if isinstance(tree.body[0], ast.ClassDef) else []
        for field, below in pairwise(body):
            if not (isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)):
                continue
            if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
                texts[field.target.id] = " ".join(str(below.value.value).split())
    return texts


def base_type(expected: Any) -> Any:
    """The type without `| None`; a union of several types stays one."""
    if get_origin(expected) in (Union, types.UnionType):
        kinds = [kind for kind in get_args(expected) if kind is not type(None)]
        return kinds[0] if len(kinds) == 1 else expected
    return expected


def metavar_of(expected: Any) -> str:
    """The word for a value in --help: the choices, or one for the type."""
    expected = base_type(expected)
    if get_origin(expected) is Literal:
        return "|".join(str(choice) for choice in get_args(expected))
    if get_origin(expected) is tuple:
        return metavar_of(get_args(expected)[0]) + ",…"
    if get_origin(expected) in (Union, types.UnionType):
        kinds = [metavar_of(kind) for kind in get_args(expected) if kind is not type(None)]
        return "|".join(dict.fromkeys("|".join(kinds).split("|")))
    return METAVARS.get(expected, "VALUE")


def flag_of(name: str) -> str:
    """The flag of a setting, where it has no other."""
    return "--" + name.replace("_", "-")
