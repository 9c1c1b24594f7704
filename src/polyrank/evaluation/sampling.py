"""Candidates for examples that have none: the response among responses of other examples."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterable, Sequence

from polyrank.errors import DataError, UsageError
from polyrank.records import Example


def with_sampled_candidates(
    examples: Sequence[Example],
    num_candidates: int = 20,
    seed: int = 0,
    *,
    pool: Iterable[str] | None = None,
) -> list[Example]:
    """Examples with `num_candidates` candidates each; those that have candidates keep them.

    Distractors are distinct texts of `pool`, by default the responses of `examples`, and never the
    text of the response itself. The first examples get the same candidates however many follow, as
    long as the pool is the same. Raises UsageError for fewer than two candidates and DataError
    where the pool is too small.
    """
    if num_candidates < 2:
        raise UsageError(
            f"num_candidates must be at least 2, got {num_candidates}.",
            "Ask for the response and at least one distractor.",
        )
    responses = (example.response for example in examples) if pool is None else pool
    texts = list(dict.fromkeys(responses))
    generator = random.Random(seed)
    return [
        example
        if example.candidates is not None
        else sample(example, texts, num_candidates, generator)
        for example in examples
    ]


def sample(
    example: Example, texts: Sequence[str], num_candidates: int, generator: random.Random
) -> Example:
    """One example with candidates, its response at a random place among them."""
    drawn = generator.sample(range(len(texts)), min(num_candidates, len(texts)))
    distractors = [texts[i] for i in drawn if texts[i] != example.response][: num_candidates - 1]
    if len(distractors) < num_candidates - 1:
        raise DataError(
            f"{num_candidates - 1} distractors for each response were asked for, but there are "
            f"only {len(texts)} different responses.",
            "Ask for fewer candidates, give more examples, or give every example its candidates.",
        )
    gold = generator.randrange(num_candidates)
    candidates = (*distractors[:gold], example.response, *distractors[gold:])
    return dataclasses.replace(example, candidates=candidates, gold=gold)
