"""`docs/cli.md`, written from the commands themselves.

    python -m polyrank.cli.reference > docs/cli.md

A test compares the file with this output, so that every flag is documented.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from polyrank.cli.command import Command
from polyrank.cli.flags import Flag
from polyrank.cli.help import COMMON_HELP, OTHER, groups, shown, usage, words

PREAMBLE = """\
# The command line

Written by `python -m polyrank.cli.reference > docs/cli.md`; a test compares the two.

Every command has `--help`, which shows the flags that people set, and `--help-all`, which shows
all. Every flag is also a setting in the file of `--config FILE.yaml`, with its name without the
leading dashes (`top-k: 5` or `top_k: 5`). A flag that may be repeated is a list there; arguments
have the names in the tables. Flags override the file, and the file overrides the defaults. An
unknown setting is an error that names the nearest known one. `none` stands for no value, where that
is allowed.

With `--json`, standard output contains exactly one JSON object, and messages for people go to
standard error. An error is the object `{"error": {"type": "…", "message": "…"}}`.

Work that takes more than two seconds shows its progress on standard error: how much is done, the
rate, the time so far and the time left, the loss or dev figure, and the peak memory (of the
process; on a GPU, what torch has taken there). On a terminal this is one live line, with a second
one for nested work, and a narrow terminal gets only what matters most. Elsewhere, such as in a log,
there are plain lines: the first after five seconds, then ever fewer, at least every ten minutes.
Work that resumes starts from what was done before, and its rate counts only the new. `NO_COLOR=1`
removes the colours, `TERM=dumb` the live line.

| exit code | meaning |
|---:|---|
| 0 | done |
| 1 | a failure: a full disk, a missing package, an internal error |
| 2 | bad usage or bad input: an option, a file, a folder |
| 130 | interrupted with Ctrl-C; the message says what is kept |
| 141 | the reader of standard output has closed it |

An error is one message without a traceback; `POLYRANK_TRACEBACK=1` adds it. Messages, advice and
progress bars of other libraries are hidden; `TRANSFORMERS_VERBOSITY=info`,
`HF_HUB_DISABLE_PROGRESS_BARS=0` and `python -W default -m polyrank` bring them back.
`polyrank --version` prints the version.

A link inside a folder of a model, an index, a corpus or an unfinished run may not lead out of that
folder, except into the hub's cache. If your tools store large files as links, set
`POLYRANK_FOLLOW_LINKS=1`.
"""


def reference(commands: Sequence[Command[Any]]) -> str:
    """The page: the preamble, then one section per command."""
    return PREAMBLE + "".join("\n" + "\n".join(section(command)) + "\n" for command in commands)


def section(command: Command[Any]) -> Iterator[str]:
    """The lines of one command's section."""
    grouped = groups(command)
    first = shown(command, grouped)
    yield f"## polyrank {command.name}"
    yield ""
    yield f"`polyrank {' '.join(filter(None, (command.name, usage(command))))} [FLAGS]`"
    yield ""
    yield command.help
    yield ""
    yield "| flag | what it is |"
    yield "|---|---|"
    for title, flags in grouped.items():
        yield f"| **{title}** | |"
        for flag in flags:
            yield f"| {cell(spelled(flag))} | {cell(words(flag, every=True))} |"
    yield f"| **{OTHER}** | |"
    for name, text in COMMON_HELP.items():
        yield f"| `{name}` | {cell(text)} |"
    hidden = sum(map(len, grouped.values())) - sum(map(len, first.values()))
    if hidden:
        names = ", ".join(f"`{flag.shown}`" for flags in first.values() for flag in flags)
        yield ""
        yield f"`--help` shows {names}; `--help-all` shows all."


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
