"""LoRA beside full fine-tuning of a bi-encoder on #ubuntu help chat: quality, memory and time.

MiniLM gets 160 steps of 64 pairs by the default settings, once with all weights trained and once
with adapters of rank 16. Each training has a process of its own, so that peak memory is its own.

python -m benchmarks.lora DATA --output DIR [--steps 160] [--rank 16] [--seed 0] [--threads 1]
python -m benchmarks.lora DATA --output DIR --choose 5e-4,1e-3,2e-3

DATA is the folder that holds ubuntu_irc. --choose compares learning rates of the adapters on
1,000 training examples that are held out, so that the dev examples choose nothing.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch

from benchmarks.dialogues import dev_examples, training_examples
from benchmarks.timing import machine
from polyrank.evaluation.ranking import evaluate_examples
from polyrank.evaluation.tasks import with_sampled_candidates
from polyrank.models.bi_encoder import BiEncoder
from polyrank.models.source import default_base
from polyrank.progress import quieten_libraries
from polyrank.records import Example
from polyrank.runtime import set_seed
from polyrank.training.config import TrainingConfig
from polyrank.training.run import train

LENGTHS: dict[str, Any] = {"max_context_length": 128, "max_candidate_length": 64}
NAME = "ubuntu_irc"
HELD_OUT = 1000
FIGURES = ("recall@1", "mrr")


def data_of(options: argparse.Namespace) -> tuple[list[Example], list[Example]]:
    """The examples to train on and those to judge by."""
    examples = training_examples(options.data, NAME)
    if options.choose is None:
        return examples, dev_examples(options.data, NAME)
    held = with_sampled_candidates(examples[-HELD_OUT:], 20, seed=0)
    known = {example.context for example in held}
    return [each for each in examples[:-HELD_OUT] if each.context not in known], held


def settings_of(options: argparse.Namespace) -> dict[str, TrainingConfig | None]:
    """The training of each model by its name; None is the base as it is."""
    usual: dict[str, Any] = {
        "batch_size": 64,
        "max_steps": options.steps,
        "evaluations": 1,
        "seed": options.seed,
    }
    full = TrainingConfig(**usual)
    if options.choose is not None:
        rates = [float(rate) for rate in options.choose.split(",")]
        adapted = {
            f"lora {rate:g}": TrainingConfig(
                **usual, lora_rank=options.rank, lora_learning_rate=rate
            )
            for rate in rates
        }
        return {"untrained": None, "full": full, **adapted}
    lora = TrainingConfig(**usual, lora_rank=options.rank)
    return {"untrained": None, "full": full, "lora": lora}


def measure(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """Train one model in this process and evaluate it."""
    quieten_libraries()
    torch.set_num_threads(options.threads)
    examples, judged = data_of(options)
    config = settings_of(options)[name]
    set_seed(options.seed)
    model = BiEncoder.from_pretrained(default_base(), **LENGTHS)
    row: dict[str, Any] = {"name": name, "dtype": str(model.compute_dtype)}
    if config is not None:
        folder = options.output / name.replace(" ", "-")
        result = train(model, examples, folder, config, restart=True, show_progress_bar=False)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        record = json.loads((folder / "training.json").read_text(encoding="utf-8"))
        row |= {
            "seconds": round(result.seconds, 1),
            "peak_mb": round(peak / 1024),
            "trained": record["parameters"]["trained"],
            "folder_mb": round(size_of(folder) / 1e6, 1),
        }
    figures = evaluate_examples(model, judged).to_json()
    return row | {figure: figures[figure] for figure in FIGURES}


def size_of(folder: Path) -> int:
    """The bytes of all files in a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=160)
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--seed", type=int, default=TrainingConfig().seed)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--choose", metavar="RATES")
    parser.add_argument("--only", help="Measure this one in this process.")
    options = parser.parse_args()
    if options.only is not None:
        print(json.dumps(measure(options.only, options)))
        return
    print(machine())
    rows = {}
    for name in settings_of(options):
        command = [sys.executable, "-m", "benchmarks.lora", *sys.argv[1:], "--only", name]
        found = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        rows[name] = json.loads(found.stdout.splitlines()[-1])
        print(json.dumps(rows[name]), flush=True)
    base, full = rows["untrained"], rows["full"]
    for name, row in rows.items():
        shares = [(row[each] - base[each]) / (full[each] - base[each]) for each in FIGURES]
        print(
            f"| {name} | {row['recall@1']:.4f} | {row['mrr']:.4f} | {shares[0]:.1%} | "
            f"{shares[1]:.1%} | {row.get('seconds', 0):.0f} | {row.get('peak_mb', 0)} | "
            f"{row.get('trained', 0):,} | {row.get('folder_mb', 0)} |"
        )


if __name__ == "__main__":
    main()
