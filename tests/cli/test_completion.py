"""What TAB offers, and the scripts in the shells that are installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from polyrank.cli.completion import BASH, FISH, SCRIPTS, ZSH, completed
from polyrank.cli.main import commands, run


def offered(*words: str) -> list[str]:
    return [line.partition("\t")[0] for line in completed(words, commands())]


def test_commands_and_subcommands() -> None:
    names = {command.name.split()[0] for command in commands()}
    assert set(offered("")) == names
    assert offered("sea") == ["search"]
    assert offered("index", "") == ["build", "add", "delete", "compact", "verify", "info"]
    assert offered("index", "c") == ["compact"]
    assert offered("nothing", "") == []
    assert "--version" in offered("--")


def test_flags() -> None:
    found = offered("search", "my-index", "--")
    assert {"--reranker", "--top-k", "--exact", "--no-exact", "--json", "--help-all"} <= set(found)
    assert offered("index", "build", "m", "--rec") == ["--recall"]
    assert "--top-k" not in offered("search", "--top-k", "3", "--")
    assert "-k" not in offered("search", "--top-k", "3", "-")
    assert "--turn" in offered("search", "--turn", "hello", "--")  # may be repeated


def test_choices_of_values() -> None:
    assert offered("train", "--arch", "") == ["bi", "poly", "cross", "all"]
    assert offered("train", "--arch", "=", "p") == ["poly"]
    assert offered("evaluate", "m", "--num-candidates", "") == ["all"]
    assert offered("distil", "--pairs", "given,b") == ["given,bm25"]
    assert offered("index", "build", "m", "--backend", "i") == ["ivf", "ivfpq"]
    assert offered("completion", "") == list(SCRIPTS)


@pytest.mark.parametrize(
    "words", [["info", ""], ["train", "--train", ""], ["index", "build", ""], ["search", "i", ""]]
)
def test_where_a_path_stands_the_shell_offers_files(words: list[str]) -> None:
    assert offered(*words) == []


def test_each_line_has_words(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--complete", "search", "--rer"], commands()) == 0
    line = capsys.readouterr().out
    assert line.startswith("--reranker\t")
    assert line.count("\n") == 1
    assert run(["completion", "bash"], commands()) == 0
    assert capsys.readouterr().out == BASH
    assert run(["completion", "csh"], commands()) == 2
    assert "SHELL is 'csh'" in capsys.readouterr().err


def test_torch_is_not_imported() -> None:
    code = (
        "import sys\n"
        "from polyrank.cli.main import commands, run\n"
        "run(['--complete', 'train', '--'], commands())\n"
        "print(sorted({'torch', 'numpy', 'yaml', 'rich'} & set(sys.modules)), file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == "[]\n"


@pytest.fixture
def shell(tmp_path: Path):  # type: ignore[no-untyped-def]
    """Runs a script in a shell that finds `polyrank`."""
    program = tmp_path / "polyrank"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m polyrank "$@"\n')
    program.chmod(0o755)
    (tmp_path / "examples.jsonl").touch()
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"

    def call(*arguments: str) -> list[str]:
        if shutil.which(arguments[0]) is None:
            pytest.skip(f"no {arguments[0]} here")
        done = subprocess.run(
            arguments,
            capture_output=True,
            text=True,
            check=True,
            timeout=120,
            cwd=tmp_path,
            env=os.environ | {"PATH": path, "HOME": str(tmp_path)},
        )
        return done.stdout.splitlines()

    return call


def test_bash(shell) -> None:  # type: ignore[no-untyped-def]
    ask = (
        'COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _polyrank polyrank; '
        'printf "%s\\n" "${COMPREPLY[@]}"'
    )
    for words, expected in (
        (["polyrank", "inf"], ["info"]),
        (["polyrank", "index", "v"], ["verify"]),
        (["polyrank", "train", "--arch", "c"], ["cross"]),
        (["polyrank", "train", "--train", ""], [""]),
    ):
        assert shell("bash", "-c", BASH + ask, "bash", *words) == expected
    assert shell("bash", "-c", f"{BASH}complete -p polyrank")[0].split()[-1] == "polyrank"


def test_fish(shell) -> None:  # type: ignore[no-untyped-def]
    def found(line: str) -> list[str]:
        lines = shell("fish", "-c", f'{FISH}\ncomplete -C "{line}"')
        return [each.partition("\t")[0] for each in lines]

    assert found("polyrank inf") == ["info"]
    assert found("polyrank index v") == ["verify"]
    assert found("polyrank train --arch c") == ["cross"]
    assert found("polyrank train --train ex") == ["examples.jsonl"]


def test_zsh(shell) -> None:  # type: ignore[no-untyped-def]
    """The words that `_describe` gets."""
    ask = (
        'words=("$@"); CURRENT=$#; _describe() { print -l -- $found; }; '
        "_files() { print files; }; _polyrank"
    )
    script = "compdef() { :; }\n" + ZSH + ask
    assert shell("zsh", "-fc", script, "zsh", "polyrank", "index", "v") == [
        "verify:Compare every file of an index with its checksum."
    ]
    assert shell("zsh", "-fc", script, "zsh", "polyrank", "train", "--train", "") == ["files"]
