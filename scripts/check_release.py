"""Build the distribution and try it as users get it: `make release-check`.

Builds the wheel and the source distribution, checks both with twine, checks what the wheel
contains, installs the wheel into a fresh environment of every supported Python found here, and
each extra alone into one more. Every environment runs `scripts/smoke_test.py`. Needs the packages
of the group `release` and an index of packages.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import time
import zipfile
from email.parser import HeaderParser
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SMOKE_TEST = ROOT / "scripts" / "smoke_test.py"
PYTHONS = ("3.10", "3.11", "3.12", "3.13")


def run(*command: str | Path, quiet: bool = True) -> str:
    """Run a command outside of the project's folder; show what it printed if it fails."""
    done = subprocess.run(
        list(map(str, command)),
        cwd=ROOT.parent,
        stdout=subprocess.PIPE if quiet else None,
        stderr=subprocess.STDOUT if quiet else None,
        text=True,
        check=False,
    )
    if done.returncode:
        print(done.stdout or "")
        sys.exit(f"failed: {' '.join(map(str, command))}")
    return done.stdout or ""


def build(dist: Path) -> Path:
    """Build both distributions, check them, and return the wheel."""
    shutil.rmtree(dist, ignore_errors=True)
    run(sys.executable, "-m", "build", "--installer", "uv", "--outdir", dist, ROOT)
    run(sys.executable, "-m", "twine", "check", "--strict", *sorted(dist.iterdir()))
    (wheel,) = dist.glob("*.whl")
    check_contents(wheel)
    print(f"{wheel.name}: {wheel.stat().st_size / 1e3:,.0f} kB; twine check passed")
    return wheel


def check_contents(wheel: Path) -> None:
    """End with a message unless the wheel has every module, the type marker and nothing else."""
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    package = {name for name in names if not name.split("/")[0].endswith(".dist-info")}
    listed = run("git", "-C", ROOT, "ls-files", "src/polyrank").splitlines()
    expected = {name.removeprefix("src/") for name in listed}
    if package != expected:
        sys.exit(f"the wheel and the source differ: {', '.join(sorted(package ^ expected))}")


def extras_of(wheel: Path) -> list[str]:
    """The extras that the wheel declares."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [n for n in archive.namelist() if n.endswith(".dist-info/METADATA")]
        metadata = HeaderParser().parsestr(archive.read(name).decode())
    return sorted(metadata.get_all("Provides-Extra") or [])


def find_python(version: str) -> str | None:
    """The path of a Python of this version, if there is one."""
    command = ["uv", "python", "find", "--no-python-downloads", version]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() or None if done.returncode == 0 else None


def try_install(python: str, wheel: Path, extra: str, work: Path, constraints: list[str]) -> None:
    """Install the wheel into a fresh environment and run the smoke test there."""
    started = time.perf_counter()
    environment = work / "environment"
    shutil.rmtree(environment, ignore_errors=True)
    run("uv", "venv", "--python", python, environment)
    interpreter = environment / "bin" / "python"
    what = f"{wheel}[{extra}]" if extra else str(wheel)
    run("uv", "pip", "install", "--python", interpreter, *constraints, what)
    installed = time.perf_counter() - started
    for folder in ("index", "model.training"):
        shutil.rmtree(work / folder, ignore_errors=True)
    run(interpreter, "-I", SMOKE_TEST, work, *([extra] if extra else []))
    seconds = time.perf_counter() - started - installed
    version = re.sub(r".*?(\d+\.\d+\.\d+).*", r"\1", run(interpreter, "-V").strip())
    named = f"polyrank[{extra}]" if extra else "polyrank"
    print(
        f"Python {version:8} {named:22} installed in {installed:4.0f} s, "
        f"smoke test {seconds:4.0f} s"
    )


def main() -> None:
    """Build, check, install, try."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--dist", type=Path, default=ROOT / "dist", help="where to build to")
    parser.add_argument("--work", type=Path, required=True, help="a folder for environments")
    parser.add_argument("--constraints", type=Path, help="versions to install, as for pip")
    parser.add_argument("--extras-python", default="3.11", help="the Python to try the extras with")
    options = parser.parse_args()
    constraints = (
        ["--constraints", str(options.constraints.absolute())] if options.constraints else []
    )
    wheel = build(options.dist.absolute())
    for version in PYTHONS:
        python = find_python(version)
        if python is None:
            print(f"Python {version} is not installed here: not tried")
            continue
        try_install(python, wheel, "", options.work.absolute() / version, constraints)
    python = find_python(options.extras_python)
    if python is None:
        sys.exit(f"Python {options.extras_python} is not installed here; name another one.")
    for extra in extras_of(wheel):
        try_install(
            python, wheel, extra, options.work.absolute() / options.extras_python, constraints
        )


if __name__ == "__main__":
    main()
