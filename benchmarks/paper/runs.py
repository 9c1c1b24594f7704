"""What the tables of the paper have in common: one training run, and what it reached.

Models start from all-MiniLM-L6-v2 and are trained on `ubuntu_irc` (see benchmarks.dialogues), then
evaluated on its dev examples with their 20 candidates. Contexts have 128 tokens, candidates 64.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from transformers.utils import logging

from benchmarks.dialogues import dev_examples, training_examples
from benchmarks.results_store import ResultsStore
from benchmarks.timing import machine
from benchmarks.training_clock import training_clock
from polyrank.evaluation.ranking import evaluate
from polyrank.models.checkpoint import ARCHITECTURES
from polyrank.models.source import default_base
from polyrank.progress import quieten_libraries
from polyrank.records import Example
from polyrank.runtime import set_seed
from polyrank.training.config import TrainingConfig
from polyrank.training.objectives.registry import ObjectiveConfig
from polyrank.training.run import train

SET = "ubuntu_irc"
LENGTHS = {"max_context_length": 128, "max_candidate_length": 64}
CROSS_BATCH, CROSS_NEGATIVES, CROSS_LEARNING_RATE = 16, 3, 1e-4


def options_of(description: str | None, table_name: str) -> argparse.Namespace:
    """The options that every table takes."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("data", type=Path, help="the folder that holds ubuntu_irc")
    parser.add_argument("--steps", type=int, default=160)
    parser.add_argument("--batch", type=int, default=64, help="contexts of a step, of bi and poly")
    parser.add_argument("--dev-limit", type=int)
    parser.add_argument("--seed", type=int, default=0)
    default = Path(__file__).with_name("results") / f"{table_name}.json"
    parser.add_argument("--output", type=Path, default=default, help="JSON file of results")
    options = parser.parse_args()
    quieten_libraries()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    print(f"{machine()}; {options.steps} steps, seed {options.seed}")
    return options


class Runs:
    """The runs of one table; those that its file holds are not run again."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.store = ResultsStore(options.output)
        self.data: list[Example] | None = None
        self.dev = dev_examples(options.data, SET, options.dev_limit)

    def vectors(self, **changes: Any) -> TrainingConfig:
        """How bi and poly are trained."""
        options = self.options
        standard = {"batch_size": options.batch, "max_steps": options.steps, "seed": options.seed}
        return TrainingConfig(**{"evaluations": 1, **standard, **changes})

    def cross(self, **changes: Any) -> TrainingConfig:
        """How the cross-encoder is trained: fewer contexts, each with wrong responses."""
        standard = {
            "batch_size": CROSS_BATCH,
            "num_negatives": CROSS_NEGATIVES,
            "learning_rate": CROSS_LEARNING_RATE,
        }
        return self.vectors(**{**standard, **changes})

    def get(
        self,
        architecture: str,
        settings: Mapping[str, Any],
        config: TrainingConfig,
        *,
        gradient_cache: str = "auto",
        quality: bool = True,
    ) -> Any:
        """R@1, MRR and the time of a run; `quality` is whether the dev examples are ranked."""
        changed = {
            name: value
            for name, value in asdict(config).items()
            if value != getattr(TrainingConfig(), name) and name != "evaluations"
        }
        key = {
            "model": architecture,
            **settings,
            **changed,
            "gradient_cache": None if gradient_cache == "auto" else gradient_cache,
            "dev": len(self.dev) if quality else 0,
        }
        objective = ObjectiveConfig(gradient_cache=gradient_cache)  # type: ignore[arg-type]
        return self.store.get(
            key, lambda: self.run(architecture, settings, config, objective, quality)
        )

    def run(
        self,
        architecture: str,
        settings: Mapping[str, Any],
        config: TrainingConfig,
        objective: ObjectiveConfig,
        quality: bool,
    ) -> dict[str, Any]:
        """Train one model, and evaluate it."""
        if self.data is None:
            self.data = training_examples(self.options.data, SET)
        set_seed(config.seed)
        made: Any = ARCHITECTURES[architecture]
        model = made.from_pretrained(default_base(), device="cpu", **LENGTHS, **settings)
        with tempfile.TemporaryDirectory() as folder, training_clock() as clock:
            output = Path(folder) / "model"
            train(model, self.data, output, config, objective=objective, restart=True)
        result: dict[str, Any] = {
            "steps": clock.steps,
            "seconds_a_step": round(clock.seconds, 4),
            "seconds_a_1000": round(1000 * clock.seconds / config.batch_size, 2),
        }
        if quality:
            found = evaluate(model, self.dev)
            result |= {"recall@1": round(found.recall[1], 4), "mrr": round(found.mrr, 4)}
        return result
