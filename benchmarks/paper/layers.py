"""Which layers are fine-tuned, for bi and cross (Humeau et al., 2020, table 3).

The encoder here has 6 layers where the paper's has 12, so "top 4" is two thirds of it. The
cross-encoder has head = interaction and the same steps of in-batch softmax as the bi-encoder.

python -m benchmarks.paper.layers DATA [--steps 160 --batch 64 --dev-limit N --seed 0]
"""

from __future__ import annotations

from benchmarks.paper.runs import Runs, options_of
from benchmarks.results_store import table

CROSS = {"head": "interaction"}
PUBLISHED = {
    "top": (74.2, 80.6),
    "top4": (82.0, 86.3),
    "all_but_embeddings": (83.3, 87.3),
    "all": (83.0, 86.6),
}


def main() -> None:
    runs = Runs(options_of(__doc__, "layers"))
    rows = []
    for layers, published in PUBLISHED.items():
        bi = runs.get("bi", {}, runs.vectors(trainable=layers))
        cross = runs.get("cross", CROSS, runs.vectors(trainable=layers))
        rows.append([layers, bi["recall@1"], cross["recall@1"], *published])
    columns = ["fine-tuned", "bi R@1/20", "cross R@1/20", "paper: bi, ConvAI2 %", "paper: cross"]
    print(table(columns, rows))


if __name__ == "__main__":
    main()
