"""Korean: KorSTS after training on KorSTS and on KorNLI, and the chatbot's replies.

KorSTS dev, Spearman's correlation of the cosine with the labels: untrained; trained on KorSTS train
by the objectives regression (cosine, squared error) and cosent; and first by the classification
objective on KorNLI, of which only the 2,490 pairs of its XNLI dev part are at hand, then on KorSTS.
korean_chatbot dev, R@1 of 20 candidates, for bi, poly-64 and cross (head = interaction).

python -m benchmarks.korean DATA --korean-base FOLDER --output FILE [--parts korsts,chatbot]
    [--bases minilm,korean] [--seeds 0,1,2] [--epochs 4 | --steps 200]

FOLDER is what benchmarks.korean_base makes. The other base is all-MiniLM-L6-v2, which was trained
on English and reads Hangul as jamo, so that texts are cut at 128 tokens for KorSTS, 64 for the
chatbot. The Korean base is smaller and has barely been trained: its learning rate is 2e-4, that of
MiniLM 5e-5. No dev text chooses a checkpoint: the last weights are kept. FILE
holds every result as it comes; a run that is started again computes what is missing.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from transformers.utils import logging

from benchmarks.dialogues import dev_examples, training_examples
from benchmarks.results_store import ResultsStore, table
from benchmarks.timing import machine
from polyrank import BiEncoder
from polyrank.data.loading import load_records
from polyrank.evaluation.pairs import evaluate_pairs
from polyrank.evaluation.ranking import evaluate_examples
from polyrank.folder_files import sha256_of
from polyrank.models.checkpoint import ARCHITECTURES
from polyrank.models.source import default_base
from polyrank.progress import quieten_libraries
from polyrank.records import LabelledPair
from polyrank.runtime import set_seed
from polyrank.training.config import TrainingConfig
from polyrank.training.objectives.registry import ObjectiveConfig
from polyrank.training.run import train

Plan = tuple[str, ...]
PLANS: dict[str, Plan] = {
    "untrained": (),
    "KorSTS, regression": ("regression",),
    "KorSTS, cosent": ("cosent",),
    "KorNLI → KorSTS, regression": ("classification", "regression"),
}
"""The objectives of each way to train, one after the other."""
CHATBOT: dict[str, tuple[str, dict[str, Any]]] = {
    "bi": ("bi", {}),
    "poly-64": ("poly", {"num_codes": 64}),
    "cross": ("cross", {}),
}
FOLDER = "korsts_kornli"
FILES = {
    "classification": ("xnli.dev.ko.jsonl.xz", "nli"),
    "regression": ("sts-train.jsonl.xz", "sts"),
    "cosent": ("sts-train.jsonl.xz", "sts"),
    "dev": ("sts-dev.jsonl.xz", "sts"),
}
PAIR_LENGTH, CHATBOT_LENGTH = 128, 64
PAIR_BATCH, CHATBOT_BATCH = 16, 64
PARTS, BASES = ("korsts", "chatbot"), ("minilm", "korean")


class Base(NamedTuple):
    """An encoder to start from, and the peak learning rate that suits it."""

    name: str
    folder: Path
    learning_rate: float


def lengths(most: int) -> dict[str, Any]:
    """The settings that cut every text at `most` tokens."""
    return {"max_context_length": most, "max_candidate_length": most}


def load_pairs(options: argparse.Namespace, name: str) -> list[LabelledPair]:
    """The labelled pairs of a part."""
    file, format = FILES[name]
    found: Any = load_records(options.data / FOLDER / file, format=format, limit=options.limit)
    return list(found)


def correlate(options: argparse.Namespace, base: Base, plan: Plan, seed: int) -> dict[str, Any]:
    """Train a bi-encoder as planned; Spearman's correlation on KorSTS dev."""
    set_seed(seed)
    model = BiEncoder.from_pretrained(
        base.folder, device="cpu", shared_towers=True, **lengths(PAIR_LENGTH)
    )
    seconds = 0.0
    for stage in plan:
        config = TrainingConfig(
            batch_size=PAIR_BATCH,
            epochs=1 if stage == "classification" else options.epochs,
            max_steps=options.steps,
            learning_rate=base.learning_rate,
            evaluations=1,
            seed=seed,
        )
        objective = ObjectiveConfig(objective=stage)  # type: ignore[arg-type]
        with tempfile.TemporaryDirectory() as folder:
            output = Path(folder) / "model"
            pairs = load_pairs(options, stage)
            result = train(model, pairs, output, config, objective=objective, restart=True)
        seconds += result.seconds
    dev = load_pairs(options, "dev")
    return {**evaluate_pairs(model, dev), "pairs": len(dev), "seconds": round(seconds, 1)}


def reply(
    options: argparse.Namespace, base: Base, name: str, seed: int, trained: bool
) -> dict[str, Any]:
    """R@1 and MRR of a model on the chatbot's dev examples."""
    architecture, settings = CHATBOT[name]
    set_seed(seed)
    made: Any = ARCHITECTURES[architecture]
    model = made.from_pretrained(base.folder, device="cpu", **lengths(CHATBOT_LENGTH), **settings)
    seconds = 0.0
    if trained:
        config = TrainingConfig(
            batch_size=CHATBOT_BATCH,
            epochs=options.epochs,
            max_steps=options.steps,
            learning_rate=base.learning_rate,
            evaluations=1,
            seed=seed,
        )
        examples = training_examples(options.data, "korean_chatbot")
        with tempfile.TemporaryDirectory() as folder:
            result = train(model, examples, Path(folder) / "model", config, restart=True)
        seconds = result.seconds
    dev = dev_examples(options.data, "korean_chatbot", options.limit)
    found = evaluate_examples(model, dev)
    figures = {"recall@1": found.recall[1], "mrr": found.mrr}
    return {**figures, "examples": len(dev), "seconds": round(seconds, 1)}


def mean(values: Sequence[float]) -> float:
    """The mean of a few numbers."""
    return sum(values) / len(values)


def settings_of(
    options: argparse.Namespace, base: Base, trained: bool, rate: float
) -> dict[str, Any]:
    """What the results of a base depend on, beside the plan or the model and the seed."""
    common = {"base": base.name, "limit": options.limit}
    if not trained:
        return common
    length = {"epochs": options.epochs} if options.steps is None else {"steps": options.steps}
    return {**common, **length, "lr": rate}


def correlations(options: argparse.Namespace, store: ResultsStore, base: Base) -> list[list[Any]]:
    """The rows of KorSTS for one base."""
    rows = []
    for name, plan in PLANS.items():
        start = settings_of(options, base, bool(plan), base.learning_rate)
        found = []
        for seed in options.seeds if plan else options.seeds[:1]:
            settings = {"set": "korsts", **start, "plan": name, "seed": seed}
            compute = partial(correlate, options, base, plan, seed)
            found.append(store.get(settings, compute)["spearman"])
        by_seed = " ".join(f"{value:.3f}" for value in found)
        rows.append([base.name, name, mean(found), by_seed])
    return rows


def replies(options: argparse.Namespace, store: ResultsStore, base: Base) -> list[list[Any]]:
    """The rows of the chatbot for one base. Untrained is bi alone: the codes of poly and the head
    of cross know nothing yet.
    """
    rows = []
    for name, trained in [("bi", False), *((name, True) for name in CHATBOT)]:
        rate = base.learning_rate
        start = settings_of(options, base, trained, rate)
        found = []
        for seed in options.seeds if trained else options.seeds[:1]:
            settings = {"set": "chatbot", **start, "model": name, "trained": trained, "seed": seed}
            compute = partial(reply, options, base, name, seed, trained)
            found.append(store.get(settings, compute))
        figures = [mean([each[key] for each in found]) for key in ("recall@1", "mrr")]
        by_seed = " ".join(f"{each['recall@1']:.3f}" for each in found)
        rows.append([base.name, name, "trained" if trained else "untrained", *figures, by_seed])
    return rows


def chosen_bases(options: argparse.Namespace) -> list[Base]:
    """The bases asked for; the name of the Korean one tells its weights by their digest."""
    bases = []
    if "minilm" in options.bases:
        bases.append(Base("all-MiniLM-L6-v2", default_base(), 5e-5))
    if "korean" in options.bases and options.korean_base is not None:
        digest = sha256_of(options.korean_base / "model.safetensors")[:8]
        rate = options.korean_learning_rate
        bases.append(Base(f"korean-{digest}", options.korean_base, rate))
    return bases


def run(options: argparse.Namespace) -> None:
    """Everything that the file does not hold yet, then a table of each part."""
    store = ResultsStore(options.output)
    bases = chosen_bases(options)
    if "korsts" in options.parts:
        pairs = [row for base in bases for row in correlations(options, store, base)]
        print(table(["base", "trained on", "KorSTS dev, Spearman", "by seed"], pairs))
    if "chatbot" in options.parts:
        answers = [row for base in bases for row in replies(options, store, base)]
        print(table(["base", "model", "", "korean_chatbot R@1/20", "MRR", "by seed"], answers))


def words(known: Sequence[str], given: str) -> list[str]:
    """Names with commas between them, each one that is known."""
    found = given.split(",")
    if not set(found) <= set(known):
        raise argparse.ArgumentTypeError(f"expected some of {','.join(known)}, got {given}")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--korean-base", type=Path, help="folder made by benchmarks.korean_base")
    parser.add_argument("--output", type=Path, required=True, help="JSON file of results")
    parser.add_argument("--parts", type=partial(words, PARTS), default=list(PARTS))
    parser.add_argument("--bases", type=partial(words, BASES), default=list(BASES))
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--epochs", type=float, default=4.0, help="of KorSTS and the chatbot")
    parser.add_argument("--steps", type=int, help="of every training, in the place of epochs")
    parser.add_argument("--korean-learning-rate", type=float, default=2e-4)
    parser.add_argument("--limit", type=int, help="records of every file of pairs, dev examples")
    options = parser.parse_args()
    options.seeds = [int(seed) for seed in options.seeds.split(",")]
    quieten_libraries()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    print(machine())
    run(options)


if __name__ == "__main__":
    main()
