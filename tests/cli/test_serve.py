"""`polyrank serve`: what it says before it serves, and what it refuses."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from polyrank.cli.main import commands, run
from polyrank.cli.options import build
from polyrank.cli.serve import ServeOptions, lines
from polyrank.serving import server

FACTS = {
    "url": "http://127.0.0.1:8000",
    "models": [
        {"name": "faq", "architecture": "bi", "device": "cpu", "dtype": "bfloat16"},
        {"name": "my-index", "architecture": "poly", "device": "cuda:0", "dtype": "float32"},
    ],
    "index": {"path": "/data/my-index", "model": "my-index", "num_candidates": 12345},
    "reranker": "faq",
    "needs_key": True,
    "workers": 2,
    "pid": 1,
}


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert run(["serve", "--json", *arguments], commands()) == 2
    error: dict[str, str] = json.loads(capsys.readouterr().out)["error"]
    assert error["message"].count(". ") >= 1
    return error["message"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "There is nothing to serve. Give a model or an index. For example: polyrank serve"),
        (["--model", "a/one", "--model", "b/one"], "Two models are called 'one': a/one and b/one."),
        (["--model", "x=a", "--reranker", "x=b"], "Two models are called 'x': a and b."),
        (["--model", "=a"], "'' cannot be the name of a model: it is blank"),
        (["--model", " =a"], "' ' cannot be the name of a model: it is blank"),
        (["--model", "a/b=c"], "'a/b' cannot be the name of a model: it has a slash"),
        (["--model", "a\tb=c"], "'a\\tb' cannot be the name of a model: it has a slash or"),
        (["--model", "a="], "'a=' names no folder."),
        (["--model", "a", "--port", "70000"], "--port must be from 0 to 65535, got 70000."),
        (["--model", "a", "--port", "http"], "--port"),
        (["--model", "a", "--host", "no.such.host.invalid"], "'no.such.host.invalid' is not known"),
        (["--model", "a", "--host", "192.0.2.1"], "192.0.2.1 is not an address of this machine."),
        (["--model", "a", "--workers", "0"], "--workers must be at least 1, got 0."),
        (["--model", "a", "--timeout", "0"], "--timeout must be above 0, got 0.0."),
        (["--model", "a", "--drain-seconds", "-1"], "--drain-seconds must be 0 or more, got -1.0."),
        (["--model", "a", "--max-body-mb", "0"], "--max-body-mb must be above 0, got 0.0."),
        (["--model", "a", "--log-format", "xml"], "'xml'"),
        (["--model", "a", "--api-key", "two words"], "A key of --api-key has a space"),
        (["--model", "a", "--api-key-file", "nowhere"], "The file of keys nowhere cannot be read"),
    ],
)
def test_what_cannot_be_served_is_refused_before_anything_is_loaded(
    capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert message in refused(capsys, *arguments)
    assert "two words" not in capsys.readouterr().err


def test_a_folder_that_is_there_keeps_its_equals_sign(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from polyrank.serving.config import PipelineConfig
    from polyrank.serving.naming import sources

    monkeypatch.chdir(tmp_path)
    (tmp_path / "lr=1e-5").mkdir()
    assert sources(PipelineConfig(models=("lr=1e-5", "name=other", "c"))) == {
        "lr=1e-5": Path("lr=1e-5"),
        "name": Path("other"),
        "c": Path("c"),
    }


def test_flags_and_yaml_give_the_settings(tmp_path: Path) -> None:
    (tmp_path / "serve.yaml").write_text(
        "model: [a, b=c]\nindex: i\nport: 1234\napi_key: ['x,y']\nread_only: true\n", "utf-8"
    )
    options = build(
        ServeOptions, {"workers": "3", "port": "0"}, tmp_path / "serve.yaml", "polyrank serve"
    )
    assert options.model == ("a", "b=c")
    settings = options.server
    assert (settings.port, settings.workers, settings.read_only) == (0, 3, True)
    assert settings.api_key == ("x,y",)


def test_the_words_say_what_is_served_where_and_to_whom() -> None:
    assert lines(FACTS) == [
        "Serving by 2 processes on http://127.0.0.1:8000:",
        "  faq       bi-encoder, cpu, bfloat16",
        "  my-index  poly-encoder, cuda:0, float32",
        "  /search   12,345 candidates of /data/my-index, by my-index, reranked by faq",
        "Requests need a key.",
        "The page is at http://127.0.0.1:8000/, all calls are at http://127.0.0.1:8000/docs. "
        "Ctrl-C stops it.",
    ]


def test_facts_are_words_or_one_object(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "serve", lambda *_, tell: tell(FACTS))
    assert run(["serve", "--model", "a"], commands()) == 0
    assert capsys.readouterr().out == "\n".join(lines(FACTS)) + "\n"
    assert run(["serve", "--model", "a", "--json"], commands()) == 0
    assert json.loads(capsys.readouterr().out) == FACTS


def test_a_missing_package_names_the_extra(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for package in ("fastapi", "uvicorn", "prometheus_client"):
        with monkeypatch.context() as without:
            without.setitem(sys.modules, package, None)
            assert run(["serve", "--model", "a"], commands()) == 1
            assert 'pip install "polyrank[serve]"' in capsys.readouterr().err


def test_its_help_loads_neither_torch_nor_a_web_framework() -> None:
    code = (
        "import sys\nfrom polyrank.cli.main import commands, run\nrun(['serve', '--help'], "
        "commands())\nprint({'torch', 'fastapi', 'uvicorn', 'numpy'} & set(sys.modules))"
    )
    done: Any = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert "Usage: polyrank serve" in done.stdout
    assert done.stdout.splitlines()[-1] == "set()"
