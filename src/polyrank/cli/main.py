"""Every command, and what becomes of errors.

Exit codes: 0; 2 for bad usage or bad input; 1 for a failure; 130 after Ctrl-C; 141 when the reader
of standard output went away. An error is one message on standard error; with --json standard output
also gets {"error": {"type", "message"}}. POLYRANK_TRACEBACK=1 shows where it was raised.
"""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from collections.abc import Iterable, Sequence
from typing import Any

import typer

from polyrank._version import __version__
from polyrank.cli import index_changes
from polyrank.cli.command import Asked, Call, Command, InterruptError, parser_of
from polyrank.cli.compare import compare
from polyrank.cli.completion import COMPLETE, completed, completion
from polyrank.cli.corpus import corpus
from polyrank.cli.demo import demo
from polyrank.cli.distil import distil
from polyrank.cli.doctor import doctor
from polyrank.cli.encode import encode
from polyrank.cli.evaluate import evaluate
from polyrank.cli.export import export
from polyrank.cli.help import command_page, group_page, root_page
from polyrank.cli.import_checkpoint import import_parlai
from polyrank.cli.index_build import build
from polyrank.cli.info import index_info, info
from polyrank.cli.mine import mine
from polyrank.cli.output import give_up, json_line, put, say_error, written
from polyrank.cli.predict import predict
from polyrank.cli.pretrain import pretrain
from polyrank.cli.push import push
from polyrank.cli.reproduce import reproduce
from polyrank.cli.search import search
from polyrank.cli.serve import serve
from polyrank.cli.static import static
from polyrank.cli.train import train
from polyrank.errors import (
    INTERRUPTED,
    InputError,
    OutOfMemoryError,
    PolyrankError,
    StorageError,
    UsageError,
    is_out_of_memory,
    nearest,
)

BROKEN_PIPE = 141


def commands() -> tuple[Command[Any], ...]:
    """Every command, in the order of --help."""
    return (
        demo,
        corpus,
        pretrain,
        static,
        train,
        mine,
        distil,
        evaluate,
        compare,
        predict,
        encode,
        build,
        index_changes.add,
        index_changes.delete,
        index_changes.compact,
        index_changes.verify,
        index_info,
        search,
        serve,
        export,
        import_parlai,
        push,
        reproduce,
        info,
        doctor,
        completion,
    )


def run(arguments: Sequence[str], known: Sequence[Command[Any]]) -> int:
    """Run one command line and return its exit code; nothing is raised."""
    wants_json = "--json" in arguments
    try:
        code = perform(arguments, known)
        with written(sys.stdout):  # Python would only warn of it on the way out
            sys.stdout.flush()
        return code
    except (KeyboardInterrupt, typer.Abort):
        report("Interrupted", "Interrupted.", wants_json)
        return INTERRUPTED
    except InterruptError as error:
        report("Interrupted", f"Interrupted. {error}", wants_json)
        return INTERRUPTED
    except BrokenPipeError:
        give_up(sys.stdout)
        return BROKEN_PIPE
    except PolyrankError as error:
        if not error.said_elsewhere:
            report(type(error).__name__, str(error), wants_json)
        return error.exit_code
    except Exception as error:
        if is_out_of_memory(error):
            report(OutOfMemoryError.__name__, str(OutOfMemoryError(error)), wants_json)
            return OutOfMemoryError.exit_code
        words = " ".join(str(error).split())
        report(
            "InternalError",
            f"Internal error, {type(error).__name__}: {words}. "
            "Run again with POLYRANK_TRACEBACK=1 to see where, and report it.",
            wants_json,
        )
        return PolyrankError.exit_code


def perform(arguments: Sequence[str], known: Sequence[Command[Any]]) -> int:
    """Run one command line, or complete it for a shell; gives the exit code."""
    if arguments[:1] == [COMPLETE]:
        for line in completed(arguments[1:], known):
            print(line)
        return 0
    call = parse(arguments, known)
    if isinstance(call, int):
        return call
    call.run()
    return 0


def parse(arguments: Sequence[str], known: Sequence[Command[Any]]) -> Call | int:
    """What was typed as a `Call`, or the exit code where --help or --version has answered.

    Raises UsageError for what typer cannot parse.
    """
    words, found = command_typed(arguments, known)
    rest = list(arguments[len(words) :])
    path = " ".join(["polyrank", *words])
    if len(found) != 1 or found[0].name != " ".join(words):
        return overview(words, rest, found)
    try:
        parsed = parser_of(found[0])(rest, prog_name=path, standalone_mode=False)
    except Exception as error:
        if not hasattr(error, "format_message"):
            raise
        raise usage_error(error) from error
    if isinstance(parsed, Asked):
        print(command_page(parsed.command, every=parsed.every))
        return 0
    assert isinstance(parsed, Call)
    return parsed


def overview(words: Sequence[str], rest: Sequence[str], found: Sequence[Command[Any]]) -> int:
    """Print the page of a group or of polyrank, or the version; gives the exit code.

    Raises UsageError for a flag that needs a command.
    """
    flags = ("--help", "--help-all") if words else ("--help", "--help-all", "--version")
    for flag in rest:
        if flag not in (*flags, "--json"):
            raise UsageError(
                f"{' '.join(['polyrank', *words])}: there is no option {flag!r}.",
                nearest(flag, flags),
            )
    if "--version" in rest:
        print(f"polyrank {__version__}")
    else:
        print(group_page(words[0], found) if words else root_page(found))
    return 0 if set(rest) & set(flags) else InputError.exit_code


def is_flag(argument: str) -> bool:
    """Whether an argument is a flag, not a command or a value."""
    return argument.startswith("-")


def command_typed(
    arguments: Sequence[str], known: Sequence[Command[Any]]
) -> tuple[list[str], Sequence[Command[Any]]]:
    """The words of the command that was typed, and it alone; all of its group, where it has no
    subcommand; or all there are.

    Raises UsageError for a command or a subcommand that does not exist.
    """
    found, words = known, list[str]()
    for depth, word in enumerate(arguments[:2]):
        if is_flag(word):
            break
        names = {command.name.split()[depth] for command in found}
        if word not in names:
            raise no_command([*words, word], names)
        words.append(word)
        found = [command for command in found if command.name.split()[depth] == word]
        if found[0].name == " ".join(words):
            break
    return words, found


def no_command(words: Sequence[str], names: Iterable[str]) -> UsageError:
    """The error of a word that is not a command or a subcommand: with the nearest, or all."""
    *group, word = words
    if not group:
        return UsageError(f"There is no command {word!r}.", nearest(word, names))
    path = " ".join(["polyrank", *group])
    remedy = nearest(word, names)
    if remedy.startswith("Known") and group == ["index"]:
        remedy = f"To make an index, type: {path} build {word} --candidates FILE --output INDEX."
    return UsageError(f"{path}: there is no subcommand {word!r}.", remedy)


def usage_error(error: Any) -> UsageError:
    """What typer found wrong with the command line, naming the nearest flag to an unknown one.

    Typer's own error classes have moved between its versions; only their attributes are stable.
    """
    context = getattr(error, "ctx", None)
    path = "polyrank" if context is None else context.command_path
    unknown = getattr(error, "option_name", None)
    if context is not None and unknown is not None and type(error).__name__ == "NoSuchOption":
        flags = [name for parameter in context.command.params for name in flag_names(parameter)]
        remedy = nearest(unknown, flags, listed_by=f"{path} --help-all")
        return UsageError(f"{path}: there is no option {unknown!r}.", remedy)
    message = " ".join(error.format_message().split()).rstrip(".")
    return UsageError(f"{path}: {message}.", f"See: {path} --help.")


def flag_names(parameter: Any) -> list[str]:
    """The flags of one of typer's parameters; none for an argument."""
    return [name for name in (*parameter.opts, *parameter.secondary_opts) if name.startswith("-")]


def report(kind: str, message: str, wants_json: bool) -> None:
    """Tell people on standard error and, with --json, programs on standard output."""
    if os.environ.get("POLYRANK_TRACEBACK"):
        traceback.print_exc()
    if kind == "Interrupted":
        print(f"\n{message}", file=sys.stderr)
    else:
        say_error(message)
    if wants_json:
        with contextlib.suppress(OSError, StorageError):  # it may be what failed
            put(json_line({"error": {"type": kind, "message": message}}), sys.stdout)
