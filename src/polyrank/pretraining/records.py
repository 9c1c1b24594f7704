"""The documents of a corpus: articles with sections and links, and conversations.

Offsets count characters of the paragraph's text, the end excluded.
"""

from __future__ import annotations

from typing import NamedTuple


class Link(NamedTuple):
    """A link of a paragraph: where its words are, and the title it leads to, redirects resolved."""

    start: int
    stop: int
    target: str


class Paragraph(NamedTuple):
    """A text without markup, where its sentences are, and its links."""

    text: str
    sentences: tuple[tuple[int, int], ...]
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
