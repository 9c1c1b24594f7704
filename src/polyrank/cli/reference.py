"""`docs/cli.md`, written from the commands themselves.

    python -m polyrank.cli.reference > docs/cli.md

A test compares the file with what this gives, so that no flag is without its words there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from polyrank.cli.command import COMMON_HELP, Command, default_words
from polyrank.cli.flags import Flag, flags_of

PREAMBLE = """\
# The command line

Written by `python -m polyrank.cli.reference > docs/cli.md`; a test compares the two.

Every command has `--help`. What a flag gives is also a setting of `--config FILE.yaml`, by the same
name without the leading dashes (`top-k: 5` or `top_k: 5`; a list for what may be given several
times; arguments by the names in the tables); a flag overrides the file, the file overrides the
default. A setting that a command does not have is an error that names the nearest. `none` is no
value, where none is allowed.

With `--json`, standard output holds exactly one JSON object and people's words go to standard
error; an error is `{"error": {"type": "…", "message": "…"}}` there. Progress shows only on a
terminal.

| exit code | meaning |
|---:|---|
| 0 | done |
| 1 | a failure: a full disk, a missing package, an internal error |
| 2 | bad usage or bad input: an option, a file, a folder |
| 130 | interrupted with Ctrl-C; the message says what is kept |
| 141 | the reader of standard output went away |

An error is one message and no traceback; `POLYRANK_TRACEBACK=1` adds the traceback. The messages,
advice and bars of the libraries below are off; `TRANSFORMERS_VERBOSITY=info`,
`HF_HUB_DISABLE_PROGRESS_BARS=0` and `python -W default -m polyrank` bring them back.
`polyrank --version` prints the version.
"""


def reference(commands: Sequence[Command[Any]]) -> str:
    """The page: the preamble, then a section a command."""
    return PREAMBLE + "".join("\n" + "\n".join(section(command)) + "\n" for command in commands)


def section(command: Command[Any]) -> Iterator[str]:
    """The lines of one command's section."""
    flags = flags_of(command.options)
    positionals = [flag for flag in flags if flag.positional]
    usage = "".join(
        f" {flag.positional}{'…' if flag.is_list else ''}"
        if flag.required
        else f" [{flag.positional}{'…' if flag.is_list else ''}]"
        for flag in positionals
    )
    yield f"## polyrank {command.name}"
    yield ""
    yield f"`polyrank {command.name}{usage} [FLAGS]`"
    yield ""
    yield command.help
    yield ""
    yield "| flag | what it is |"
    yield "|---|---|"
    for flag in flags:
        yield f"| {cell(spelled(flag))} | {cell(flag.help + default_words(flag))} |"
    for name, words in COMMON_HELP.items():
        yield f"| `{name}` | {cell(words)} |"


def spelled(flag: Flag) -> str:
    """All spellings of a flag, with the word for its value."""
    if flag.positional:
        return f"`{flag.positional}` (`{flag.name}`)"
    if flag.is_switch:
        return f"`{flag.flag}`, `--no-{flag.flag[2:]}`"
    short = f"`{flag.short}`, " if flag.short else ""
    return f"{short}`{flag.flag} {flag.metavar}`"


def cell(text: str) -> str:
    """A text inside a markdown table."""
    return text.replace("|", "\\|")


def main() -> None:
    """Print the page."""
    from polyrank.cli.main import commands

    print(reference(commands()), end="")


if __name__ == "__main__":
    main()
