"""Bi, poly-16, poly-64 and cross on #ubuntu help chat, from one budget of pairs.

The bi- and poly-encoders get 160 steps of 64 pairs. The cross-encoder, which reads each context
with every candidate anew, gets as many seconds as the bi-encoder took, and then more.

python -m benchmarks.ubuntu DATA --output DIR [--models bi,poly-16,…] [--steps 160]

DATA is a folder with train.jsonl and dev.jsonl (may be compressed), the dev examples with 20
candidates each. Training replies have at least 3 words.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from benchmarks.timing import machine
from polyrank.data.loading import load_examples
from polyrank.evaluation.ranking import evaluate_examples
from polyrank.models.checkpoint import ARCHITECTURES
from polyrank.models.source import default_base
from polyrank.progress import quieten_libraries
from polyrank.records import Example
from polyrank.runtime import set_seed
from polyrank.training.config import TrainingConfig
from polyrank.training.run import train

LENGTHS: dict[str, Any] = {"max_context_length": 128, "max_candidate_length": 64}
FEWEST_WORDS = 3


def find(folder: Path, name: str) -> Path:
    """The file of a split, compressed or not."""
    return next(path for path in sorted(folder.glob(f"{name}.jsonl*")))


def cross_training(steps: int) -> TrainingConfig:
    """16 contexts a step, each with its response and three wrong ones."""
    return TrainingConfig(
        batch_size=16, num_negatives=3, max_steps=steps, learning_rate=1e-4, evaluations=1
    )


def recipes(options: argparse.Namespace) -> dict[str, tuple[str, dict[str, Any], TrainingConfig]]:
    """Architecture, settings and training of each model."""
    linear = {"head": "linear"}
    vectors = TrainingConfig(batch_size=64, max_steps=options.steps, evaluations=1)
    return {
        "bi": ("bi", {}, vectors),
        "poly-16": ("poly", {"num_codes": 16}, vectors),
        "poly-64": ("poly", {"num_codes": 64}, vectors),
        "cross": ("cross", linear, cross_training(options.cross_steps)),
        "cross-more": ("cross", linear, cross_training(options.more_cross_steps)),
    }


def measure(
    name: str, recipe: Any, data: list[Example], dev: list[Example], output: Path
) -> dict[str, Any]:
    """Train one model and evaluate it on all dev examples, before and after."""
    architecture, settings, config = recipe
    set_seed(config.seed)
    model: Any = ARCHITECTURES[architecture].from_pretrained(default_base(), **LENGTHS, **settings)
    untrained = None if architecture == "cross" else evaluate_examples(model, dev).to_json()
    result = train(model, data, output / name, config, restart=True, say=print)
    return {
        "name": name,
        "untrained": untrained,
        "trained": evaluate_examples(model, dev, show_progress_bar=True).to_json(),
        "seconds": round(result.seconds, 1),
        "contexts": result.pairs,
        "dtype": str(model.compute_dtype),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--models", default="bi,poly-16,poly-64,cross,cross-more")
    parser.add_argument("--steps", type=int, default=160)
    parser.add_argument("--cross-steps", type=int, default=180)
    parser.add_argument("--more-cross-steps", type=int, default=1100)
    options = parser.parse_args()
    quieten_libraries()
    data = [
        example
        for example in load_examples(find(options.data, "train"))
        if len(example.response.split()) >= FEWEST_WORDS
    ]
    dev = load_examples(find(options.data, "dev"))
    print(f"{len(data):,} examples, {len(dev):,} dev; {machine()}")
    rows = []
    for name in options.models.split(","):
        recipe = recipes(options)[name]
        rows.append(measure(name, recipe, data, dev, options.output))
        print(json.dumps(rows[-1]))
    for row in rows:
        figures, before = row["trained"], row["untrained"] or {}
        print(
            f"| {row['name']} | {before.get('recall@1', float('nan')):.3f} | "
            f"{figures['recall@1']:.3f} | {figures['mrr']:.3f} | {row['contexts']:,} | "
            f"{row['seconds']:.0f} |"
        )


if __name__ == "__main__":
    main()
