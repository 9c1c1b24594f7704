"""How token outputs become one vector, for the bi-encoder (Humeau et al., 2020, table 7).

The base was itself trained to be averaged, where the paper's was not.

python -m benchmarks.paper.reductions DATA [--steps 160 --batch 64 --dev-limit N --seed 0]
"""

from __future__ import annotations

from typing import Any

from benchmarks.paper.runs import Runs, options_of
from benchmarks.results_store import table

REDUCTIONS: dict[str, tuple[dict[str, Any], float | None]] = {
    "first output": ({"reduction": "first"}, 83.3),
    "mean of first 16": ({"reduction": "mean_first", "reduction_tokens": 16}, 82.9),
    "mean of first 64": ({"reduction": "mean_first", "reduction_tokens": 64}, 82.7),
    "mean of all": ({"reduction": "mean"}, 83.1),
    "maximum": ({"reduction": "max"}, None),
}


def main() -> None:
    runs = Runs(options_of(__doc__, "reductions"))
    rows = []
    for name, (settings, published) in REDUCTIONS.items():
        found = runs.get("bi", settings, runs.vectors())
        rows.append([name, found["recall@1"], found["mrr"], published])
    print(table(["reduction", "R@1/20", "MRR", "paper: ConvAI2 valid, %"], rows))


if __name__ == "__main__":
    main()
