"""A command: a function from options to words and a result, and its form in typer.

    @dataclass(frozen=True, kw_only=True)
    class SearchOptions(DeviceOptions):
        index: Path = positional("INDEX", help="The folder of an index.")
        top_k: int = option(10, short="-k", help="How many hits to give.")

    @command("search", SearchOptions)
    def search(options: SearchOptions, output: Output) -> None:
        \"\"\"Rank the candidates of an index for a text.\"\"\"

Typer only parses: it returns a `Call`, which `main` then runs outside of it, so that errors,
interrupts and broken pipes are handled in one place. Every command also has --config, --json,
--help and --help-all.
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


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What was typed: --help or, for `every`, --help-all, of a command."""

    command: Command[Any]
    every: bool


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


def parser_of(command: Command[Any]) -> Any:
    """The parser of a command's flags: a command of typer that returns a `Call` or what was
    `Asked`, and runs nothing.
    """

    def callback(**values: Any) -> Call | Asked:
        config, json = values.pop("config"), values.pop("json")
        some, every = values.pop("help"), values.pop("help_all")
        if some or every:
            return Asked(command=command, every=every)
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
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
    app.command(command.name, add_help_option=False)(callback)
    return typer.main.get_command(app)


def parameter(flag: Flag) -> inspect.Parameter:
    """A flag as typer sees it: always optional and a text, since types and needs are ours."""
    annotation: Any = str | None
    if flag.is_switch:
        annotation = bool | None
    elif flag.is_list:
        annotation = list[str] | None
    if flag.positional:
        default = typer.Argument(None, metavar=flag.positional)
        return keyword(flag.name, default, annotation)
    names = [f"{flag.flag}/--no-{flag.flag[2:]}" if flag.is_switch else flag.flag]
    names += [flag.short] if flag.short else []
    default = typer.Option(
        None,
        *names,
        metavar=None if flag.is_switch else flag.metavar,
    )
    return keyword(flag.name, default, annotation)


def common_parameters() -> list[inspect.Parameter]:
    """The flags of every command: --config, --json, --help and --help-all."""
    config = keyword("config", typer.Option(None, "--config", metavar="FILE.yaml"), str | None)
    switches = ("--json", "--help", "--help-all")
    names = [name[2:].replace("-", "_") for name in switches]
    return [
        config,
        *(
            keyword(name, typer.Option(False, switch), bool)
            for name, switch in zip(names, switches, strict=True)
        ),
    ]


def keyword(name: str, default: Any, annotation: Any) -> inspect.Parameter:
    """A keyword parameter of a signature."""
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, kind, default=default, annotation=annotation)
