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
    """A text that can be ranked, with the metadata that a search may filter by."""

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

    `candidates`, if given, holds the response at index `gold`. `negatives` are wrong responses to
    train against. `scores`, if given, are a teacher's: of the response first, then of each
    negative.
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

    `class_name` is the name of the class, if it has one.
    """

    first: str | tuple[str, ...]
    second: str
    label: float
    id: str | None = None
    class_name: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class ScoringInput:
    """A context and the texts that a model scores for it, without saying which is right."""

    context: str | tuple[str, ...]
    candidates: tuple[str, ...]
    id: str | None = None
    candidate_ids: tuple[str, ...] | None = None
    is_pair: bool = False
    """Whether it was given as two texts rather than with a list of candidates."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RetrievalSet:
    """A corpus to search, queries, and which candidates are relevant to each of them."""

    corpus: list[Candidate]
    """A text is "title text" if there is a title."""
    queries: dict[str, str | tuple[str, ...]]
    """Contexts by the id of the query; only queries of the split, which have judgements."""
    judgements: dict[str, dict[str, int]]
    """Grades by the id of the query and of the judged candidate; 0 is wrong."""
    split: str

    def examples(self) -> Iterator[Example]:
        """Yield each query with each candidate of a grade above 0 as an example."""
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
    """A text without markup, the places of its sentences (if it has been split) and its links."""

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
    """A page: its sections in order; the first is what comes before all headings."""

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
