"""`polyrank completion`, and what TAB offers: commands, flags and choices; the shell offers paths.

The shell's script calls `polyrank --complete WORD…` with the words up to the cursor, and gets one
line for each that fits: the word, a tab, what it is. Without any, the shell offers files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args, get_origin

from polyrank.cli.command import Command, command
from polyrank.cli.flags import Flag, Options, base_type, flags_of
from polyrank.cli.help import COMMON_HELP, brief, group_of, summary
from polyrank.cli.help_contents import GROUPS
from polyrank.cli.options import positional
from polyrank.cli.output import Output

COMPLETE = "--complete"
HELP = {"--help": "Show what people set.", "--help-all": "Show everything."}
BASH = """\
_polyrank() {
    local line
    COMPREPLY=()
    while IFS= read -r line; do
        COMPREPLY+=("${line%%$'\\t'*}")
    done < <("$1" --complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
}
complete -o bashdefault -o default -F _polyrank polyrank
"""
ZSH = """\
#compdef polyrank
_polyrank() {
    local -a found
    local line
    while IFS= read -r line; do
        found+=("${${line%%$'\\t'*}//:/\\\\:}:${line#*$'\\t'}")
    done < <("${words[1]}" --complete "${(@)words[2,CURRENT]}" 2>/dev/null)
    if (( $#found )); then
        _describe polyrank found
    else
        _files
    fi
}
compdef _polyrank polyrank
"""
FISH = """\
function __polyrank_complete
    set -l words (commandline -opc)
    set -e words[1]
    set -l current (commandline -ct)
    set -l found (polyrank --complete $words "$current" 2>/dev/null)
    if test (count $found) -gt 0
        printf '%s\\n' $found
    else
        __fish_complete_path "$current"
    end
end
complete -c polyrank -f -a '(__polyrank_complete)'
"""
SCRIPTS: Mapping[str, str] = {"bash": BASH, "zsh": ZSH, "fish": FISH}


@dataclass(frozen=True, kw_only=True)
class CompletionOptions(Options):
    """Options of `polyrank completion`."""

    shell: Literal["bash", "zsh", "fish"] = positional("SHELL", help="bash, zsh or fish.")


@command("completion", CompletionOptions)
def completion(options: CompletionOptions, output: Output) -> None:
    """Print the script that completes commands in a shell.

    Load it at the start of each shell, with one of:
    bash: echo 'source <(polyrank completion bash)' >> ~/.bashrc;
    zsh: echo 'source <(polyrank completion zsh)' >> ~/.zshrc, below compinit;
    fish: polyrank completion fish > ~/.config/fish/completions/polyrank.fish.
    """
    output.say(SCRIPTS[options.shell].rstrip("\n"))
    output.result({"shell": options.shell, "script": SCRIPTS[options.shell]})


def completed(words: Sequence[str], known: Sequence[Command[Any]]) -> Iterator[str]:
    """Yield the lines for the last of the words that were typed after `polyrank`."""
    *before, current = [word for word in words if word != "="] or [""]
    for name, text in offered(before, current, known).items():
        if name.startswith(current):
            yield f"{name}\t{' '.join(text.split())}"


def offered(before: Sequence[str], current: str, known: Sequence[Command[Any]]) -> dict[str, str]:
    """What may stand at the cursor, by the words after it."""
    found, depth = list(known), 0
    while depth < len(before) and not any(one.name.split() == [*before[:depth]] for one in found):
        found = [one for one in found if one.name.split()[depth : depth + 1] == [before[depth]]]
        depth += 1
        if not found:
            return {}
    chosen = next((one for one in found if one.name.split() == [*before[:depth]]), None)
    if chosen is not None:
        return in_command(chosen, before[depth:], current)
    if current.startswith("-"):
        return HELP if depth else HELP | {"--version": "Print the version."}
    if depth:
        return {one.name.split()[depth]: summary(one) for one in found}
    return {group_of(one): GROUPS.get(group_of(one), summary(one)) for one in found}


def in_command(command: Command[Any], before: Sequence[str], current: str) -> dict[str, str]:
    """What may stand at the cursor after a command and some of its flags."""
    flags = flags_of(command.options)
    names = {name: flag for flag in flags if not flag.positional for name in spellings(flag)}
    last = names.get(before[-1]) if before else None
    if last is not None and not last.is_switch:
        start = current.rpartition(",")[0] if last.is_list and last.split else ""
        return {f"{start},{one}".lstrip(",") if start else one: "" for one in choices(last)}
    if not current.startswith("-"):
        return {one: "" for flag in flags if flag.positional for one in choices(flag)}
    once = {
        name
        for given in before
        if given in names and not names[given].is_list
        for name in spellings(names[given])
    }
    common = {name.split()[0]: text for name, text in COMMON_HELP.items()}
    offers = {name: brief(flag) for name, flag in names.items() if name not in once}
    return {**offers, **common, **HELP}


def spellings(flag: Flag) -> list[str]:
    """All that may be typed for a flag."""
    names = [flag.flag, *([flag.short] if flag.short else [])]
    return [*names, f"--no-{flag.flag[2:]}"] if flag.is_switch else names


def choices(flag: Flag) -> list[str]:
    """The words that a flag takes; not the placeholders among them, such as N in N|all."""
    expected = base_type(flag.type)
    if get_origin(expected) is Literal:
        return [str(choice) for choice in get_args(expected)]
    words = flag.metavar.removesuffix(",…").split("|")
    return [word for word in words if len(words) > 1 and word.islower()]
