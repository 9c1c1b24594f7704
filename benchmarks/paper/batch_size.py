"""Batch size: how many in-batch negatives the bi-encoder sees (Humeau et al., 2020, table 2).

Batches that do not fit into memory go through the gradient cache, which changes no result. Every
batch size gets the same number of steps, so a larger one also sees more pairs, as in the paper;
with `--equal pairs` it gets the same number of pairs, and so fewer steps.

python -m benchmarks.paper.batch_size DATA [--steps 160 --sizes 32,64,128,256,512 --equal steps]

`--steps` are those of the smallest size.
"""

from __future__ import annotations

import argparse
import sys

from benchmarks.paper.runs import Runs, options_of
from benchmarks.results_store import table

PUBLISHED = {31: 81.0, 63: 81.7, 127: 82.3, 255: 83.0, 511: 83.3}


def main() -> None:
    own = argparse.ArgumentParser(add_help=False)
    own.add_argument("--sizes", default="32,64,128,256,512")
    own.add_argument("--equal", choices=("steps", "pairs"), default="steps")
    chosen, sys.argv[1:] = own.parse_known_args()
    runs = Runs(options_of(__doc__, "batch_size"))
    sizes = [int(size) for size in chosen.sizes.split(",")]
    rows = []
    for size in sizes:
        steps = runs.options.steps
        if chosen.equal == "pairs":
            steps = max(steps * sizes[0] // size, 1)
        found = runs.get("bi", {}, runs.vectors(batch_size=size, max_steps=steps))
        published = PUBLISHED.get(size - 1)
        rows.append([size - 1, steps, found["recall@1"], found["mrr"], published])
    columns = ["negatives", "steps", "R@1/20", "MRR", "paper: ConvAI2 R@1/20, %"]
    print(table(columns, rows))


if __name__ == "__main__":
    main()
