"""The records that pass between the layers. Knows nothing of files, tokens or tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
    """Two texts and a label: a score from 0 to 1, or the number of a class, which is an `int`."""

    first: str | tuple[str, ...]
    second: str
    label: float
    id: str | None = None


class Link(NamedTuple):
    """`text[start:end]` of a paragraph points to the document with id `target`."""

    start: int
    end: int
    target: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Paragraph:
    """A paragraph and the links inside it."""

    text: str
    links: tuple[Link, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Section:
    """A section; the first of a document has no title and is its lead."""

    title: str
    paragraphs: tuple[Paragraph, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Document:
    """A titled text in sections, with links to other documents."""

    id: str
    title: str
    sections: tuple[Section, ...]
