"""What negatives are taken from, and what is right and so never one. Knows nothing of methods."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from polyrank.data.formats.beir import RetrievalSet
from polyrank.errors import DataError
from polyrank.records import Candidate, Example


class Numbered(NamedTuple):
    """An example and its place in the data, which seeds what is drawn for it."""

    place: int
    example: Example


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
    """Examples, the candidates that are their possible negatives, and what is right for each."""

    def __init__(self, examples: Sequence[Example], candidates: Sequence[Candidate]) -> None:
        """Raises DataError for no examples, or fewer than two different candidates."""
        self.examples = examples
        self.candidates = candidates
        if not examples:
            raise DataError("There are no examples to find negatives for.", "Give at least one.")
        if len({folded(candidate.text) for candidate in candidates}) < 2:
            raise DataError(
                f"Negatives need at least 2 different candidates, got {len(candidates)}.",
                "Give more examples, or a file of candidates.",
            )
        self.known: dict[str | tuple[str, ...], set[str]] = {}
        for example in examples:
            context = example.context
            known = self.known.setdefault(context, set())
            known.add(folded(example.response))
            if isinstance(context, str):
                known.add(folded(context))

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

    @classmethod
    def of_retrieval(cls, data: RetrievalSet) -> Pool:
        """The relevant pairs and the whole corpus of a retrieval set."""
        return cls(list(data.examples()), data.corpus)

    def limited(self, limit: int | None) -> Pool:
        """The first `limit` examples, with all candidates and all that is known to be right."""
        if limit is not None:
            self.examples = self.examples[:limit]
        return self

    def is_right(self, example: Example, text: str) -> bool:
        """Whether a text is a known response of the context, or the context itself.

        Case and white space make no difference.
        """
        return folded(text) in self.known[example.context]


def folded(text: str) -> str:
    """A text without the differences that do not make it another one."""
    return " ".join(text.casefold().split())
