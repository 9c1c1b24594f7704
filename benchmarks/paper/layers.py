"""Which layers are fine-tuned, for bi and cross (Humeau et al., 2020, table 3).

The encoder here has 6 layers where the paper's has 12, so "top 4" is two thirds of it. The
cross-encoder has head = interaction and the same steps of in-batch softmax as the bi-encoder; it
reads every dev pair, which takes minutes a row.

python -m benchmarks.paper.layers DATA [--steps 160 --batch 64 --dev-limit N --models bi,cross]
"""

from __future__ import annotations

import argparse
import sys

from benchmarks.paper.runs import Runs, options_of
from benchmarks.results_store import table

SETTINGS = {"bi": {}, "cross": {"head": "interaction"}}
PUBLISHED = {
    "top": (74.2, 80.6),
    "top4": (82.0, 86.3),
    "all_but_embeddings": (83.3, 87.3),
    "all": (83.0, 86.6),
}


def main() -> None:
    own = argparse.ArgumentParser(add_help=False)
    own.add_argument("--models", default="bi,cross")
    chosen, sys.argv[1:] = own.parse_known_args()
    models = chosen.models.split(",")
    runs = Runs(options_of(__doc__, "layers"))
    rows = []
    for layers, published in PUBLISHED.items():
        found = [runs.get(each, SETTINGS[each], runs.vectors(trainable=layers)) for each in models]
        rows.append([layers, *(each["recall@1"] for each in found), *published])
    measured = [f"{each} R@1/20" for each in models]
    print(table(["fine-tuned", *measured, "paper: bi, ConvAI2 %", "paper: cross"], rows))


if __name__ == "__main__":
    main()
