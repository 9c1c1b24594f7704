from __future__ import annotations

from pathlib import Path

import pytest
import typer

from polyrank.cli.command import Command
from polyrank.cli.main import build_app, commands, flag_names
from polyrank.cli.options import DeviceOptions
from polyrank.cli.reference import reference

PAGE = Path(__file__).parents[2] / "docs" / "cli.md"


def section_of(name: str) -> str:
    text = PAGE.read_text(encoding="utf-8")
    assert f"\n## polyrank {name}\n" in text, f"docs/cli.md has no section on {name}"
    return text.split(f"\n## polyrank {name}\n")[1].split("\n## ")[0]


@pytest.mark.parametrize("command", commands(), ids=lambda command: command.name)
def test_every_flag_has_words_in_the_help_and_in_the_docs(command: Command[object]) -> None:
    group = typer.main.get_command(build_app(commands()))
    for word in command.name.split():
        group = group.commands[word]  # type: ignore[attr-defined]
    parameters = group.params
    section = section_of(command.name)
    for parameter in parameters:
        assert len(parameter.help) > 10, f"{parameter.name} has no help"
        for name in flag_names(parameter):
            assert f"`{name}`" in section or f"`{name} " in section, f"{name} is not in docs/cli.md"
    rows = [line for line in section.splitlines() if line.startswith("| `")]
    assert len(rows) == len([p for p in parameters if p.name != "help"])


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
