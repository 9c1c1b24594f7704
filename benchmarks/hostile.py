"""The hostile trial: kills, damaged files and bad requests, drawn anew as long as you like.

The tests of `tests/hostile` and some others try a few cases of each kind whenever tests run. This
runs them with many, and with another seed each time, one kind after the other, until the minutes
are over. Each run is filed by its kind and seed, good or bad; the same command continues with the
next seeds.

python -m benchmarks.hostile [--minutes 60] [--only damaged,killed] [--output FILE] [--report]

The table that follows says for each kind how many cases were tried, how many of them survived, and
since which commit nothing was found.
"""

from __future__ import annotations

import argparse
import itertools
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from benchmarks.command import exit_code
from benchmarks.results_store import ResultsStore, table
from benchmarks.runs import commit
from benchmarks.timing import machine
from polyrank.errors import UsageError, nearest

ROOT = Path(__file__).resolve().parent.parent
OUTPUT = ROOT / "benchmarks" / "results" / "hostile.json"


@dataclass(frozen=True, kw_only=True)
class Trial:
    """Tests that draw what they try, and how they are asked for many cases."""

    title: str
    tests: tuple[str, ...]
    environment: Callable[[int], Mapping[str, str]]
    """From a seed to the variables that the tests read."""
    seconds: int
    """What a run may take before it counts as hung."""


TRIALS = {
    "damaged": Trial(
        title="damaged files and folders",
        tests=("tests/hostile/test_readers.py",),
        environment=lambda seed: {"POLYRANK_HOSTILE_CASES": "1000"},
        seconds=3600,
    ),
    "killed": Trial(
        title="commands killed",
        tests=("tests/hostile/test_killed_commands.py",),
        environment=lambda seed: {
            "POLYRANK_HOSTILE_KILLS": "25",
            "POLYRANK_HOSTILE_SEED": str(seed),
        },
        seconds=3600,
    ),
    "server": Trial(
        title="server killed while its index changes",
        tests=("tests/serving/test_kills.py",),
        environment=lambda seed: {"POLYRANK_TEST_KILLS": "25"},
        seconds=1800,
    ),
    "requests": Trial(
        title="requests from the schema, valid and not",
        tests=("tests/serving/test_schema.py",),
        environment=lambda seed: {
            "POLYRANK_API_EXAMPLES": "100",
            "POLYRANK_HOSTILE_SEED": str(seed),
        },
        seconds=1800,
    ),
    "changes": Trial(
        title="an index killed at every operation on files",
        tests=("tests/retrieval/test_crashes.py",),
        environment=lambda seed: {},
        seconds=900,
    ),
}


def tried(trial: Trial, seed: int) -> dict[str, Any]:
    """Run the tests of a trial with a seed: cases, tests, and what failed."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        line = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
        line += [f"--junitxml={report}", f"--hypothesis-seed={seed}", *trial.tests]
        start = time.perf_counter()
        try:
            subprocess.run(
                line,
                cwd=ROOT,
                env={**os.environ, **trial.environment(seed)},
                stdout=subprocess.DEVNULL,
                timeout=trial.seconds,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return {"cases": 0, "tests": 0, "failed": [f"hung after {trial.seconds} s"]}
        found = outcome(report)
    return {
        **found,
        "seconds": round(time.perf_counter() - start, 1),
        "commit": commit(),
        "machine": machine(),
    }


def outcome(report: Path) -> dict[str, Any]:
    """The cases and the failures that a report of pytest names."""
    if not report.is_file():
        return {"cases": 0, "tests": 0, "failed": ["the tests were killed"]}
    tests = list(ElementTree.parse(report).getroot().iter("testcase"))
    cases, failed = 0, []
    for test in tests:
        properties = {each.get("name"): each.get("value") for each in test.iter("property")}
        cases += int(properties.get("cases") or 1)
        if test.find("failure") is not None or test.find("error") is not None:
            failed.append(str(test.get("name")))
    return {"cases": cases, "tests": len(tests), "failed": failed}


def run(names: Sequence[str], minutes: float, store: ResultsStore) -> None:
    """Run the trials in turns, each time with its next seed, until the minutes are over."""
    end = time.monotonic() + 60 * minutes
    for name in itertools.cycle(names):
        if time.monotonic() > end:
            return
        seed = next(n for n in itertools.count() if f"trial={name} seed={n}" not in store.results)
        found = store.get({"trial": name, "seed": seed}, lambda: tried(TRIALS[name], seed))  # noqa: B023
        bad = f"; failed: {', '.join(found['failed'])}" if found["failed"] else ""
        print(f"{name}, seed {seed}: {found['cases']:,} cases{bad}", flush=True)


def report(store: ResultsStore) -> str:
    """A row for each trial: what was tried since its last failure, and before."""
    rows = []
    for name, trial in TRIALS.items():
        own = [each for key, each in store.results.items() if key.startswith(f"trial={name} ")]
        bad = [number for number, each in enumerate(own) if each["failed"]]
        clean = own[bad[-1] + 1 :] if bad else own
        rows.append(
            [
                trial.title,
                sum(each["cases"] for each in own),
                sum(len(each["failed"]) for each in own),
                sum(each["cases"] for each in clean),
                clean[0]["commit"] if clean else "–",
            ]
        )
    return table(["trial", "cases", "tests failed", "cases since then", "first commit since"], rows)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("--minutes", type=float, default=math.inf)
    made.add_argument("--only", type=lambda text: text.split(","), default=list(TRIALS))
    made.add_argument("--output", type=Path, default=OUTPUT)
    made.add_argument("--report", action="store_true", help="only print the table")
    return made


def perform(given: argparse.Namespace) -> None:
    """Run the trials, and print the table."""
    for name in given.only:
        if name not in TRIALS:
            raise UsageError(f"There is no trial {name!r}.", nearest(name, TRIALS))
    store = ResultsStore(given.output)
    if not given.report:
        run(given.only, given.minutes, store)
    print(report(store))


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code."""
    return exit_code(parser().parse_args(arguments), perform)


if __name__ == "__main__":
    sys.exit(main())
