"""The tables that tasks draw from: passages, sentences, links and turns of a corpus, by number.

    FOLDER/tables.json           corpus, settings, counts
    FOLDER/train, FOLDER/held_out   columns; each side has numbers of its own and links to itself

All of it is mapped. Nothing of one side can be reached from the other. `building.py` writes them.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from polyrank.config import require
from polyrank.errors import DataError
from polyrank.pretraining.columns import Numbers, Texts, numbers
from polyrank.pretraining.pairs import link_key, passage_key, rest_key
from polyrank.pretraining.split import SplitName, SplitSettings

VERSION = 1
MANIFEST = "tables.json"

Kind = Literal["articles", "conversations"]


@dataclass(frozen=True, kw_only=True)
class TablesSettings(SplitSettings):
    """How a corpus is divided. Raises UsageError for a value out of its range."""

    passage_words: int = 200
    """The words of a passage: paragraphs of a section are merged up to it, longer ones cut."""
    min_query_words: int = 4
    """Shorter sentences stay in their passages, but are no queries."""
    merge_speaker: bool = True
    """Whether neighbouring turns of one speaker are one turn."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.passage_words >= 1, "passage_words", "at least 1", self.passage_words)
        require(self.min_query_words >= 1, "min_query_words", "at least 1", self.min_query_words)


class ArticleTables:
    """One side of a corpus of articles: A articles, P passages, S sentences, all from 0.

    The passages of an article follow each other, those of its first section before the rest; so do
    the sentences of a passage.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.titles = Texts(folder, "titles")
        self.ids = Texts(folder, "ids")
        self.passages = Texts(folder, "passages")
        self.article_passages: Numbers = numbers(folder, "article.passages.u64")
        """(A + 1): where the passages of each article begin."""
        self.article_rest: Numbers = numbers(folder, "article.rest.u64")
        """(A): its first passage that is not of its first section."""
        self.article_leads: Numbers = numbers(folder, "article.leads.u64")
        """(A + 1): where its lead sentences begin among `leads`."""
        self.leads: Numbers = numbers(folder, "leads.u64")
        """The sentences of first sections that can be queries."""
        self.passage_article: Numbers = numbers(folder, "passage.article.u32")
        """(P)"""
        self.passage_sentences: Numbers = numbers(folder, "passage.sentences.u64")
        """(P + 1): where its sentences begin."""
        self.passage_links: Numbers = numbers(folder, "passage.links.u64")
        """(P + 1): where its links begin."""
        self.links: Numbers = numbers(folder, "links.u32")
        """Articles that passages link to: others than their own, of this side, each once a passage,
        and only such as have a lead sentence."""
        self.sentence_starts: Numbers = numbers(folder, "sentence.starts.u32")
        self.sentence_stops: Numbers = numbers(folder, "sentence.stops.u32")
        """(S): characters of the passage."""
        self.ict: Numbers = numbers(folder, "ict.u64")
        """The sentences that can be queries, of passages with at least two different ones."""
        self.following: Numbers = numbers(folder, "following.u64")
        """The sentences that are not the first of their passage."""
        self.bfs: Numbers = numbers(folder, "bfs.u64")
        """The lead sentences of articles that have passages outside the first section."""

    def __reduce__(self) -> tuple[type[ArticleTables], tuple[Path]]:
        return type(self), (self.folder,)

    def passage_of(self, sentence: int) -> int:
        """The passage of a sentence."""
        return bisect_right(self.passage_sentences, sentence) - 1

    def spans(self, passage: int) -> list[tuple[int, int]]:
        """Where the sentences of a passage are in its text."""
        start, stop = self.passage_sentences[passage], self.passage_sentences[passage + 1]
        starts, stops = self.sentence_starts[start:stop], self.sentence_stops[start:stop]
        return list(zip(starts.tolist(), stops.tolist(), strict=True))

    def sentence(self, number: int) -> str:
        """The text of a sentence."""
        text = self.passages[self.passage_of(number)]
        return text[self.sentence_starts[number] : self.sentence_stops[number]]

    def title(self, passage: int) -> str:
        """The title of a passage's article."""
        return self.titles[self.passage_article[passage]]

    def is_lead(self, passage: int) -> bool:
        """Whether a passage is of the first section."""
        return passage < self.article_rest[self.passage_article[passage]]

    def rest(self, article: int) -> range:
        """The passages of an article outside its first section."""
        return range(self.article_rest[article], self.article_passages[article + 1])

    def links_of(self, passage: int) -> list[int]:
        """The articles that a passage links to."""
        start, stop = self.passage_links[passage], self.passage_links[passage + 1]
        return self.links[start:stop].tolist()

    def answers(self, passage: int) -> frozenset[int]:
        """The keys that a passage answers as a document, for the queries of all tasks."""
        keys = [passage_key(passage)]
        if not self.is_lead(passage):
            keys.append(rest_key(self.passage_article[passage]))
        keys += map(link_key, self.links_of(passage))
        return frozenset(keys)


class ConversationTables:
    """One side of a corpus of conversations: C conversations, T turns, all from 0."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ids = Texts(folder, "ids")
        self.turns = Texts(folder, "turns")
        self.conversation_turns: Numbers = numbers(folder, "conversation.turns.u64")
        """(C + 1): where the turns of each conversation begin."""
        self.replies: Numbers = numbers(folder, "replies.u64")
        """The turns that are not the first of their conversation."""

    def __reduce__(self) -> tuple[type[ConversationTables], tuple[Path]]:
        return type(self), (self.folder,)

    def conversation_of(self, turn: int) -> int:
        """The conversation of a turn."""
        return bisect_right(self.conversation_turns, turn) - 1

    def before(self, turn: int, most: int) -> tuple[str, ...]:
        """The last turns before one, in its conversation, oldest first."""
        first = self.conversation_turns[self.conversation_of(turn)]
        return tuple(self.turns[number] for number in range(max(first, turn - most), turn))


class CorpusTables:
    """Both sides of a corpus. Raises DataError where the folder is none, or of another version.

    It can be sent to another process, which maps the same files.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        manifest = read_manifest(path)
        self.kind: Kind = manifest["kind"]
        self.fingerprint: str = manifest["fingerprint"]
        self.settings: dict[str, Any] = manifest["settings"]
        self.counts: dict[SplitName, dict[str, int]] = manifest["counts"]
        """Numbers of documents, passages, sentences, links, turns, … of each side."""
        self._sides: dict[SplitName, ArticleTables | ConversationTables] = {}

    def __reduce__(self) -> tuple[type[CorpusTables], tuple[Path]]:
        return type(self), (self.path,)

    def articles(self, split: SplitName) -> ArticleTables:
        """One side of a corpus of articles."""
        side = self._side(split)
        assert isinstance(side, ArticleTables)
        return side

    def conversations(self, split: SplitName) -> ConversationTables:
        """One side of a corpus of conversations."""
        side = self._side(split)
        assert isinstance(side, ConversationTables)
        return side

    def _side(self, split: SplitName) -> ArticleTables | ConversationTables:
        if split not in self._sides:
            folder = self.path / split
            kind = ArticleTables if self.kind == "articles" else ConversationTables
            self._sides[split] = kind(folder)
        return self._sides[split]


def read_manifest(path: Path) -> dict[str, Any]:
    """What the tables of a folder say of themselves. Raises DataError."""
    remedy = "Remove the folder; it is built again when next needed."
    try:
        manifest = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"The tables cannot be read: {error}.", remedy, path=path) from error
    if not isinstance(manifest, dict) or manifest.get("version") != VERSION:
        raise DataError(f"The tables are not of version {VERSION}.", remedy, path=path)
    return manifest
