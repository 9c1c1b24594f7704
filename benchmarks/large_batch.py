"""Peak memory and time of one training step, plain and through the gradient cache.

python -m benchmarks.large_batch --arch bi poly --dtype float32 bfloat16 --batch-sizes 64 512

Every context has 128 tokens and every candidate 64, the most that the settings allow; the base is
all-MiniLM-L6-v2 with two towers, the optimiser AdamW. Each measurement is a process of its own. A
plain step that would need more than --limit GiB is not let further.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import resource
import subprocess
import sys
import time
from functools import partial

import torch

from benchmarks.timing import machine
from polyrank import BiEncoder, PolyEncoder
from polyrank.models.source import default_base
from polyrank.models.two_tower import TwoTower
from polyrank.records import Example
from polyrank.runtime import DTYPES
from polyrank.training.config import TrainingConfig
from polyrank.training.encoders import prepare
from polyrank.training.objectives.registry import ObjectiveConfig, build
from polyrank.training.step import gradient_step

CONTEXT_TOKENS, CANDIDATE_TOKENS = 128, 64
SOME_WORDS = """time year people way day man thing woman life child world school state family
student group country problem hand part place case week company system program question work
number night point home water room mother area money story fact month lot right study book eye
job word"""
WORDS = SOME_WORDS.split()
GIB = 2**30


def long_texts(count: int, words: int, seed: int) -> list[str]:
    """Different texts of so many words."""
    draw = random.Random(seed)
    return [" ".join(draw.choices(WORDS, k=words)) for _ in range(count)]


def measure(arch: str, dtype: str, batch_size: int, way: str, steps: int) -> None:
    """Train a few steps in this process and print its peak memory and the seconds of the last."""
    lengths = {"max_context_length": CONTEXT_TOKENS, "max_candidate_length": CANDIDATE_TOKENS}
    kind = BiEncoder if arch == "bi" else PolyEncoder
    model: TwoTower = kind.from_pretrained(default_base(), device="cpu", dtype=dtype, **lengths)
    examples = [
        Example(context=context, response=response)
        for context, response in zip(
            long_texts(batch_size, CONTEXT_TOKENS, 0),
            long_texts(batch_size, CANDIDATE_TOKENS, 1),
            strict=True,
        )
    ]
    training = TrainingConfig(batch_size=batch_size)
    prepare(model, training)
    objective = ObjectiveConfig(gradient_cache="always" if way == "cached" else "never")
    setup = build(model, examples, training, objective)
    optimiser = torch.optim.AdamW(setup.module.parameters(), lr=1e-6, fused=True)
    autocast = contextlib.nullcontext
    if dtype != "float32":
        autocast = partial(torch.autocast, "cpu", dtype=DTYPES[dtype])  # type: ignore[assignment]
    setup.module.train()
    seconds = 0.0
    for _ in range(steps):
        started = time.perf_counter()
        step = setup.collator([setup.dataset[place] for place in range(batch_size)])
        loss = gradient_step(setup.module, step, autocast=autocast)
        optimiser.step()
        optimiser.zero_grad()
        seconds = time.perf_counter() - started
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / GIB
    print(f"{peak:6.2f} GiB  {seconds:7.1f} s a step  loss {loss.item():.4f}")


def in_own_process(arguments: argparse.Namespace, case: list[str]) -> str:
    """What a measurement prints, or why there is none."""
    limit = arguments.limit * GIB
    command = [sys.executable, "-m", "benchmarks.large_batch"]
    done = subprocess.run(
        [*command, "--one", *case, "--steps", str(arguments.steps)],
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_DATA, (limit, limit)),
    )
    if done.returncode == 0:
        return done.stdout.strip()
    if "memory" in done.stderr:
        return f"more than {arguments.limit} GiB"
    raise SystemExit(done.stderr)


def main() -> None:
    """Measure every combination, plain beside cached."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--arch", nargs="+", default=["bi", "poly"])
    parser.add_argument("--dtype", nargs="+", default=["float32", "bfloat16"])
    parser.add_argument("--batch-sizes", nargs="+", type=int, default=[64, 512])
    parser.add_argument("--steps", type=int, default=1)
    parser.add_argument("--limit", type=int, default=8, help="GiB that a process may take")
    parser.add_argument("--one", nargs=4, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        arch, dtype, batch_size, way = arguments.one
        measure(arch, dtype, int(batch_size), way, arguments.steps)
        return
    print(f"{CONTEXT_TOKENS} tokens a context, {CANDIDATE_TOKENS} a candidate; {machine()}")
    for arch in arguments.arch:
        for dtype in arguments.dtype:
            for batch_size in arguments.batch_sizes:
                for way in ("plain", "cached"):
                    found = in_own_process(arguments, [arch, dtype, str(batch_size), way])
                    print(f"{arch:5} {dtype:9} batch {batch_size:4} {way:7} {found}", flush=True)


if __name__ == "__main__":
    main()
