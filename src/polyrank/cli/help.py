"""The pages of `--help` and `--help-all`, as text. Knows flags; knows nothing of typer.

`--help` shows the flags that people set (`help_contents`) and the first sentence of each. It fits
80 columns and 40 lines; a test looks at every command. `--help-all` shows everything.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from polyrank.cli.flags import Flag, flags_of
from polyrank.cli.help_contents import EXAMPLES, GROUPS, SECTIONS, SHOWN, TITLES

if TYPE_CHECKING:
    from polyrank.cli.command import Command

WIDTH = 80
WIDEST_NAME = 24
"""The columns of a flag beside its words; a longer one stands on a line of its own."""
OTHER = "Other"
COMMON_HELP = {
    "--config FILE.yaml": "Read settings from a YAML file; flags override them.",
    "--json": "Print one JSON object; words for people go to standard error.",
}
"""The flags of every command, besides --help and --help-all."""
DESCRIPTION = "Train, compare, search and serve bi-encoders, poly-encoders and cross-encoders."


def root_page(known: Sequence[Command[Any]]) -> str:
    """The page of `polyrank --help`: every command under what people do with it."""
    listed = {command.name: summary(command) for command in known if " " not in command.name}
    listed |= {
        group_of(command): GROUPS[group_of(command)] for command in known if " " in command.name
    }
    sections = {
        title: {name: listed.pop(name) for name in names if name in listed}
        for title, names in SECTIONS.items()
    }
    lines = ["Usage: polyrank COMMAND …", "", *wrapped(DESCRIPTION)]
    lines += blocks({**sections, OTHER: listed})
    lines += examples("")
    lines += ["", "polyrank COMMAND --help shows its flags; polyrank --version, the version."]
    return "\n".join(lines)


def group_page(name: str, known: Sequence[Command[Any]]) -> str:
    """The page of a group of commands."""
    rows = {
        f"{command.name.split()[-1]} {usage(command)}".strip(): summary(command)
        for command in known
    }
    lines = [f"Usage: polyrank {name} COMMAND …", "", *wrapped(GROUPS[name])]
    lines += blocks({"Commands": rows})
    lines += examples(name)
    lines += ["", f"polyrank {name} COMMAND --help shows its flags."]
    return "\n".join(lines)


def command_page(command: Command[Any], *, every: bool = False) -> str:
    """The page of one command: the flags that people set or, for `every`, all."""
    grouped = groups(command)
    first = grouped if every else shown(command, grouped)
    lines = [f"Usage: polyrank {command.name} {usage(command)}".rstrip() + " [FLAGS]", ""]
    paragraphs = command.help.split("\n\n")
    lines += "\n\n".join(
        "\n".join(wrapped(one)) for one in paragraphs[: None if every else 1]
    ).split("\n")
    rows = {
        title: {spelled(flag): words(flag, every=every) for flag in flags}
        for title, flags in first.items()
    }
    lines += blocks(rows | ({OTHER: COMMON_HELP} if every else {}))
    lines += examples(command.name)
    if not every:
        hidden = sum(map(len, grouped.values())) - sum(map(len, first.values()))
        more = f"shows {hidden} more options" if hidden else "says more"
        lines += ["", "Also: --config FILE.yaml, --json."]
        lines += [f"polyrank {command.name} --help-all {more}."]
    return "\n".join(lines)


def groups(command: Command[Any]) -> dict[str, list[Flag]]:
    """All flags of a command by title, those that people set first."""
    first = SHOWN.get(command.name, {})
    flags = {flag.name: flag for flag in flags_of(command.options)}
    found = {title: [flags.pop(name) for name in names] for title, names in first.items()}
    for flag in flags.values():
        found.setdefault(title_of(flag, command), []).append(flag)
    return found


def title_of(flag: Flag, command: Command[Any]) -> str:
    """The title of a flag that is not among those that people set."""
    if flag.path:
        return TITLES[flag.path[0]]
    owner = next(
        one for one in command.options.__mro__ if flag.name in vars(one).get("__annotations__", ())
    )
    return TITLES.get(owner.__name__, "Options")


def shown(command: Command[Any], grouped: Mapping[str, list[Flag]]) -> Mapping[str, list[Flag]]:
    """Of all flags of a command, those that --help shows."""
    first = SHOWN.get(command.name)
    if first is None:
        return grouped
    return {title: grouped[title][: len(names)] for title, names in first.items()}


def usage(command: Command[Any]) -> str:
    """The arguments of a command, as one types them."""
    names = []
    for flag in flags_of(command.options):
        if flag.positional:
            name = f"{flag.positional}{'…' if flag.is_list else ''}"
            names.append(name if flag.required else f"[{name}]")
    return " ".join(names)


def summary(command: Command[Any]) -> str:
    """What a command does, in a sentence."""
    return " ".join(command.help.partition("\n\n")[0].split())


def words(flag: Flag, *, every: bool) -> str:
    """The help of a flag with its default; for --help, its beginning."""
    if every:
        return flag.help + default_words(flag)
    return brief(flag) + (default_words(flag) if flag.default is not False else "")


def brief(flag: Flag) -> str:
    """The beginning of a flag's help: one sentence, or what stands before a semicolon."""
    return re.split(r"(?<=[.])\s+(?=[A-Z`-])|;\s", flag.help)[0].rstrip(".") + "."


def spelled(flag: Flag) -> str:
    """A flag with the word for its value."""
    if flag.positional:
        return flag.positional
    short = f"{flag.short}, " if flag.short else ""
    return f"{short}{flag.flag}" + ("" if flag.is_switch else f" {flag.metavar}")


def blocks(titled: Mapping[str, Mapping[str, str]]) -> list[str]:
    """Titles with names and their words in two columns, the same for all; none without rows."""
    names = [name for rows in titled.values() for name in rows]
    widest = max((len(name) for name in names if len(name) <= WIDEST_NAME), default=WIDEST_NAME)
    lines = []
    for title, rows in titled.items():
        if rows:
            lines += ["", f"{title}:"]
        for name, text in rows.items():
            lines += row(name, text, widest)
    return lines


def row(name: str, text: str, widest: int) -> Iterator[str]:
    """A name and its words, beside or below it."""
    indent = " " * (widest + 4)
    filled = wrapped(text, indent)
    if len(name) <= widest and filled:
        yield f"  {name:<{widest}}  {filled[0][len(indent) :]}"
        yield from filled[1:]
    else:
        yield from wrapped(name.replace("|", "| "), "  ", joint="| ")
        yield from filled


def wrapped(text: str, indent: str = "", joint: str = "") -> list[str]:
    """A text in lines of the page's width; at a `joint`, the blank after it is not shown."""
    lines = textwrap.wrap(
        " ".join(text.split()),
        WIDTH,
        initial_indent=indent,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [line.replace(joint, joint.strip()) for line in lines] if joint else lines


def examples(name: str) -> list[str]:
    """The examples of a page."""
    found = EXAMPLES.get(name, ())
    return (
        ["", "Examples:" if len(found) > 1 else "Example:", *(f"  {one}" for one in found)]
        if found
        else []
    )


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


def group_of(command: Command[Any]) -> str:
    """The first word of a command's name."""
    return command.name.split()[0]
