"""Wrong responses, drawn from a training set during training.

What is drawn is never right for the context, by any example of the training set, and never repeats.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence

from polyrank.data.answers import KnownAnswers, text_identity
from polyrank.records import Example


class DrawnNegatives:
    """The different responses of a training set, of which each context may get those of others."""

    def __init__(self, examples: Sequence[Example], answers: KnownAnswers) -> None:
        """`answers`: what is right for each context of `examples`."""
        different: dict[int, str] = {}
        for example in examples:
            different.setdefault(text_identity(example.response), example.response)
        self.identities = list(different)
        self.texts = list(different.values())
        self.answers = answers

    def __len__(self) -> int:
        return len(self.texts)

    def wrong(self, example: Example, texts: Iterable[str]) -> dict[int, str]:
        """Those of some texts that are not right for an example, each once, by identity."""
        context, own = text_identity(example.context), own_texts(example)
        found: dict[int, str] = {}
        for text in texts:
            identity = text_identity(text)
            if identity not in own and not self.answers.is_right_pair(context, identity):
                found.setdefault(identity, text)
        return found

    def draw(
        self, example: Example, count: int, draw: random.Random, taken: Iterable[int] = ()
    ) -> list[str]:
        """`count` different responses that are not right for an example, or as many as there are.

        Each is as likely as any other. `taken`: identities of texts that the example has already.
        """
        context, passed_over = text_identity(example.context), own_texts(example).union(taken)
        chosen: list[str] = []
        for row in shuffled(len(self), draw):
            if len(chosen) >= count:
                break
            identity = self.identities[row]
            if identity not in passed_over and not self.answers.is_right_pair(context, identity):
                chosen.append(self.texts[row])
        return chosen


def own_texts(example: Example) -> set[int]:
    """The identities of an example's response and of its context, if it is a text.

    They are right for it even if the training set, as for a dev example, does not know it.
    """
    texts = [example.response, example.context]
    return {text_identity(text) for text in texts if isinstance(text, str)}


def shuffled(count: int, draw: random.Random) -> Iterator[int]:
    """Yield the numbers below `count` in random order; the cost is that of those that are taken."""
    moved: dict[int, int] = {}
    for place in range(count):
        other = draw.randrange(place, count)
        yield moved.get(other, other)
        moved[other] = moved.get(place, place)
