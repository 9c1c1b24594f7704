"""Next utterance prediction before fine-tuning: R@1/20 of bi, poly-64 and cross with and without.

all-MiniLM-L6-v2 goes on with pre-training on the conversations of ubuntu_irc for `--steps`, by the
next utterance in the batch and masked tokens, and each architecture is then trained on the pairs of
ubuntu_irc from it, and from all-MiniLM-L6-v2 itself. So that the difference is not that of more
steps, a third row trains on the pairs for as many steps more.

python -m benchmarks.next_utterance DATA --work FOLDER --output FILE [--steps 160
    --tuning-steps 160 --batch 64 --models bi,poly,cross --seeds 0 --tasks next_utterance,mlm
    --starts none,next,longer]

FOLDER keeps corpus and encoder. FILE holds every result as it comes.
"""

from __future__ import annotations

import argparse
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.command import call
from benchmarks.dialogues import dev_examples, training_examples
from benchmarks.results_store import ResultsStore, table
from benchmarks.timing import machine
from polyrank.evaluation.ranking import evaluate_examples
from polyrank.models.checkpoint import ARCHITECTURES
from polyrank.models.source import default_base
from polyrank.progress import quieten_libraries
from polyrank.runtime import set_seed
from polyrank.training.config import TrainingConfig
from polyrank.training.run import train

SET = "ubuntu_irc"
LENGTHS = {"max_context_length": 128, "max_candidate_length": 64}
MODELS: dict[str, dict[str, Any]] = {
    "bi": {},
    "poly": {"num_codes": 64},
    "cross": {},
}
STARTS = {"none": "none", "next": "next utterance", "longer": "none, longer"}


def pretrained(options: argparse.Namespace) -> Path:
    """The encoder that has seen the conversations."""
    corpus = options.work / SET
    name = options.tasks.replace(",", "-").replace(":", "")
    folder: Path = options.work / f"{SET}-{name}-{options.steps}-{options.batch}"
    source = options.data / SET / "conversations.train.jsonl.xz"
    calls = []
    if not corpus.is_dir():
        calls.append(["corpus", str(source), "--language", "en", "--output", str(corpus)])
    if not folder.is_dir():
        given = ["pretrain", "--corpus", str(corpus), "--base", str(default_base())]
        given += ["--tasks", options.tasks, "--unrelated-utterances", "0", "--evaluations", "2"]
        given += ["--max-steps", str(options.steps), "--batch-size", str(options.batch)]
        given += ["--max-context-length", "128", "--max-candidate-length", "64"]
        given += ["--max-joined-length", "128", "--no-merge-speaker"]
        calls.append([*given, "--output", str(folder)])
    for arguments in calls:
        call(*arguments)
    return folder


def tuned(options: argparse.Namespace, name: str, start: str, seed: int) -> dict[str, Any]:
    """Train a model from a start; its figures on the dev examples."""
    base = pretrained(options) if start == "next utterance" else default_base()
    set_seed(seed)
    made: Any = ARCHITECTURES[name]
    own = dict(MODELS[name])
    if name != "cross":
        own["shared_towers"] = options.shared_towers
    model = made.from_pretrained(base, device="cpu", **LENGTHS, **own)
    steps = options.tuning_steps + (options.steps if start == "none, longer" else 0)
    config = TrainingConfig(batch_size=options.batch, max_steps=steps, evaluations=1, seed=seed)
    with tempfile.TemporaryDirectory() as folder:
        examples = training_examples(options.data, SET)
        result = train(model, examples, Path(folder) / "model", config, restart=True)
    found = evaluate_examples(model, dev_examples(options.data, SET, options.dev_limit))
    return {"recall@1": found.recall[1], "mrr": found.mrr, "seconds": round(result.seconds, 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--tasks", default="next_utterance,mlm")
    parser.add_argument("--steps", type=int, default=160)
    parser.add_argument("--tuning-steps", type=int, default=160)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--models", type=lambda text: text.split(","), default=list(MODELS))
    parser.add_argument("--starts", type=lambda text: text.split(","), default=list(STARTS))
    parser.add_argument("--seeds", type=lambda text: list(map(int, text.split(","))), default=[0])
    parser.add_argument("--dev-limit", type=int)
    parser.add_argument("--shared-towers", action="store_true", help="one tower in bi and poly")
    options = parser.parse_args()
    quieten_libraries()
    options.work.mkdir(parents=True, exist_ok=True)
    print(f"{machine()}; {options.steps} steps before {options.tuning_steps}, of {options.batch}")
    store = ResultsStore(options.output)
    rows = []
    for name in options.models:
        for start in map(STARTS.__getitem__, options.starts):
            found = []
            for seed in options.seeds:
                key = {
                    "model": name,
                    "start": start,
                    "seed": seed,
                    "tasks": options.tasks if start == "next utterance" else None,
                    "steps": None if start == "none" else options.steps,
                    "tuning": options.tuning_steps,
                    "batch": options.batch,
                    "shared": options.shared_towers or None,
                    "dev": options.dev_limit,
                }
                found.append(store.get(key, partial(tuned, options, name, start, seed)))
            means = [sum(one[key] for one in found) / len(found) for key in ("recall@1", "mrr")]
            rows.append([name, start, *means])
    print(table(["model", "before", "R@1/20", "MRR"], rows))


if __name__ == "__main__":
    main()
