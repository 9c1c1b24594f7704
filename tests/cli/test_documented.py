from __future__ import annotations

from pathlib import Path

import pytest

from polyrank.cli.command import Command, parser_of
from polyrank.cli.flags import flags_of
from polyrank.cli.main import commands, flag_names
from polyrank.cli.options import DeviceOptions
from polyrank.cli.reference import reference

PAGE = Path(__file__).parents[2] / "docs" / "cli.md"


def section_of(name: str) -> str:
    text = PAGE.read_text(encoding="utf-8")
    assert f"\n## polyrank {name}\n" in text, f"docs/cli.md has no section on {name}"
    return text.split(f"\n## polyrank {name}\n")[1].split("\n## ")[0]


@pytest.mark.parametrize("command", commands(), ids=lambda command: command.name)
def test_every_flag_has_words_in_the_help_and_in_the_docs(command: Command[object]) -> None:
    parameters = parser_of(command).params
    section = section_of(command.name)
    for flag in flags_of(command.options):
        assert len(flag.help) > 10, f"{flag.name} has no help"
    helps = {"--help", "--help-all"}
    for parameter in parameters:
        for name in set(flag_names(parameter)) - helps:
            assert f"`{name}`" in section or f"`{name} " in section, f"{name} is not in docs/cli.md"
    rows = [line for line in section.splitlines() if line.startswith("| `")]
    assert len(rows) == len(parameters) - len(helps)


def test_the_page_is_what_the_commands_say() -> None:
    written = PAGE.read_text(encoding="utf-8")
    remedy = "run: python -m polyrank.cli.reference > docs/cli.md"
    assert written == reference(commands()), remedy


def test_every_command_has_the_common_flags() -> None:
    for command in commands():
        section = section_of(command.name)
        common = ["--config", "--json"]
        common += ["--device"] if issubclass(command.options, DeviceOptions) else []
        for flag in common:
            assert f"`{flag}" in section
