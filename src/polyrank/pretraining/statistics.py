"""What tasks draw from a corpus, in figures and examples, for people to judge.

Knows nothing of tokens: the caller brings the function that counts them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from polyrank.pretraining.pairs import FOLLOWS, RELATED, UNRELATED, Pair
from polyrank.pretraining.passages import count_words
from polyrank.pretraining.registry import find_task
from polyrank.pretraining.task import PretrainingTask

SEPARATOR = " [SEP] "
LABELS: Mapping[int | None, str] = {
    None: "",
    FOLLOWS: ", follows",
    UNRELATED: ", does not follow",
    RELATED: ", of the same conversation",
}
"""What a preview says of each label."""


class TaskStatistics(NamedTuple):
    """A task over a corpus; the means are of `sampled` of its pairs."""

    task: str
    split: str
    pairs: int
    sampled: int
    first_words: float
    second_words: float
    first_tokens: float | None
    second_tokens: float | None
    """Includes the title of the document; None if tokens are not counted."""
    positives: float | None
    """The share of pairs whose second text follows; None if pairs have no labels."""


def statistics(
    task: PretrainingTask[Any],
    *,
    count_tokens: Callable[[str], int] | None = None,
    sample: int = 2000,
) -> TaskStatistics:
    """Number of pairs, and mean lengths of a sample that depends on the task's seed alone."""
    pairs = list(task.sample(sample))
    labels = [pair.label for pair in pairs if pair.label is not None]
    firsts, seconds = [first_text(pair) for pair in pairs], [second_text(pair) for pair in pairs]
    plain = [f"{pair.second_title or ''} {pair.second}" for pair in pairs]
    return TaskStatistics(
        task=task.name,
        split=task.split,
        pairs=len(task),
        sampled=len(pairs),
        first_words=mean(map(count_words, firsts)),
        second_words=mean(map(count_words, plain)),
        first_tokens=None if count_tokens is None else mean(map(count_tokens, firsts)),
        second_tokens=None if count_tokens is None else mean(map(count_tokens, seconds)),
        positives=mean(label == FOLLOWS for label in labels) if labels else None,
    )


def mean(values: Iterable[float]) -> float:
    """The mean, 0 of nothing."""
    values = list(values)
    return sum(values) / len(values) if values else 0.0


def first_text(pair: Pair) -> str:
    """The first of a pair as people read it."""
    return pair.first if isinstance(pair.first, str) else SEPARATOR.join(pair.first)


def second_text(pair: Pair) -> str:
    """The second of a pair as people read it: "title [SEP] passage"."""
    return pair.second if pair.second_title is None else pair.second_title + SEPARATOR + pair.second


def statistics_lines(rows: Sequence[TaskStatistics]) -> list[str]:
    """A table of tasks, with the paper's figures if it has the task."""
    lines = [
        f"{'task':<16}{'pairs':>12}{'words':>16}{'tokens':>16}   "
        f"{'Chang et al.: pairs':>20}{'tokens':>16}"
    ]
    for row in rows:
        paper = find_task(row.task).paper
        tokens = "" if row.first_tokens is None else lengths(row.first_tokens, row.second_tokens)
        line = (
            f"{row.task:<16}{row.pairs:>12,}{lengths(row.first_words, row.second_words):>16}"
            f"{tokens:>16}   "
        )
        if paper is not None:
            pairs = f"{paper.pairs / 1e6:.1f}M"
            line += f"{pairs:>20}{lengths(paper.first_tokens, paper.second_tokens):>16}"
        lines.append(line.rstrip())
    return lines


def lengths(first: float, second: float | None) -> str:
    """The mean lengths of both texts of a pair."""
    return f"{first:.1f} / {second or 0.0:.1f}"


def preview(task: PretrainingTask[Any], count: int = 5) -> list[str]:
    """Some pairs as printed lines, with their texts unchanged, one per line."""
    lines = []
    for number, pair in enumerate(task.sample(count), start=1):
        lines.append(f"{task.name} {number}{LABELS[pair.label]}")
        lines.append(f"  < {one_line(first_text(pair))}")
        lines.append(f"  > {one_line(second_text(pair))}")
    return lines


def one_line(text: str) -> str:
    """A text without line breaks."""
    return " ".join(text.split())
