"""Where the poly-encoder's m context vectors come from (Humeau et al., 2020, table 8).

The paper's learnt codes are plain attention over the outputs; ours also know how far back a token
lies and share the mean (see the settings code_recency and code_mean). Both are here.

python -m benchmarks.paper.context_vectors DATA [--steps 160 --batch 64 --dev-limit N --seed 0]
"""

from __future__ import annotations

from typing import Any

from benchmarks.paper.runs import Runs, options_of
from benchmarks.results_store import table

SIZES = (16, 64)
PLAIN = {"context_vectors": "learnt", "code_recency": 0.0, "code_mean": 0.0}
KINDS: dict[str, tuple[dict[str, Any], str]] = {
    "learnt codes, ours": ({"context_vectors": "learnt"}, ""),
    "learnt codes, the paper's": (PLAIN, "84.4 / 84.9"),
    "first m outputs": ({"context_vectors": "first"}, "85.2 / 86.0"),
    "last m outputs": ({"context_vectors": "last"}, "83.9 / 84.9"),
    "last m outputs and h1": ({"context_vectors": "last_and_first"}, "83.8 / 85.0"),
}


def main() -> None:
    runs = Runs(options_of(__doc__, "context_vectors"))
    rows = []
    for name, (settings, published) in KINDS.items():
        found = [
            runs.get("poly", {**settings, "num_codes": size}, runs.vectors())["recall@1"]
            for size in SIZES
        ]
        rows.append([name, *found, published])
    columns = ["context vectors", *(f"m = {size}" for size in SIZES), "paper: ConvAI2 dev, %"]
    print(table(columns, rows))


if __name__ == "__main__":
    main()
