"""The loader's share of a pre-training step: drawing pairs, reading and masking them.

python -m benchmarks.loader_share CORPUS [--base MODEL --tasks ict,bfs,wlp,mlm --steps 8
    --batch 64 --layers 4 --width 256]

CORPUS is a folder that `polyrank corpus` made. A new encoder of the given size is the hardest case:
the smaller it is, the less a step computes. Times are those of the process's steps, the first left
out; the share does not depend on how busy the machine is as long as both suffer alike.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest import mock

from benchmarks.command import call
from benchmarks.timing import machine
from benchmarks.training_clock import training_clock
from polyrank.progress import quieten_libraries
from polyrank.training.batches import Item, TrainingSet
from polyrank.training.pretraining.objective import PretrainingCollator


class Stopwatch:
    """Adds up the seconds of the calls of a function, after the first few."""

    def __init__(self) -> None:
        self.calls: list[float] = []

    def around(self, function: Any) -> Any:
        """The function, its calls timed."""

        def timed(*given: Any) -> Any:
            started = time.perf_counter()
            result = function(*given)
            self.calls.append(time.perf_counter() - started)
            return result

        return timed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--base")
    parser.add_argument("--tasks", default="ict,bfs,wlp,mlm")
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--width", type=int, default=256)
    options = parser.parse_args()
    quieten_libraries()
    given = ["pretrain", "--corpus", str(options.corpus), "--tasks", options.tasks]
    given += ["--max-steps", str(options.steps), "--batch-size", str(options.batch)]
    given += ["--held-out", "0", "--evaluations", "1"]
    if options.base:
        given += ["--base", options.base]
    else:
        given += ["--num-layers", str(options.layers), "--width", str(options.width)]
        given += ["--heads", str(max(options.width // 64, 1))]
    drawing, reading = Stopwatch(), Stopwatch()
    draw: Any = TrainingSet.__getitem__
    read: Any = PretrainingCollator.__call__

    def drawn(self: Any, place: int) -> Item:
        return drawing.around(draw)(self, place)

    def collated(self: Any, step: Sequence[Item]) -> dict[str, Any]:
        return reading.around(read)(self, step)

    with (
        tempfile.TemporaryDirectory() as folder,
        training_clock() as clock,
        mock.patch.object(TrainingSet, "__getitem__", drawn),
        mock.patch.object(PretrainingCollator, "__call__", collated),
    ):
        call(*given, "--output", str(Path(folder) / "encoder"))
    step = clock.seconds
    pairs = sum(drawing.calls[options.batch :]) / (len(reading.calls) - 1)
    batches = sum(reading.calls[1:]) / (len(reading.calls) - 1)
    print(
        f"{machine()}\n{options.tasks}, batch {options.batch}: a step takes {step:.3f} s; drawing "
        f"{pairs:.4f} s ({pairs / step:.1%}), tokens and masks {batches:.4f} s "
        f"({batches / step:.1%})"
    )


if __name__ == "__main__":
    main()
