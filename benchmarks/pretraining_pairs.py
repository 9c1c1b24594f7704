"""How fast the pre-training tasks draw pairs, and what they are like.

    python -m benchmarks.pretraining_pairs CORPUS…

Each CORPUS is a folder that `polyrank corpus` made. CPU time of one process, on one core; tables
are built in a temporary folder.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

from polyrank.pretraining.corpus.store import Corpus
from polyrank.pretraining.mixture import Mixture
from polyrank.pretraining.registry import TASKS, TaskSettings, make_task
from polyrank.pretraining.rng import Permutation
from polyrank.pretraining.statistics import statistics, statistics_lines
from polyrank.pretraining.tables import CorpusTables, open_tables
from polyrank.pretraining.task import PretrainingTask
from polyrank.pretraining.tasks.wlp import WlpSettings

NUM_PAIRS = 20_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpus", nargs="+", type=Path)
    for path in parser.parse_args().corpus:
        with tempfile.TemporaryDirectory() as place:
            started = time.process_time()
            tables = open_tables(Corpus.open(path), place=Path(place))
            seconds = time.process_time() - started
            size = sum(file.stat().st_size for file in tables.path.rglob("*") if file.is_file())
            print(f"{path}: tables in {seconds:.1f} s, {size / 1e6:.0f} MB; {tables.counts}")
            measure(tables)


def measure(tables: CorpusTables) -> None:
    tasks = [make_task(name, tables) for name, kind in TASKS.items() if tables.kind in kind.kinds]
    tasks = [task for task in tasks if len(task)]
    for line in statistics_lines([statistics(task) for task in tasks]):
        print(line)
    for task in tasks:
        print(f"{task.name}: {pairs_a_second(task):,.0f} pairs a second")
    ranking = [task for task in tasks if task.has_passages]
    if ranking:
        names = ", ".join(task.name for task in ranking)
        print(f"mixture of {names}: {pairs_a_second(Mixture(ranking)):,.0f} pairs a second")
        anywhere = make_task(
            "wlp", tables, settings=TaskSettings(wlp=WlpSettings(any_passage=True))
        )
        if len(anywhere):
            print(f"wlp, any_passage: {pairs_a_second(anywhere):,.0f} pairs a second")


def pairs_a_second(pairs: PretrainingTask[Any] | Mixture) -> float:
    count = min(NUM_PAIRS, len(pairs))
    order = Permutation(len(pairs), 1)
    started = time.process_time()
    for place in range(count):
        pairs[order(place)]
    return count / (time.process_time() - started)


if __name__ == "__main__":
    main()
