"""A command: a function from options to words and a result, and its form in typer.

    @dataclass(frozen=True, kw_only=True)
    class SearchOptions(DeviceOptions):
        index: Path = positional("INDEX", help="The folder of an index.")
        top_k: int = option(10, short="-k", help="How many hits to give.")

    @command("search", SearchOptions)
    def search(options: SearchOptions, output: Output) -> None:
        \"\"\"Rank the candidates of an index for a text.\"\"\"

Typer only parses: it returns a `Call`, which `main` then runs outside of it, so that errors,
interrupts and broken pipes are handled in one place. Every command also has --config and --json.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import typer

from polyrank.cli.flags import Flag, Options, flags_of
from polyrank.cli.options import build
from polyrank.cli.output import Output

T = TypeVar("T", bound=Options)
NOTHING_KEPT = "Nothing was changed."
COMMON_HELP = {
    "--config FILE.yaml": "Settings from a YAML file, named like the flags; flags override them.",
    "--json": "Print one JSON object on standard output, and words for people on standard error.",
}
"""The flags that `add_command` gives to every command, besides --help."""


@dataclass(frozen=True, kw_only=True)
class Command(Generic[T]):
    """One command; call it with options and an output to run it from Python."""

    name: str
    """What is typed after `polyrank`: one word or, in a group, the group's and its own."""
    options: type[T]
    function: Callable[[T, Output], None]
    interrupted: Callable[[T], str]

    def __call__(self, options: T, output: Output) -> None:
        """Run it."""
        self.function(options, output)

    @property
    def help(self) -> str:
        """The words of --help: the function's docstring."""
        assert self.function.__doc__, f"the command {self.name} has no docstring"
        return inspect.cleandoc(self.function.__doc__)


@dataclass(frozen=True, kw_only=True)
class Group:
    """Commands that share their first word, such as `polyrank index build` and `index add`."""

    name: str
    help: str


@dataclass(frozen=True, kw_only=True)
class Call:
    """What was typed: a command, its flags as given, and the two that every command has."""

    command: Command[Any]
    given: dict[str, Any]
    config: Path | None
    json: bool

    def run(self) -> None:
        """Build the options and run the command."""
        where = f"polyrank {self.command.name}"
        options = build(self.command.options, self.given, self.config, where)
        try:
            self.command(options, Output(json=self.json))
        except KeyboardInterrupt as error:
            raise InterruptError(self.command.interrupted(options)) from error


class InterruptError(Exception):
    """Ctrl-C came while a command ran; the message says what is kept."""


def command(
    name: str, options: type[T], *, interrupted: Callable[[T], str] | None = None
) -> Callable[[Callable[[T, Output], None]], Command[T]]:
    """Make a command of a function.

    `interrupted` gives, from the options, the words after Ctrl-C: what is kept and what to do next.
    """

    def decorate(function: Callable[[T, Output], None]) -> Command[T]:
        words = interrupted or (lambda _: NOTHING_KEPT)
        return Command(name=name, options=options, function=function, interrupted=words)

    return decorate


def add_command(app: typer.Typer, command: Command[Any]) -> None:
    """Register a command with typer, under the last word of its name; its callback returns a `Call`
    and runs nothing.
    """

    def callback(**values: Any) -> Call:
        config, json = values.pop("config"), values.pop("json")
        given = {name: value for name, value in values.items() if value not in (None, [], ())}
        return Call(
            command=command,
            given=given,
            config=None if config is None else Path(config),
            json=bool(json),
        )

    parameters = [parameter(flag) for flag in flags_of(command.options)]
    parameters += common_parameters()
    callback.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    callback.__annotations__ = {given.name: given.annotation for given in parameters}
    name = command.name.split()[-1]
    callback.__name__ = name
    first = " ".join(command.help.partition("\n\n")[0].split())
    app.command(name, help=command.help, short_help=first)(callback)


def parameter(flag: Flag) -> inspect.Parameter:
    """A flag as typer sees it: always optional and a text, since types and needs are ours."""
    annotation: Any = str | None
    if flag.is_switch:
        annotation = bool | None
    elif flag.is_list:
        annotation = list[str] | None
    words = flag.help + default_words(flag)
    if flag.positional:
        default = typer.Argument(None, help=words, metavar=flag.positional, show_default=False)
        return keyword(flag.name, default, annotation)
    names = [f"{flag.flag}/--no-{flag.flag[2:]}" if flag.is_switch else flag.flag]
    names += [flag.short] if flag.short else []
    default = typer.Option(
        None,
        *names,
        help=words,
        metavar=None if flag.is_switch else flag.metavar,
        show_default=False,
    )
    return keyword(flag.name, default, annotation)


def common_parameters() -> list[inspect.Parameter]:
    """The flags --config and --json."""
    words = list(COMMON_HELP.values())
    config = typer.Option(None, "--config", help=words[0], metavar="FILE.yaml", show_default=False)
    json = typer.Option(False, "--json", help=words[1], show_default=False)
    return [keyword("config", config, str | None), keyword("json", json, bool)]


def keyword(name: str, default: Any, annotation: Any) -> inspect.Parameter:
    """A keyword parameter of a signature."""
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, kind, default=default, annotation=annotation)


def default_words(flag: Flag) -> str:
    """The default as one would type it, and others with when they apply; nothing for null, an empty
    text or an empty list.
    """
    if flag.required:
        return " Required."
    empty = flag.default is None or flag.default in ("", ())
    words = [] if empty else [typed(flag, flag.default)]
    words += [
        f"{typed(flag, value)} {when}"
        for when, value in flag.cases
        if value is not None or not flag.is_switch
    ]
    return f" [default: {', '.join(words)}]" if words else ""


def typed(flag: Flag, value: Any) -> str:
    """A value of a flag as one would type it."""
    if flag.is_switch:
        return flag.flag if value else f"--no-{flag.flag[2:]}"
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return "none" if value is None else str(value)
