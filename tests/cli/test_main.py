from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from polyrank._version import __version__
from polyrank.cli.command import Command, command
from polyrank.cli.main import commands, run
from polyrank.cli.options import DeviceOptions, option, positional
from polyrank.cli.output import Output
from polyrank.errors import DataError, StorageError

FAILURES: dict[str, BaseException] = {
    "data": DataError("It is broken.", "Mend it.", path="f.jsonl", line=3),
    "disk": StorageError("The disk is full.", "Free some."),
    "bug": ValueError("two\nlines"),
    "memory": RuntimeError("CPUAllocator: can't allocate memory: 9 bytes"),
    "interrupt": KeyboardInterrupt(),
    "pipe": BrokenPipeError(),
}


@dataclass(frozen=True, kw_only=True)
class DummyOptions(DeviceOptions):
    name: str = positional("NAME", help="A name.")
    count: int = option(1, short="-c", help="A count.")
    loud: bool = option(False, help="Whether to shout.")
    fail: str | None = option(None, help="How to fail.")


@command("dummy", DummyOptions, interrupted=lambda options: f"Kept for {options.name}.")
def dummy(options: DummyOptions, output: Output) -> None:
    """Greet [someone]."""
    output.say(f"Hello [bold]{options.name}[/bold] {options.count}")
    if options.fail:
        raise FAILURES[options.fail]
    output.result({"name": options.name, "count": options.count, "loud": options.loud})


def call(*arguments: str) -> int:
    commands: tuple[Command[DummyOptions], ...] = (dummy,)
    return run(arguments, commands)


def test_people_read_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("dummy", "Ada", "-c", "2", "--loud") == 0
    assert capsys.readouterr() == ("Hello [bold]Ada[/bold] 2\n", "")


def test_programs_read_one_object(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("dummy", "Ada", "--loud", "--json") == 0
    out, err = capsys.readouterr()
    assert json.loads(out) == {"name": "Ada", "count": 1, "loud": True}
    assert err == "Hello [bold]Ada[/bold] 1\n"


def test_yaml_and_flags(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    config = tmp_path / "settings.yaml"
    config.write_text("name: Grace\ncount: 5\nloud: true\n", encoding="utf-8")
    assert call("dummy", "--config", str(config), "--no-loud", "--json") == 0
    assert json.loads(capsys.readouterr().out) == {"name": "Grace", "count": 5, "loud": False}
    assert call("dummy", "--config", str(tmp_path / "none.yaml")) == 2
    assert "none.yaml cannot be read" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("fail", "code", "message"),
    [
        ("data", 2, "Error: f.jsonl, line 3: It is broken. Mend it.\n"),
        ("disk", 1, "Error: The disk is full. Free some.\n"),
        ("bug", 1, "Error: Internal error, ValueError: two lines. Run again with POLYRANK_TR"),
        (
            "memory",
            1,
            "Error: There is not enough memory: CPUAllocator: can't allocate memory: 9 bytes."
            " Use a smaller --batch-size where the command has one, or a machine with more.\n",
        ),
        ("interrupt", 130, "\nInterrupted. Kept for Ada.\n"),
    ],
)
def test_errors_are_one_message_and_a_code(
    capsys: pytest.CaptureFixture[str], fail: str, code: int, message: str
) -> None:
    assert call("dummy", "Ada", "--fail", fail) == code
    err = capsys.readouterr().err
    assert err.startswith(message)
    assert "Traceback" not in err
    assert call("dummy", "Ada", "--fail", fail, "--json") == code
    out = json.loads(capsys.readouterr().out)
    assert out["error"]["message"] == message.strip().removeprefix("Error: ") or fail == "bug"


def test_the_traceback_comes_when_asked_for(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POLYRANK_TRACEBACK", "1")
    assert call("dummy", "Ada", "--fail", "bug") == 1
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["dumy"], "There is no command 'dumy'. Did you mean 'dummy'?"),
        (["dummy", "A", "--cuont", "1"], "no option '--cuont'. Did you mean '--count'?"),
        (["dummy", "A", "--count", "x"], "--count must be a whole number, got 'x'"),
        (["dummy", "A", "--count"], "requires an argument"),
        (["dummy", "A", "B"], "unexpected extra argument"),
        (["dummy"], "NAME is required and missing"),
        (["--nonsense"], "no option '--nonsense'"),
    ],
)
def test_bad_usage_is_named_and_exits_with_2(
    capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert call(*arguments) == 2
    out, err = capsys.readouterr()
    assert message in err
    assert out == ""
    assert err.count("\n") == 1
    assert call(*arguments, "--json") == 2
    if arguments != ["dummy", "A", "--count"]:  # there, --json is the value of --count
        assert message in json.loads(capsys.readouterr().out)["error"]["message"]


def test_help_and_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("--help") == 0
    assert "dummy  Greet [someone]." in capsys.readouterr().out
    assert call("dummy", "--help") == 0
    assert "--loud " in capsys.readouterr().out
    assert call("--version") == 0
    assert capsys.readouterr().out == f"polyrank {__version__}\n"
    assert call() == 2
    assert "Usage" in capsys.readouterr().out


def in_a_process(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, check=False, timeout=120
    )


@pytest.mark.parametrize("arguments", [["--help"], ["search", "--help"], ["--version"]])
def test_help_loads_nothing_heavy(arguments: list[str]) -> None:
    code = (
        "import sys\n"
        "from polyrank.cli.main import commands, run\n"
        f"assert run({arguments!r}, commands()) == 0\n"
        "heavy = {'torch', 'transformers', 'numpy', 'tokenizers', 'yaml'} & set(sys.modules)\n"
        "print(sorted(heavy), file=sys.stderr)\n"
    )
    done = in_a_process("-c", code)
    assert done.returncode == 0, done.stderr
    assert done.stderr == "[]\n"


def test_python_m_polyrank() -> None:
    done = in_a_process("-m", "polyrank", "serach")
    assert done.returncode == 2
    assert done.stderr == "Error: There is no command 'serach'. Did you mean 'search'?\n"


@pytest.mark.skipif(os.name == "nt", reason="no SIGPIPE")
def test_a_closed_pipe_is_quiet() -> None:
    command = f"{sys.executable} -m polyrank search --help | true; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, check=True, timeout=120
    )
    assert done.stderr == ""
    assert int(done.stdout) in (0, 141)


@pytest.mark.skipif(os.name == "nt", reason="no sh")
def test_a_closed_standard_error_leaves_standard_output_alone() -> None:
    command = f"{sys.executable} -m polyrank evaluate nothing --data nothing --json 2>&-"
    done = subprocess.run(["sh", "-c", command], capture_output=True, check=False, timeout=120)
    assert done.returncode == 2
    assert json.loads(done.stdout)["error"]["type"] == "DataError"


def test_a_group_without_a_subcommand_shows_its_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["index"], commands()) == 2
    alone = capsys.readouterr().out
    assert run(["index", "--help"], commands()) == 0
    assert capsys.readouterr().out == alone
    for name in ("build", "add", "delete", "compact", "verify"):
        assert f"\n  {name} " in alone


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["search", "i", "--rerank", "c"], "no option '--rerank'. Did you mean '--reranker'?"),
        (
            ["train", "--arch", "pol"],
            "--arch is 'pol', which is not one of its values. Did you mean",
        ),
        (["train", "--quux", "3"], "there is no option '--quux'. To see all "),
        (["train", "--config", "CONFIG"], "there is no setting 'quux'. To see all "),
        (["index", "verfy", "i"], "no subcommand 'verfy'. Did you mean 'verify'?"),
        (["info"], "PATH is required and missing. Give it, or write `path: …` into the file of"),
    ],
)
def test_what_is_mistyped_is_told_in_two_sentences(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, arguments: list[str], message: str
) -> None:
    config = tmp_path / "config.yaml"
    config.write_text("quux: 1\n", encoding="utf-8")
    typed = [str(config) if word == "CONFIG" else word for word in arguments]
    assert run(typed, commands()) == 2
    err = capsys.readouterr().err
    assert message in err
    assert len(err) < 300
    if "To see all" in message:
        assert err.endswith("run: polyrank train --help-all.\n")
