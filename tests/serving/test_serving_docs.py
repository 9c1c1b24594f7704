"""docs/serving.md names every call, flag and metric of the server, and its code runs as printed."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import httpx2
import pytest
from running import running

from polyrank.cli.flags import flags_of
from polyrank.cli.serve import ServeOptions
from polyrank.retrieval.index import Index
from polyrank.serving.app import create_app
from polyrank.serving.config import ServerConfig
from polyrank.serving.pipeline import Pipeline

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "serving.md").read_text(encoding="utf-8")
KEY = "a-key"


@pytest.fixture(scope="module")
def documented_server(bi, poly, cross, tmp_path_factory):
    """What the page starts."""
    candidates = [("42", "boot the old kernel", {"lang": "en", "year": 2024})]
    named = {"my-model": bi, "my-poly": poly, "my-cross": cross}
    with Index.build(bi, candidates, tmp_path_factory.mktemp("documented") / "index") as index:
        served = Pipeline(named, index=index, reranker="my-cross")
        with running(create_app(served, ServerConfig(api_key=(KEY,)))) as server:
            yield server


def code_of(language, section):
    """The blocks of a language below a heading."""
    level = section.partition(" ")[0]
    part = TEXT.split(f"\n{section}\n")[1].split(f"\n{level} ")[0]
    return re.findall(rf"```{language}\n(.*?)```", part, flags=re.DOTALL)


def with_address(code, server):
    return code.replace("http://127.0.0.1:8000", server.url)


def is_named(word):
    """Whether the page has a word in code; what stands in braces may be called otherwise."""
    pattern = re.sub(r"\\\{\w+\\\}", r"\\{\\w+\\}", re.escape(word))
    return re.search(rf"`(?:[A-Z]+ )?{pattern}[` ]", TEXT) is not None


def test_every_path_is_named(documented_server):
    paths = documented_server.app.openapi()["paths"]
    assert len(paths) > 10
    assert [path for path in paths if not is_named(path)] == []


def test_every_flag_is_named():
    flags = [flag.shown for flag in flags_of(ServeOptions)]
    assert "--api-key-file" in flags
    assert [flag for flag in flags if not is_named(flag)] == []


def test_every_metric_is_named(documented_server):
    answer = httpx2.get(
        f"{documented_server.url}/metrics", headers={"authorization": f"Bearer {KEY}"}
    )
    found = re.findall(r"^# TYPE (polyrank_\w+) ", answer.text, flags=re.MULTILINE)
    metrics = [name for name in found if not name.endswith("_created")]
    assert len(metrics) > 5
    assert [name for name in metrics if not is_named(name)] == []


@pytest.mark.skipif(not shutil.which("curl"), reason="curl is not installed")
@pytest.mark.parametrize("section", ["## Start", "## Search", "## Authentication", "## The page"])
def test_curl_runs_as_printed(section, documented_server):
    commands = code_of("sh", section)
    assert commands
    for command in commands:
        shown = with_address(command, documented_server)
        if "$KEY" not in shown:
            shown = shown.rstrip() + ' --header "Authorization: Bearer $KEY"'
        done = subprocess.run(
            ["sh", "-c", shown.replace("curl ", "curl --fail-with-body --silent --show-error ")],
            capture_output=True, text=True, check=False, env={**os.environ, "KEY": KEY},
        )  # fmt: skip
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"


def test_openai_runs_as_printed(bi, documented_server):
    (code,) = code_of("python", "### OpenAI")
    names = {}
    shown = with_address(code, documented_server).replace('"unused"', f'"{KEY}"')
    exec(compile(shown, "docs/serving.md", "exec"), names)
    names["client"].close()
    assert len(names["vectors"]) == 2
    assert len(names["query"].data[0].embedding) == bi.dimension


def test_every_client_that_is_checked_is_named():
    scripts = (ROOT / "scripts" / "clients").glob("with_*.py")
    calls = {
        call
        for script in scripts
        for call in re.findall(r"^ {8}\"([A-Z]\w+)", script.read_text("utf-8"), flags=re.MULTILINE)
    }
    assert len(calls) > 10
    assert sorted(call for call in calls if call not in TEXT) == []
