"""The records that pass between the layers. Knows nothing of files, tokens or tensors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from types import MappingProxyType
from typing import NamedTuple

Context = str | Sequence[str]
"""A text, or the turns of a dialogue, oldest first."""


Value = str | int | float | bool
"""A value of a metadata field."""

NO_METADATA: Mapping[str, Value] = MappingProxyType({})


class Candidate(NamedTuple):
    """One text that can be ranked, and what a search may be filtered by."""

    id: str
    text: str
    metadata: Mapping[str, Value] = NO_METADATA


class Hit(NamedTuple):
    """One ranked candidate: its id, its score and its text."""

    id: str
    score: float
    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Example:
    """A context and its response.

    `candidates`, where given, holds the response at index `gold`. `negatives` are wrong
    responses to train against. `scores`, where given, are a teacher's: of the response first,
    then of each of the negatives.
    """

    context: str | tuple[str, ...]
    response: str
    id: str | None = None
    candidates: tuple[str, ...] | None = None
    gold: int | None = None
    negatives: tuple[str, ...] = ()
    scores: tuple[float, ...] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class LabelledPair:
    """Two texts and a label: a score from 0 to 1, or the number of a class, which is an `int`.

    `class_name` is the name of the class, where it has one.
    """

    first: str | tuple[str, ...]
    second: str
    label: float
    id: str | None = None
    class_name: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class ScoringInput:
    """A context and the texts that a model scores for it; which of them is right is not said."""

    context: str | tuple[str, ...]
    candidates: tuple[str, ...]
    id: str | None = None
    candidate_ids: tuple[str, ...] | None = None
    is_pair: bool = False
    """Whether it came as two texts, rather than as a list of candidates."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RetrievalSet:
    """A corpus to search, queries, and which candidates are relevant to each of them."""

    corpus: list[Candidate]
    """A text is "title text" where there is a title."""
    queries: dict[str, str | tuple[str, ...]]
    """From the id of a query to its context: only those of the split, which have judgements."""
    judgements: dict[str, dict[str, int]]
    """From the id of a query to the ids of its judged candidates and their grades; 0 is wrong."""
    split: str

    def examples(self) -> Iterator[Example]:
        """Yield (query, relevant candidate) as an example, for each of a grade above 0."""
        texts = {candidate.id: candidate.text for candidate in self.corpus}
        for query, grades in self.judgements.items():
            for identifier, grade in grades.items():
                if grade > 0:
                    yield Example(
                        id=f"{query}/{identifier}",
                        context=self.queries[query],
                        response=texts[identifier],
                    )

    def first(self, limit: int | None) -> RetrievalSet:
        """The set with only its first queries, and the whole corpus."""
        if limit is None or limit >= len(self.queries):
            return self
        return self.only(islice(self.queries, limit))

    def only(self, wanted: Iterable[str]) -> RetrievalSet:
        """The set with only the queries of some ids, in their order, and the whole corpus."""
        queries = {query: self.queries[query] for query in wanted}
        judgements = {query: self.judgements[query] for query in queries}
        return replace(self, queries=queries, judgements=judgements)


class Link(NamedTuple):
    """`text[start:stop]` of a paragraph leads to `target`: the title of an article, or its id."""

    start: int
    stop: int
    target: str


class Paragraph(NamedTuple):
    """A text without markup, where its sentences are (if it has been split), and its links."""

    text: str
    sentences: tuple[tuple[int, int], ...] = ()
    links: tuple[Link, ...] = ()

    def sentence(self, number: int) -> str:
        """The text of one sentence."""
        start, stop = self.sentences[number]
        return self.text[start:stop]


class Section(NamedTuple):
    """A heading and the paragraphs under it; the first of an article has no heading.

    `level` is 1 for the first, 2 for the highest headings, and so on.
    """

    heading: str
    level: int
    paragraphs: tuple[Paragraph, ...]


class Article(NamedTuple):
    """A page: its sections in order, the first of them what stands before all headings."""

    id: str
    title: str
    sections: tuple[Section, ...]


class Turn(NamedTuple):
    """What one speaker says."""

    speaker: str
    text: str


class Conversation(NamedTuple):
    """Turns in order."""

    id: str
    turns: tuple[Turn, ...]


Document = Article | Conversation
"""What a corpus holds. Offsets count characters of a paragraph's text, the end excluded."""
