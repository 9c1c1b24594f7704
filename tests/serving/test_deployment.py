"""The container file, the compose file and the systemd unit agree with the server and each other.

No engine runs here: the commands they run are parsed and called as they are written.
"""

import configparser
import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from polyrank.cli.main import commands, parse
from polyrank.serving.config import ServerConfig

DEPLOY = Path(__file__).parents[2] / "deploy"
UNIT = DEPLOY / "polyrank.service"


@pytest.fixture(scope="module")
def dockerfile():
    """The last value of each instruction of the Dockerfile."""
    text = (DEPLOY / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")
    lines = (line for line in text.splitlines() if line and not line.startswith("#"))
    return {name: value.strip() for name, _, value in (line.partition(" ") for line in lines)}


@pytest.fixture(scope="module")
def compose():
    return yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def unit():
    """The sections of the systemd unit; of a key that is repeated, the last."""
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str
    parser.read(UNIT, encoding="utf-8")
    return parser


def options_of(words):
    """The options that a `polyrank` command line gives to its command."""
    call = parse(words, commands())
    assert call.command.name == "serve"
    return call


def healthcheck_of(dockerfile):
    """The command of HEALTHCHECK, as a list of words."""
    return json.loads(dockerfile["HEALTHCHECK"].partition("CMD ")[2])


@pytest.fixture
def commands_that_serve(dockerfile, compose, unit):
    return {
        "Dockerfile": json.loads(dockerfile["CMD"]),
        "compose.yaml": compose["services"]["polyrank"]["command"],
        "polyrank.service": shlex.split(unit["Service"]["ExecStart"])[1:],
    }


def test_every_command_parses(commands_that_serve):
    for words in commands_that_serve.values():
        options_of(words)


def test_a_port_that_is_open_to_others_needs_keys(commands_that_serve):
    for name, words in commands_that_serve.items():
        line = " ".join(words)
        assert ("0.0.0.0" in line) == ("--api-key-file" in line), name
    assert ServerConfig().host == "127.0.0.1"


def test_the_port_is_one(dockerfile, compose):
    port = str(ServerConfig().port)
    assert dockerfile["EXPOSE"] == port
    assert f":{port}/ready" in healthcheck_of(dockerfile)[-1]
    assert compose["services"]["polyrank"]["ports"] == [f"127.0.0.1:{port}:{port}"]


def test_the_secret_is_where_the_server_reads_it(compose, commands_that_serve):
    (secret,) = compose["services"]["polyrank"]["secrets"]
    assert secret in compose["secrets"]
    for name in ("Dockerfile", "compose.yaml"):
        assert f"/run/secrets/{secret}" in " ".join(commands_that_serve[name])


def test_volumes_networks_and_files_are_declared(compose):
    root = DEPLOY.parent
    build = compose["services"]["polyrank"]["build"]
    assert (DEPLOY / build["context"]).resolve() == root
    assert (root / build["dockerfile"]).is_file()
    for name, service in compose["services"].items():
        assert set(service["networks"]) <= set(compose["networks"]), name
        for volume in service.get("volumes", []):
            source = volume.rpartition(":")[0]
            assert "/" in source or source in compose["volumes"], volume
        for needed in service.get("depends_on", {}):
            has_check = "healthcheck" in compose["services"][needed]
            assert has_check, f"{name} waits for the health of {needed}, which has no check"


def test_nothing_but_the_server_has_a_port_or_a_way_out(compose):
    for name, service in compose["services"].items():
        if name != "polyrank":
            assert "ports" not in service
            assert service["networks"] == ["store"]
    assert compose["networks"]["store"]["internal"]


def test_stopping_waits_for_what_was_accepted(compose, unit):
    config = ServerConfig()
    needed = config.timeout + config.drain_seconds
    assert int(unit["Service"]["TimeoutStopSec"]) > needed
    assert int(compose["services"]["polyrank"]["stop_grace_period"].removesuffix("s")) > needed
    assert unit["Service"]["KillSignal"] == "SIGTERM"


def test_the_image_copies_what_it_installs(dockerfile):
    text = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
    ignored = (DEPLOY / "Dockerfile.dockerignore").read_text(encoding="utf-8").splitlines()
    kept = {line[1:] for line in ignored if line.startswith("!")}
    copied = {
        name
        for words in re.findall(r"^COPY (?!--from)(.+)$", text, flags=re.MULTILINE)
        for name in words.split()[:-1]
    }
    assert copied == kept
    assert all((DEPLOY.parent / name).exists() for name in copied)
    assert dockerfile["USER"].partition(":")[0].isdecimal()
    assert dockerfile["USER"] != "0:0"


def test_the_image_installs_extras_that_exist():
    tomllib = pytest.importorskip("tomllib")  # in Python since 3.11
    project = tomllib.loads((DEPLOY.parent / "pyproject.toml").read_text(encoding="utf-8"))
    text = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
    (extras,) = re.findall(r"^ARG EXTRAS=(.+)$", text, flags=re.MULTILINE)
    assert "serve" in extras.split(",")
    assert set(extras.split(",")) <= set(project["project"]["optional-dependencies"])


def test_the_health_check_tells_ready_from_gone(dockerfile, server):
    python, *words = healthcheck_of(dockerfile)
    assert python == "python"

    def check(port):
        command = [sys.executable, *(w.replace(":8000/", f":{port}/") for w in words)]
        return subprocess.run(command, capture_output=True, check=False).returncode

    assert check(server.port) == 0
    assert check(1) != 0


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd is not installed")
def test_systemd_accepts_the_unit(tmp_path):
    unit = tmp_path / UNIT.name
    text = UNIT.read_text(encoding="utf-8")
    unit.write_text(text.replace("/opt/polyrank/bin/polyrank", sys.executable), encoding="utf-8")
    done = subprocess.run(
        ["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_the_unit_runs_without_rights(unit):
    assert unit["Service"]["DynamicUser"] == "yes"
    assert unit["Service"]["NoNewPrivileges"] == "yes"
    assert unit["Service"]["ProtectSystem"] == "strict"
    assert "MemoryDenyWriteExecute" not in unit["Service"], "oneDNN compiles its kernels"
    assert unit["Service"]["RestartPreventExitStatus"] == "2"
