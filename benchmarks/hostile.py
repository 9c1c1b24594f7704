"""The hostile trial: kills, damaged files and bad requests, drawn anew as long as you like.

The tests of `tests/hostile` and some others try a few cases of each kind whenever tests run. This
runs them with many, and with another seed each time, several kinds at once, until the minutes are
over. Each run is filed by its kind and seed, good or bad; the same command continues with the next
seeds. The runs at work when the minutes are over are finished.

python -m benchmarks.hostile [--minutes 60] [--jobs 2] [--only files,killed] [--output FILE]
    [--report]

What a failed test tried stays in its temporary folder, whatever runs after it.

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
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from benchmarks.command import exit_code
from benchmarks.results_store import ResultsStore, table
from benchmarks.runs import commit
from benchmarks.timing import machine
from polyrank.errors import UsageError, nearest

ROOT = Path(__file__).resolve().parent.parent
MOST_SAID = 2000
"""The most characters that are kept of what a failure says."""
LEAST = 60.0
"""The seconds that a run is expected to take when it begins."""
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
    share: int = 1
    """How much of the time it gets, next to the others."""


def kills(number: int) -> Callable[[int], Mapping[str, str]]:
    """The variables of a seed for a trial that interrupts something so many times."""
    return lambda seed: {
        "POLYRANK_HOSTILE_KILLS": str(number),
        "POLYRANK_HOSTILE_SEED": str(seed),
    }


TRIALS = {
    "files": Trial(
        title="damaged files",
        tests=("tests/hostile/test_readers.py::test_damaged_files",),
        environment=lambda seed: {"POLYRANK_HOSTILE_CASES": "2500"},
        seconds=3600,
        share=16,
    ),
    "folders": Trial(
        title="damaged folders of models, indexes and corpora",
        tests=("tests/hostile/test_readers.py::test_damaged_folders",),
        environment=lambda seed: {"POLYRANK_HOSTILE_CASES": "1000"},
        seconds=3600,
        share=2,
    ),
    "values": Trial(
        title="every value of every JSON file replaced",
        tests=(
            "tests/hostile/test_readers.py::test_every_value_of_files",
            "tests/hostile/test_readers.py::test_every_value_of_folders",
        ),
        environment=lambda seed: {
            "POLYRANK_HOSTILE_CASES": "1",  # exports, too
            "POLYRANK_HOSTILE_PARTS": "10",
            "POLYRANK_HOSTILE_SEED": str(seed),
        },
        seconds=3600,
        share=2,
    ),
    "entries": Trial(
        title="links, pipes and folders in the place of files",
        tests=("tests/hostile/test_entries.py",),
        environment=lambda seed: {"POLYRANK_HOSTILE_CASES": "100"},
        seconds=1800,
    ),
    "signs": Trial(
        title="files with a sign 100,000 times",
        tests=("tests/hostile/test_readers.py::test_files_with_a_sign_repeated",),
        environment=lambda seed: {
            "POLYRANK_HOSTILE_CASES": "1",
            "POLYRANK_HOSTILE_PARTS": "4",
            "POLYRANK_HOSTILE_SEED": str(seed),
        },
        seconds=1800,
    ),
    "lines": Trial(
        title="files with a line of 100 MB",
        tests=("tests/hostile/test_readers.py::test_files_with_a_long_line",),
        environment=lambda seed: {"POLYRANK_HOSTILE_MEGABYTES": "100"},
        seconds=3600,
    ),
    "killed": Trial(
        title="commands killed",
        tests=("tests/hostile/test_killed_commands.py",),
        environment=kills(25),
        seconds=3600,
        share=6,
    ),
    "disks": Trial(
        title="commands on a disk that is full",
        tests=("tests/hostile/test_full_disk.py",),
        environment=kills(10),
        seconds=3600,
        share=2,
    ),
    "server": Trial(
        title="server killed while its index changes",
        tests=("tests/serving/test_kills.py",),
        environment=kills(25),
        seconds=1800,
    ),
    "requests": Trial(
        title="requests: valid, invalid and damaged",
        tests=("tests/serving/test_schema.py",),
        environment=lambda seed: {
            "POLYRANK_API_EXAMPLES": "100",
            "POLYRANK_HOSTILE_SEED": str(seed),
        },
        seconds=1800,
        share=2,
    ),
    "filters": Trial(
        title="filters that Milvus and Python evaluate",
        tests=("tests/retrieval/test_milvus_expression.py",),
        environment=lambda seed: {"POLYRANK_HOSTILE_CASES": "1000"},
        seconds=1800,
    ),
    "changes": Trial(
        title="an index killed at every operation on files",
        tests=("tests/retrieval/test_crashes.py",),
        environment=kills(1),
        seconds=900,
    ),
    "readers": Trial(
        title="four readers of an index that is changed and rebuilt",
        tests=("tests/retrieval/test_readers_and_a_writer.py",),
        environment=lambda seed: {
            "POLYRANK_HOSTILE_ROUNDS": "120",
            "POLYRANK_HOSTILE_READERS": "4",
        },
        seconds=1800,
    ),
}


def tried(trial: Trial, seed: int) -> dict[str, Any]:
    """Run the tests of a trial with a seed: cases, tests, and what failed."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        line = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *trial.tests]
        line += [f"--hypothesis-seed={seed}", f"--junitxml={report}"]
        line += ["-o", "junit_family=xunit1"]  # the other family has no properties
        line += ["-o", "tmp_path_retention_policy=failed", "-o", "tmp_path_retention_count=100"]
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
            return {"cases": 0, "tests": 0, "failed": {"all": f"hung after {trial.seconds} s"}}
        found = outcome(report)
    return {
        **found,
        "seconds": round(time.perf_counter() - start, 1),
        "commit": commit(),
        "machine": machine(),
    }


def outcome(report: Path) -> dict[str, Any]:
    """The cases that a report of pytest names, and each failure with the end of what it says."""
    if not report.is_file():
        return {"cases": 0, "tests": 0, "failed": {"all": "the tests were killed"}}
    tests = list(ElementTree.parse(report).getroot().iter("testcase"))
    cases, failed = 0, {}
    for test in tests:
        properties = {each.get("name"): each.get("value") for each in test.iter("property")}
        cases += int(properties.get("cases") or 1)
        fault = next((one for one in test if one.tag in ("failure", "error")), None)
        if fault is not None:
            file = Path(test.get("file", "")).name
            failed[f"{file}::{test.get('name')}"] = anywhere(fault.text or "")[-MOST_SAID:]
    return {"cases": cases, "tests": len(tests), "failed": failed}


def anywhere(text: str) -> str:
    """A text without the paths of this machine."""
    return text.replace(f"{ROOT}{os.sep}", "").replace(tempfile.gettempdir(), "$TMPDIR")


@dataclass
class Schedule:
    """What comes next: the trial that has had the least of its share of the time."""

    names: Sequence[str]
    store: ResultsStore
    end: float
    spent: dict[str, float] = field(default_factory=dict)
    at_work: dict[tuple[str, int], float] = field(default_factory=dict)
    """The start of each run that is not finished."""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def work(self) -> None:
        """Run one trial after the other until the minutes are over."""
        while (chosen := self.next()) is not None:
            name, seed = chosen
            found = self.store.get(
                {"trial": name, "seed": seed},
                lambda: tried(TRIALS[name], seed),  # noqa: B023
            )
            bad = f"; failed: {', '.join(found['failed'])}" if found["failed"] else ""
            print(f"{name}, seed {seed}: {found['cases']:,} cases{bad}", flush=True)
            with self.lock:
                self.spent[name] = self.had(name)
                del self.at_work[chosen]

    def next(self) -> tuple[str, int] | None:
        """The next trial and its seed; None when the minutes are over."""
        with self.lock:
            if time.monotonic() > self.end:
                return None
            name = min(self.names, key=lambda name: self.had(name, LEAST) / TRIALS[name].share)
            taken = {seed for trial, seed in self.at_work if trial == name}
            seed = next(
                number
                for number in itertools.count()
                if number not in taken and f"trial={name} seed={number}" not in self.store.results
            )
            self.at_work[name, seed] = time.monotonic()
            return name, seed

    def had(self, name: str, least: float = 0.0) -> float:
        """The seconds that a trial has had; a run at work counts for at least `least`."""
        now = time.monotonic()
        own = [now - begun for (trial, _), begun in self.at_work.items() if trial == name]
        return self.spent.get(name, 0.0) + sum(max(seconds, least) for seconds in own)


def run(names: Sequence[str], minutes: float, jobs: int, store: ResultsStore) -> None:
    """Run the trials, so many at once, each time with their next seeds, for so many minutes."""
    schedule = Schedule(names, store, time.monotonic() + 60 * minutes)
    with ThreadPoolExecutor(jobs) as pool:
        for future in [pool.submit(schedule.work) for _ in range(jobs)]:
            future.result()


def report(store: ResultsStore) -> str:
    """A row for each trial and one for all: what was tried since its last failure, and before."""
    rows, total = [], [0, 0, 0]
    for name, trial in TRIALS.items():
        own = [each for key, each in store.results.items() if key.startswith(f"trial={name} ")]
        bad = [number for number, each in enumerate(own) if each["failed"]]
        clean = own[bad[-1] + 1 :] if bad else own
        counts = [
            sum(each["cases"] for each in own),
            sum(len(each["failed"]) for each in own),
            sum(each["cases"] for each in clean),
        ]
        total = [before + count for before, count in zip(total, counts, strict=True)]
        since = clean[0]["commit"] if clean else "–"
        rows.append([trial.title, *map("{:,}".format, counts), since])
    rows.append(["all", *map("{:,}".format, total), ""])
    return table(["trial", "cases", "tests failed", "cases since then", "first commit since"], rows)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("--minutes", type=float, default=math.inf)
    made.add_argument("--jobs", type=int, default=os.cpu_count(), help="runs at once")
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
        run(given.only, given.minutes, given.jobs, store)
    print(report(store))


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code."""
    return exit_code(parser().parse_args(arguments), perform)


if __name__ == "__main__":
    sys.exit(main())
