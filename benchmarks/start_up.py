"""CPU seconds of commands from their start to their end: this tree against another.

python -m benchmarks.start_up [--against OTHER/src] [--candidates 2000 --rounds 7 --work DIR]

Each tree makes an index of texts of the documentation with all-MiniLM-L6-v2. CPU seconds,
user and system together, depend less on what else runs than those of a clock; rounds alternate the
trees and the commands.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import polyrank
from benchmarks.texts import mixed_texts
from benchmarks.timing import machine
from polyrank.models.source import default_base

COMMANDS = {
    "--help": ["--help"],
    "evaluate --help": ["evaluate", "--help"],
    "search INDEX TEXT": ["search", "INDEX", "how do I sort a list by two keys"],
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--against", type=Path, help="the src folder of another tree")
    parser.add_argument("--candidates", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--work", type=Path, help="where the indexes are kept for another run")
    options = parser.parse_args()
    trees = {"this tree": Path(polyrank.__file__).parents[1]}
    if options.against is not None:
        trees["the other"] = options.against.resolve()
    seconds: dict[tuple[str, str], list[float]] = {}
    with tempfile.TemporaryDirectory() as temporary:
        work = options.work or Path(temporary)
        indexes = {
            tree: index_of(source, work / tree.replace(" ", "-"), options.candidates)
            for tree, source in trees.items()
        }
        for _ in range(options.rounds):
            for name, arguments in COMMANDS.items():
                for tree, source in trees.items():
                    typed = [str(indexes[tree]) if one == "INDEX" else one for one in arguments]
                    seconds.setdefault((name, tree), []).append(cpu_seconds(source, typed))
    print(f"{options.candidates:,} candidates, {options.rounds} rounds; {machine()}")
    for (name, tree), values in seconds.items():
        spread = f"{min(values):.2f} to {max(values):.2f}"
        print(f"{name:18} {tree:10} {statistics.median(values):5.2f} s of CPU ({spread})")


def index_of(source: Path, index: Path, count: int) -> Path:
    """The index that a tree makes of some texts; one that is there is taken."""
    if not index.exists():
        index.parent.mkdir(parents=True, exist_ok=True)
        texts = index.with_suffix(".jsonl")
        with texts.open("w", encoding="utf-8") as lines:
            for number, text in enumerate(mixed_texts(count)):
                lines.write(json.dumps({"id": str(number), "text": text}) + "\n")
        made = ["--candidates", str(texts), "--output", str(index)]
        cpu_seconds(source, ["index", "build", str(default_base()), *made])
    return index


def cpu_seconds(source: Path, arguments: list[str]) -> float:
    """The user and system seconds of one command of a tree, with those of all its threads."""
    process = subprocess.Popen(
        [sys.executable, "-m", "polyrank", *arguments],
        env=os.environ | {"PYTHONPATH": str(source)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise SystemExit(f"polyrank {' '.join(arguments)} of {source} failed")
    return usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    main()
