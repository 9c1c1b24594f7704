"""What --help and --help-all show."""

from __future__ import annotations

import shlex

import pytest

from polyrank.cli.flags import flags_of
from polyrank.cli.help import command_page, groups, shown
from polyrank.cli.help_contents import EXAMPLES, GROUPS, SECTIONS, SHOWN
from polyrank.cli.main import commands, parse, run

PAGES = [[], *([name] for name in GROUPS), *(command.name.split() for command in commands())]
COMMANDS = {command.name: command for command in commands()}


@pytest.mark.parametrize("words", PAGES, ids=" ".join)
def test_help_fits_a_small_screen(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*words, "--help"], commands()) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 80
    assert lines[0].startswith(" ".join(["Usage: polyrank", *words]))


@pytest.mark.parametrize("name", COMMANDS)
def test_help_shows_what_people_set_and_help_all_everything(name: str) -> None:
    command = COMMANDS[name]
    first, every = command_page(command), command_page(command, every=True)
    grouped = groups(command)
    flags = flags_of(command.options)
    assert sorted(flag.name for each in grouped.values() for flag in each) == sorted(
        flag.name for flag in flags
    )
    said = {flag.name for each in shown(command, grouped).values() for flag in each}
    assert len(said) <= 15
    for flag in flags:
        word = f" {flag.shown}"
        assert word in every
        assert (word in first.split("\nExample")[0]) or flag.name not in said
    hidden = len(flags) - len(said)
    if hidden:
        assert first.endswith(f"polyrank {name} --help-all shows {hidden} more options.")


def test_every_required_flag_is_shown() -> None:
    for command in commands():
        said = {flag.name for flags in shown(command, groups(command)).values() for flag in flags}
        assert {flag.name for flag in flags_of(command.options) if flag.required} <= said


def test_every_command_has_a_section_and_examples_that_parse() -> None:
    listed = [name for names in SECTIONS.values() for name in names]
    assert sorted(listed) == sorted({name.split()[0] for name in COMMANDS})
    assert set(SHOWN) <= set(COMMANDS)
    for name in COMMANDS:
        assert EXAMPLES[name]
    for examples in EXAMPLES.values():
        for line in "\n".join(examples).replace("\\\n", "").splitlines():
            typed = line.removeprefix("source <(").partition(")")[0]
            words = shlex.split(typed.partition(" < ")[0].partition(" > ")[0])
            assert words[0] == "polyrank"
            call = parse(words[1:], commands())
            assert not isinstance(call, int) or words[1:] == ["--help"]


def test_words_before_a_flag_are_looked_at(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["index", "--version"], commands()) == 2
    assert "polyrank index: there is no option '--version'" in capsys.readouterr().err
    assert run(["--verion"], commands()) == 2
    assert "Did you mean '--version'?" in capsys.readouterr().err
