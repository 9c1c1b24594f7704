"""The candidates that negatives are taken from, and what is right and therefore never a negative.
Knows nothing of methods.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple, Protocol

from polyrank.data.answers import KnownAnswers, folded
from polyrank.errors import DataError
from polyrank.records import Candidate, Example
from polyrank.training.drawn_negatives import shuffled

SPARE = 8
"""Texts drawn for each that is needed, since some may be right or filtered out."""


class Numbered(NamedTuple):
    """An example and its place in the data, which seeds what is drawn for it."""

    place: int
    example: Example


def numbered_blocks(
    examples: Sequence[Example], start: int, block_size: int
) -> Iterator[list[Numbered]]:
    """Yield the examples from `start` on, in blocks, with their places."""
    for first in range(start, len(examples), block_size):
        yield [
            Numbered(place, example)
            for place, example in enumerate(examples[first : first + block_size], first)
        ]


@dataclass(frozen=True, kw_only=True, slots=True)
class Proposals:
    """Texts that may become negatives of one example, the best first.

    `scores` are those of the search, if there was one, and `positive` is its score of the
    response, if it is needed.
    """

    texts: Sequence[str]
    scores: Sequence[float] | None = None
    positive: float | None = None


class Proposer(Protocol):
    """A source of negatives."""

    ranked: bool
    """Whether what it proposes is ranked by a search."""

    def propose(self, block: Sequence[Numbered]) -> list[Proposals]:
        """Proposals for each example of a block; they may hold right responses."""
        ...


class Pool:
    """Examples, the candidates for their negatives, and what is right for each."""

    def __init__(
        self,
        examples: Sequence[Example],
        candidates: Sequence[Candidate],
        answers: KnownAnswers | None = None,
    ) -> None:
        """`answers`: what is right for each context; by default, what `examples` say.

        Raises DataError for no examples, or fewer than two different candidates.
        """
        if not examples:
            raise DataError("There are no examples to find negatives for.", "Give at least one.")
        if len({folded(candidate.text) for candidate in candidates}) < 2:
            raise DataError(
                f"Negatives need at least 2 different candidates, got {len(candidates)}.",
                "Give more examples, or a file of candidates.",
            )
        self.examples = examples
        self.candidates = candidates
        self.answers = KnownAnswers(examples) if answers is None else answers

    @classmethod
    def of_examples(cls, examples: Sequence[Example], candidates: Iterable[Candidate] = ()) -> Pool:
        """The different responses, or `candidates` in their place where there are some."""
        given = list(candidates)
        if not given:
            texts = {folded(each.response): each.response for each in reversed(examples)}
            given = [
                Candidate(str(place), text) for place, text in enumerate(reversed(texts.values()))
            ]
        return cls(examples, given)

    def limited(self, limit: int | None) -> Pool:
        """The first `limit` examples, with all candidates and everything known to be right."""
        return self if limit is None else Pool(self.examples[:limit], self.candidates, self.answers)

    def one_per_context(self) -> Pool:
        """The last example of each context, with all candidates and everything that is right."""
        last = {example.context: example for example in self.examples}
        return Pool(list(last.values()), self.candidates, self.answers)

    def is_right(self, example: Example, text: str) -> bool:
        """Whether a text is a known response of the context, or the context itself.

        Case and white space make no difference.
        """
        return self.answers.is_right(example.context, text)

    def draw(self, numbered: Numbered, num_negatives: int, seed: int) -> list[str]:
        """Random candidates for an example, a few more than `num_negatives`, each once."""
        generator = random.Random(f"{seed}:{numbered.place}")
        count = SPARE * num_negatives + self.answers.count(numbered.example.context)
        rows = islice(shuffled(len(self.candidates), generator), count)
        return [self.candidates[row].text for row in rows]
