"""Training time of the architectures: seconds for 1,000 contexts (Humeau et al., 2020, table 6).

Bi and poly train on steps of `--batch` contexts with each other's responses, the cross-encoder on
16 contexts with 15 wrong responses each, as in the paper. The models take turns; each figure is
the median over the rounds. Nothing is evaluated.

python -m benchmarks.paper.training_time DATA [--steps 10 --batch 64 --rounds 3]
"""

from __future__ import annotations

import argparse
import statistics
import sys
from typing import Any

from benchmarks.paper.runs import Runs, options_of
from benchmarks.results_store import table

MODELS: dict[str, tuple[str, dict[str, Any], float]] = {
    "bi": ("bi", {}, 7.9),
    "poly-16": ("poly", {"num_codes": 16}, 8.0),
    "poly-64": ("poly", {"num_codes": 64}, 8.0),
    "cross": ("cross", {}, 39.9),
}
CROSS_NEGATIVES = 15


def main() -> None:
    own = argparse.ArgumentParser(add_help=False)
    own.add_argument("--rounds", type=int, default=3)
    chosen, sys.argv[1:] = own.parse_known_args()
    runs = Runs(options_of(__doc__, "training_time"))
    seconds: dict[str, list[float]] = {name: [] for name in MODELS}
    for turn in range(chosen.rounds):
        for name, (architecture, settings, _) in MODELS.items():
            seed = runs.options.seed + turn
            config = runs.vectors(seed=seed)
            if architecture == "cross":
                config = runs.cross(seed=seed, num_negatives=CROSS_NEGATIVES)
            found = runs.get(architecture, settings, config, quality=False)
            seconds[name].append(found["seconds_a_1000"])
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    rows = [
        [name, medians[name], medians[name] / medians["bi"], hours, hours / MODELS["bi"][2]]
        for name, (_, _, hours) in MODELS.items()
    ]
    columns = ["model", "seconds / 1,000", "× bi", "paper: hours, Ubuntu, 8 V100", "× bi"]
    print(table(columns, rows))


if __name__ == "__main__":
    main()
