"""Negatives from the dialogue itself: what was said at another point of it."""

from __future__ import annotations

from collections.abc import Sequence

from polyrank.records import Example
from polyrank.training.negatives.pool import Numbered, Proposals

Turns = tuple[str, ...]


class DialogueNegatives:
    """The turns of the context, the newest first, then what was said after the response.

    What came after is found in the other examples: those whose context begins with this context
    and its response. A context that is a single text has no turns to offer.
    """

    ranked = False

    def __init__(self, examples: Sequence[Example]) -> None:
        beginnings = {begun(example) for example in examples if begun(example)}
        self.later: dict[Turns, dict[str, None]] = {}
        for example in examples:
            turns = begun(example)
            for length in range(2, len(turns)):
                if turns[:length] in beginnings:
                    later = self.later.setdefault(turns[:length], {})
                    later.update(dict.fromkeys(turns[length:]))

    def propose(self, block: Sequence[Numbered]) -> list[Proposals]:
        """The other turns of each dialogue."""
        proposals = []
        for _, example in block:
            turns = begun(example)
            said = (*reversed(turns[:-1]), *self.later.get(turns, ()))
            proposals.append(Proposals(texts=list(dict.fromkeys(said))))
        return proposals


def begun(example: Example) -> Turns:
    """The turns of a context and the response after them; nothing for a single text."""
    if isinstance(example.context, str):
        return ()
    return (*example.context, example.response)
