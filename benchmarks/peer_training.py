"""Training against sentence-transformers: same base, data, budget and seeds, in one run.

Our bi-encoder against its SentenceTransformerTrainer with MultipleNegativesRankingLoss, our
cross-encoder against its CrossEncoderTrainer with BinaryCrossEntropyLoss or ListNetLoss: R@1 and
MRR on the dev examples with their own 20 candidates, by one evaluation, and pairs a second of the
training steps (see training_clock). Batch, steps, learning rate of the encoder, its linear schedule
and warm-up, weight decay, precision and lengths (128 and 64 tokens) are equal; what else a side
does by itself, such as dropout or how its head starts, is left to it. Cross-encoders of both sides
see the same pairs: each context's response and the same random wrong ones, in a listwise softmax on
our side. The sides take turns.

python -m benchmarks.peer_training DATA --output FILE [--seeds 0,1,2 --steps 160 --batch 64
    --data ubuntu_irc,sgd --kind bi|cross --peer-towers one|two --peer-loss bce,listnet]

The difference's interval is a bootstrap over seeds and examples.
"""

from __future__ import annotations

import argparse
import random
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from transformers.utils import logging

from benchmarks.dialogues import dev_examples, training_examples
from benchmarks.peer import PeerBi, PeerConfig, PeerCross
from benchmarks.results_store import ResultsStore, table
from benchmarks.timing import machine
from benchmarks.training_clock import TrainingClock, training_clock
from polyrank import BiEncoder, CrossEncoder
from polyrank.evaluation.ranking import RankingResult, evaluate_examples
from polyrank.models.source import default_base
from polyrank.progress import quieten_libraries
from polyrank.records import Example
from polyrank.runtime import set_seed
from polyrank.training.config import TrainingConfig
from polyrank.training.objectives.registry import ObjectiveConfig
from polyrank.training.run import train

LENGTHS = (128, 64)
DRAWS = 2000


def with_negatives(examples: list[Example], count: int, seed: int) -> list[Example]:
    """Each example with `count` responses of others, drawn once for both sides."""
    draw = random.Random(seed)
    pool = list(dict.fromkeys(example.response for example in examples))
    made = []
    for example in examples:
        texts: list[str] = []
        while len(texts) < count:
            text = draw.choice(pool)
            if text != example.response and text not in texts:
                texts.append(text)
        made.append(replace(example, negatives=tuple(texts)))
    return made


def train_ours(options: argparse.Namespace, examples: list[Example], seed: int) -> Any:
    """Our model, trained, and the clock."""
    set_seed(seed)
    settings: dict[str, Any] = {
        "max_context_length": LENGTHS[0],
        "max_candidate_length": LENGTHS[1],
    }
    model: Any
    if options.kind == "bi":
        towers = {"shared_towers": options.towers == "one"}
        model = BiEncoder.from_pretrained(default_base(), device="cpu", **settings, **towers)
    else:
        settings["head"] = options.head
        model = CrossEncoder.from_pretrained(default_base(), device="cpu", **settings)
    config = TrainingConfig(
        batch_size=options.batch,
        max_steps=options.steps,
        learning_rate=options.learning_rate,
        num_negatives=options.negatives,
        evaluations=1,
        seed=seed,
    )
    objective = ObjectiveConfig(objective="listwise" if options.kind == "cross" else "auto")
    with tempfile.TemporaryDirectory() as folder, training_clock() as clock:
        train(model, examples, Path(folder) / "model", config, objective=objective, restart=True)
    return model, clock


def train_peer(options: argparse.Namespace, examples: list[Example], seed: int, loss: str) -> Any:
    """The peer's model, trained, and the clock."""
    config = PeerConfig(
        batch_size=options.batch,
        max_steps=options.steps,
        learning_rate=options.learning_rate,
        seed=seed,
        towers=options.peer_towers,
        loss=loss,
        attention=options.peer_attention,
        dropout=options.peer_dropout,
    )
    set_seed(seed)
    peer = (PeerBi if options.kind == "bi" else PeerCross)(default_base(), config, LENGTHS)
    return peer, peer.train(examples, config)


def measure(
    options: argparse.Namespace, name: str, side: str, seed: int, dev: list[Example]
) -> dict[str, Any]:
    """One side's run: what its training took, and each dev example's recall and 1 / rank."""
    everything = training_examples(options.folder, name)
    needed = min(options.steps * options.batch, len(everything))
    examples = random.Random(seed).sample(everything, needed)  # both sides see these, once
    if options.kind == "cross":
        examples = with_negatives(examples, options.negatives, seed)
    model: Any
    clock: TrainingClock
    if side == "polyrank":
        model, clock = train_ours(options, examples, seed)
    else:
        model, clock = train_peer(options, examples, seed, side)
    result: RankingResult = evaluate_examples(model, dev)
    width = 1 + options.negatives if options.kind == "cross" else 1
    return {
        "recall@1": result.recall[1],
        "mrr": result.mrr,
        "steps": clock.steps,
        "seconds_a_step": round(clock.seconds, 4),
        "pairs_a_second": round(options.batch * width / clock.seconds, 3),
        "hits": np.round(result.per_query.recall[1], 4).tolist(),
        "reciprocal_ranks": np.round(result.per_query.reciprocal_ranks, 5).tolist(),
    }


def interval(differences: np.ndarray) -> tuple[float, float]:
    """The middle 95% of the mean difference (S, E), seeds and examples drawn anew."""
    draw = np.random.default_rng(0)
    seeds, examples = differences.shape
    means = [
        differences[draw.integers(seeds, size=seeds)]
        .mean(0)[draw.integers(examples, size=examples)]
        .mean()
        for _ in range(DRAWS)
    ]
    low, high = np.percentile(means, [2.5, 97.5])
    return float(low), float(high)


def report(name: str, sides: Sequence[str], runs: dict[tuple[str, int], Any]) -> None:
    """Print a row for each run, then how ours differs from each loss of the peer."""
    seeds = sorted({seed for _, seed in runs})
    rows = [
        [name, side, seed, run["recall@1"], run["mrr"], run["pairs_a_second"]]
        for (side, seed), run in sorted(runs.items())
    ]
    print(table(["data", "side", "seed", "R@1/20", "MRR", "pairs/s"], rows))
    for side in sides[1:]:
        for label, key in (("R@1", "hits"), ("MRR", "reciprocal_ranks")):
            ours = np.array([runs["polyrank", seed][key] for seed in seeds])
            theirs = np.array([runs[side, seed][key] for seed in seeds])
            low, high = interval(ours - theirs)
            print(
                f"{name}, polyrank less {side}: {label} {(ours - theirs).mean():+.3f} "
                f"[{low:+.3f}, {high:+.3f}]"
            )
        speeds = [
            runs[each, seed]["pairs_a_second"] for seed in seeds for each in ("polyrank", side)
        ]
        ratios = np.array(speeds[::2]) / np.array(speeds[1::2])
        print(
            f"{name}, polyrank over {side}: pairs/s × {np.median(ratios):.2f} "
            f"(by seed {', '.join(f'{ratio:.2f}' for ratio in ratios)})"
        )


def run(options: argparse.Namespace) -> None:
    """All runs that the file does not hold yet, the sides by turns, then the report."""
    store = ResultsStore(options.output)
    losses = ["mnrl"] if options.kind == "bi" else options.peer_loss.split(",")
    sides = ["polyrank", *losses]
    for name in options.data.split(","):
        dev = dev_examples(options.folder, name, options.dev_limit)
        runs = {}
        for seed in map(int, options.seeds.split(",")):
            for side in sides if seed % 2 == 0 else sides[::-1]:
                ours = side == "polyrank"
                cross = options.kind == "cross"
                settings = {
                    "kind": options.kind,
                    "data": name,
                    "side": side,
                    "seed": seed,
                    "steps": options.steps,
                    "batch": options.batch,
                    "lr": options.learning_rate,
                    "negatives": options.negatives if cross else None,
                    "head": options.head if cross and ours else None,
                    "towers": None if cross else options.towers if ours else options.peer_towers,
                    "attention": None if ours else options.peer_attention,
                    "dropout": None if ours else options.peer_dropout,
                    "dev": len(dev),
                }
                compute = partial(measure, options, name, side, seed, dev)
                runs[side, seed] = store.get(settings, compute)
        report(name, sides, runs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, metavar="DATA")
    parser.add_argument("--output", type=Path, required=True, help="JSON file of results")
    parser.add_argument("--kind", choices=("bi", "cross"), default="bi")
    parser.add_argument("--data", default="ubuntu_irc,sgd")
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--steps", type=int, default=160)
    parser.add_argument("--batch", type=int, help="contexts of a step: 64 for bi, 16 for cross")
    parser.add_argument("--negatives", type=int, default=3, help="of each context, for cross")
    parser.add_argument("--learning-rate", type=float, help="5e-5 for bi, 1e-4 for cross")
    parser.add_argument("--towers", choices=("one", "two"), default="two", help="of ours")
    parser.add_argument("--head", choices=("interaction", "linear"), default="interaction")
    parser.add_argument("--peer-towers", choices=("one", "two"), default="one")
    parser.add_argument("--peer-loss", default="bce,listnet", help="for cross")
    parser.add_argument("--peer-attention", choices=("sdpa", "eager"), default="sdpa")
    parser.add_argument("--peer-dropout", type=float)
    parser.add_argument("--dev-limit", type=int)
    options = parser.parse_args()
    quieten_libraries()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    bi = options.kind == "bi"
    options.batch = options.batch or (64 if bi else 16)
    options.learning_rate = options.learning_rate or (5e-5 if bi else 1e-4)
    print(f"{machine()}; {options.steps} steps of {options.batch} contexts")
    run(options)


if __name__ == "__main__":
    main()
