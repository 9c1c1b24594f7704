"""Reranking the candidates of one context: read once with all of them, or anew with each.

Two cross-encoders with the same weights, in the same precision, score 100 and 1,000 candidates of
20 tokens behind a context of 128, in turns; every round has another context. Tokenising counts. The
ratio is the median over the rounds. With `--head interaction` the gates differ: one for each head
of each layer where the context is read once, one for each layer otherwise.

python -m benchmarks.once_latency [--counts 100,1000 --context 128 --candidate 20 --rounds 7]
    [--head linear] [--base FOLDER] [--dtype auto] [--device auto] [--threads 2]
"""

from __future__ import annotations

import argparse
import itertools
import random
import statistics
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from benchmarks.results_store import table
from benchmarks.timing import interleaved, machine, median_ratio
from polyrank import CrossEncoder
from polyrank.models.source import default_base
from polyrank.progress import quieten_libraries

READINGS = ("pairs", "once")


def models(options: argparse.Namespace) -> dict[str, CrossEncoder]:
    """The two models by how they read; the second gets the weights of the first."""
    made = {}
    for reading in READINGS:
        torch.manual_seed(0)
        made[reading] = CrossEncoder.from_pretrained(
            options.base or default_base(),
            device=options.device,
            dtype=options.dtype,
            head=options.head,
            reading=reading,
            max_context_length=options.context,
            max_candidate_length=options.candidate,
        )
    weights = made["pairs"].state_dict()
    own = made["once"].state_dict()
    same = {name: one for name, one in weights.items() if own[name].shape == one.shape}
    made["once"].load_state_dict({**own, **same})
    print(f"the same: {len(same)} of {len(own)} tensors")
    return made


def texts(model: CrossEncoder, count: int, length: int, seed: int) -> list[str]:
    """Texts of so many tokens: words that are one token each."""
    vocabulary: Any = model.tokenizer.pretrained.get_vocab()
    pieces = (piece.removeprefix("Ġ") for piece in vocabulary)  # what byte pairs put before words
    words = sorted({one for one in pieces if one.isascii() and one.isalpha() and len(one) > 2})
    draw = random.Random(seed)
    return [" ".join(draw.choices(words, k=length)) for _ in range(count)]


def asker(model: CrossEncoder, contexts: list[str], candidates: list[str]) -> Callable[[], object]:
    """What scores all candidates for the next context."""
    following: Iterator[str] = itertools.cycle(contexts)
    return lambda: model.score(next(following), candidates)


def measure(options: argparse.Namespace) -> list[list[Any]]:
    """A row for each number of candidates: milliseconds of both ways, and the ratio."""
    made = models(options)
    contexts = texts(made["pairs"], options.rounds + 1, options.context, 0)
    rows = []
    for count in options.counts:
        candidates = texts(made["pairs"], count, options.candidate, 1)
        ways = {name: asker(model, contexts, candidates) for name, model in made.items()}
        seconds = interleaved(ways, options.rounds)
        medians = [1000 * statistics.median(seconds[name]) for name in READINGS]
        rows.append([count, *(round(each, 1) for each in medians)])
        rows[-1].append(round(median_ratio(seconds, "pairs", "once"), 2))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    counts: Any = lambda text: list(map(int, text.split(",")))  # noqa: E731
    parser.add_argument("--counts", type=counts, default=[100, 1000])
    parser.add_argument("--context", type=int, default=128)
    parser.add_argument("--candidate", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--head", choices=("linear", "interaction"), default="linear")
    parser.add_argument("--base", type=Path)
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--threads", type=int)
    options = parser.parse_args()
    quieten_libraries()
    if options.threads:
        torch.set_num_threads(options.threads)
    rows = measure(options)
    print(f"context {options.context}, candidates {options.candidate} tokens, {options.head} head")
    print(machine())
    print(table(["candidates", "pairs, ms", "once, ms", "times as fast"], rows))


if __name__ == "__main__":
    main()
