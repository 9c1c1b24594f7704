"""The rules that turn proposals into negatives, and what each rule dropped.

Knows texts and scores; knows nothing of where they come from.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from polyrank.data.answers import folded
from polyrank.records import Example
from polyrank.training.negatives.config import NegativesConfig
from polyrank.training.negatives.pool import Numbered, Pool, Proposals
from polyrank.training.teaching.teacher import Teacher


@dataclass(slots=True)
class Choice:
    """The negatives of one example while they are chosen: the texts not yet looked at, in order,
    of which those from `fill` on are random ones.
    """

    waiting: list[str]
    fill: int
    taken: list[str]
    scores: list[float]
    looked_at: int = 0


def choose(
    block: Sequence[Numbered],
    proposals: Sequence[Proposals],
    pool: Pool,
    config: NegativesConfig,
    *,
    ranked: bool,
    cross: Teacher | None = None,
) -> tuple[list[Example], Counter[str]]:
    """The examples of a block with their negatives, and the counts of what every rule did.

    `ranked`: the window and the drawing apply. With a cross-encoder, the negatives pass its
    limits and the examples carry its scores, of the response first.
    """
    counts: Counter[str] = Counter()
    choices = [
        begin(numbered, proposed, pool, config, ranked, counts)
        for numbered, proposed in zip(block, proposals, strict=True)
    ]
    if cross is None:
        for choice in choices:
            for place in next_places(choice, config.num_negatives):
                take(choice, place, counts)
        positives: list[float] | None = None
    else:
        positives = filter_by_cross(block, choices, config, cross, counts)
    chosen = []
    for row, (_, example) in enumerate(block):
        choice = choices[row]
        counts["replaced"] += len(example.negatives)
        few = len(choice.taken) < config.num_negatives
        counts["short"] += few
        counts["without"] += not choice.taken
        if few and config.missing == "drop":
            counts["left_out"] += 1
            continue
        counts["kept"] += len(choice.taken)
        scores = None if positives is None else (positives[row], *choice.scores)
        chosen.append(replace(example, negatives=tuple(choice.taken), scores=scores))
    counts["examples"] += len(chosen)
    return chosen, counts


def begin(
    numbered: Numbered,
    proposed: Proposals,
    pool: Pool,
    config: NegativesConfig,
    ranked: bool,
    counts: Counter[str],
) -> Choice:
    """What is left of the proposals after all rules but the cross-encoder's, in its order."""
    place, example = numbered
    counts["proposed"] += len(proposed.texts)
    seen: set[str] = set()
    rows = []
    for row, text in enumerate(proposed.texts):
        if pool.is_right(example, text):
            counts["right"] += 1
        elif folded(text) not in seen:
            seen.add(folded(text))
            rows.append(row)
    if ranked:
        window = rows[config.from_rank - 1 : config.to_rank]
        counts["outside_window"] += len(rows) - len(window)
        rows = within_limits(proposed, window, config, counts)
        if config.pick == "random":
            random.Random(f"{config.seed}:{place}:pick").shuffle(rows)
    waiting = [proposed.texts[row] for row in rows]
    fill = len(waiting)
    if config.missing == "fill":
        for text in pool.draw(numbered, config.num_negatives, config.seed):
            if not pool.is_right(example, text) and folded(text) not in seen:
                seen.add(folded(text))
                waiting.append(text)
    return Choice(waiting=waiting, fill=fill, taken=[], scores=[])


def within_limits(
    proposed: Proposals, rows: list[int], config: NegativesConfig, counts: Counter[str]
) -> list[int]:
    """The rows whose score in the search is low enough."""
    limits = config.search_limits
    if not limits or proposed.scores is None:
        return rows
    ceiling = limits.ceiling(0.0 if proposed.positive is None else proposed.positive)
    low = [row for row in rows if proposed.scores[row] <= ceiling]
    counts["too_close"] += len(rows) - len(low)
    return low


def next_places(choice: Choice, count: int) -> range:
    """The places of the texts to look at next, so that there may be `count` negatives."""
    start = choice.looked_at
    choice.looked_at = min(start + count - len(choice.taken), len(choice.waiting))
    return range(start, choice.looked_at)


def take(choice: Choice, place: int, counts: Counter[str]) -> None:
    """Make a negative of the text at a place."""
    counts["filled"] += place >= choice.fill
    choice.taken.append(choice.waiting[place])


def filter_by_cross(
    block: Sequence[Numbered],
    choices: Sequence[Choice],
    config: NegativesConfig,
    cross: Teacher,
    counts: Counter[str],
) -> list[float]:
    """Fill the choices with what the cross-encoder finds wrong; gives its scores of the responses.

    Only as many texts are scored as are needed, those of all examples together, so that the
    cross-encoder reads large blocks.
    """
    limits, count = config.reranker_limits, config.num_negatives
    examples = [numbered.example for numbered in block]
    positives = cross.score([(example.context, example.response) for example in examples])
    while True:
        wanted = [
            (row, place)
            for row, choice in enumerate(choices)
            for place in next_places(choice, count)
        ]
        if not wanted:
            return positives
        scores = cross.score(
            [(examples[row].context, choices[row].waiting[place]) for row, place in wanted]
        )
        for (row, place), score in zip(wanted, scores, strict=True):
            if score > limits.ceiling(positives[row]):
                counts["false_negatives"] += 1
            else:
                take(choices[row], place, counts)
                choices[row].scores.append(score)
