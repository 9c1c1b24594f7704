"""The tables of articles: passages, sentences and links by number; writing and reading.

A link names a title. Which article it means is resolved when all else is written, by 64 bits of a
hash: among 10 million titles, two share one with a probability of 3 in a million. While links are
resolved, 16 bytes for each article and a block of links are in memory.
"""

from __future__ import annotations

import hashlib
import shutil
from bisect import bisect_right
from collections.abc import Mapping
from pathlib import Path

from polyrank.pretraining.pairs import link_key, page_key, passage_key, rest_key
from polyrank.pretraining.passages import Piece, count_words, passages_of, unique
from polyrank.pretraining.split import TablesSettings
from polyrank.pretraining.table_files import Columns, OneBlockTable, Spool
from polyrank.records import Article, Document

TABLES: Mapping[str, Columns] = {
    "articles": {
        "id": "text",
        "title": "text",
        "passages_start": "uint64",
        "rest_start": "uint64",
        "passages_stop": "uint64",
        "leads_start": "uint64",
        "leads_stop": "uint64",
    },
    "passages": {
        "text": "text",
        "article": "uint32",
        "sentences_start": "uint64",
        "sentences_stop": "uint64",
        "links_start": "uint64",
        "links_stop": "uint64",
    },
    "sentences": {"start": "uint32", "stop": "uint32"},
    "links": {"article": "uint32"},
    "leads": {"sentence": "uint64"},
    "ict": {"sentence": "uint64"},
    "bfs": {"sentence": "uint64"},
    "following": {"sentence": "uint64"},
}
"""The tables of one side, each a file NAME.arrow. Numbers of rows count from 0; a range of rows
goes from its start to before its stop."""
HASHES: Mapping[str, Columns] = {
    "titles": {"hash": "uint64"},
    "targets": {"hash": "uint64"},
    "passages": {"targets_stop": "uint64"},
}
"""What links are resolved from: of each article, of each link, of each passage."""
SPOOL = "spool"
PASSAGES_AT_ONCE = 1 << 16


class ArticleTables:
    """One side of a corpus of articles: A articles, P passages, S sentences, all from 0.

    The passages of an article follow each other, those of its first section before the rest; so do
    the sentences of a passage.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        articles = OneBlockTable(folder, "articles")
        self.ids, self.titles = articles.text_sequence("id"), articles.text_sequence("title")
        self.passages_start = articles.sequence("passages_start")
        self.rest_start = articles.sequence("rest_start")
        """(A): its first passage that is not of its first section."""
        self.passages_stop = articles.sequence("passages_stop")
        self.leads_start = articles.sequence("leads_start")
        self.leads_stop = articles.sequence("leads_stop")
        """(A): its lead sentences among `leads`."""
        passages = OneBlockTable(folder, "passages")
        self.passages = passages.text_sequence("text")
        self.article = passages.sequence("article")
        """(P)"""
        self.sentences_start = passages.sequence("sentences_start")
        self.sentences_stop = passages.sequence("sentences_stop")
        self.links_start = passages.sequence("links_start")
        self.links_stop = passages.sequence("links_stop")
        sentences = OneBlockTable(folder, "sentences")
        self.starts, self.stops = sentences.sequence("start"), sentences.sequence("stop")
        """(S): characters of the passage."""
        self.links = OneBlockTable(folder, "links").sequence("article")
        """Articles that passages link to: others than their own, of this side, each once a passage,
        and only such as have a lead sentence."""
        self.leads = OneBlockTable(folder, "leads").sequence("sentence")
        """The sentences of first sections that can be queries."""
        self.ict = OneBlockTable(folder, "ict").sequence("sentence")
        """The sentences that can be queries, of passages with at least two different ones."""
        self.bfs = OneBlockTable(folder, "bfs").sequence("sentence")
        """The lead sentences of articles that have passages outside the first section."""
        self.following = OneBlockTable(folder, "following").sequence("sentence")
        """The sentences that are not the first of their passage."""

    def __reduce__(self) -> tuple[type[ArticleTables], tuple[Path]]:
        return type(self), (self.folder,)

    def passage_of(self, sentence: int) -> int:
        """The passage of a sentence."""
        return bisect_right(self.sentences_stop, sentence)

    def spans(self, passage: int) -> list[tuple[int, int]]:
        """Where the sentences of a passage are in its text."""
        start, stop = self.sentences_start[passage], self.sentences_stop[passage]
        starts, stops = self.starts[start:stop], self.stops[start:stop]
        return list(zip(starts.tolist(), stops.tolist(), strict=True))

    def sentence(self, number: int) -> str:
        """The text of a sentence."""
        text = self.passages[self.passage_of(number)]
        return text[self.starts[number] : self.stops[number]]

    def title(self, passage: int) -> str:
        """The title of a passage's article."""
        return self.titles[self.article[passage]]

    def is_lead(self, passage: int) -> bool:
        """Whether a passage is of the first section."""
        return passage < self.rest_start[self.article[passage]]

    def passages_of(self, article: int) -> range:
        """The passages of an article."""
        return range(self.passages_start[article], self.passages_stop[article])

    def rest_of(self, article: int) -> range:
        """The passages of an article outside its first section."""
        return range(self.rest_start[article], self.passages_stop[article])

    def leads_of(self, article: int) -> range:
        """The lead sentences of an article, among `leads`."""
        return range(self.leads_start[article], self.leads_stop[article])

    def links_of(self, passage: int) -> list[int]:
        """The articles that a passage links to."""
        return self.links[self.links_start[passage] : self.links_stop[passage]].tolist()

    def answers(self, passage: int) -> frozenset[int]:
        """The keys that a passage answers as a document, for the queries of all tasks."""
        keys = [passage_key(passage), page_key(self.article[passage])]
        if not self.is_lead(passage):
            keys.append(rest_key(self.article[passage]))
        keys += map(link_key, self.links_of(passage))
        return frozenset(keys)


class ArticleBuilder:
    """Writes one side of a corpus of articles."""

    def __init__(self, folder: Path, settings: TablesSettings) -> None:
        self._folder = folder
        self._settings = settings
        spool = folder / SPOOL
        spool.mkdir()
        self._tables = {name: Spool(spool, name, columns) for name, columns in TABLES.items()}
        self._hashes = {
            name: Spool(spool, f"hashed_{name}", layout) for name, layout in HASHES.items()
        }

    def add(self, article: Document) -> None:
        """Append an article; one without a passage is left out."""
        assert isinstance(article, Article)
        lead: list[Piece] = []
        rest: list[Piece] = []
        for number, section in enumerate(article.sections):
            is_first = number == 0 and section.level == 1
            (lead if is_first else rest).extend(passages_of(section, self._settings.passage_words))
        if not lead and not rest:
            return
        articles, leads = self._tables["articles"], self._tables["leads"]["sentence"]
        passages = self._tables["passages"]["text"]
        articles["id"].append(article.id)
        articles["title"].append(article.title)
        self._hashes["titles"]["hash"].append(title_hash(article.title))
        articles["passages_start"].append(len(passages))
        articles["leads_start"].append(len(leads))
        queries = [sentence for piece in lead for sentence in self._add_passage(piece)]
        articles["rest_start"].append(len(passages))
        for piece in rest:
            self._add_passage(piece)
        leads.extend(queries)
        if rest:
            self._tables["bfs"]["sentence"].extend(queries)
        articles["passages_stop"].append(len(passages))
        articles["leads_stop"].append(len(leads))

    def _add_passage(self, piece: Piece) -> list[int]:
        """Append a passage; returns its sentences that can be queries."""
        passages, sentences = self._tables["passages"], self._tables["sentences"]
        start = len(sentences["start"])
        texts = [piece.text[first:last] for first, last in piece.sentences]
        queries = [
            start + number
            for number, text in enumerate(texts)
            if count_words(text) >= self._settings.min_query_words
        ]
        sentences["start"].extend(first for first, _ in piece.sentences)
        sentences["stop"].extend(last for _, last in piece.sentences)
        self._tables["following"]["sentence"].extend(range(start + 1, start + len(texts)))
        if len(set(texts)) > 1:
            self._tables["ict"]["sentence"].extend(queries)
        targets = self._hashes["targets"]["hash"]
        targets.extend(map(title_hash, unique(piece.targets)))
        self._hashes["passages"]["targets_stop"].append(len(targets))
        passages["text"].append(piece.text)
        passages["article"].append(len(self._tables["articles"]["passages_stop"]))
        passages["sentences_start"].append(start)
        passages["sentences_stop"].append(start + len(texts))
        return queries

    def finish(self) -> dict[str, int]:
        """Resolve the links, write the tables, and count."""
        self._resolve_links()
        for name, table in self._tables.items():
            table.write(self._folder / f"{name}.arrow")
        links = len(self._tables["links"]["article"])
        counts = {
            "articles": len(self._tables["articles"]["id"]),
            "passages": len(self._tables["passages"]["text"]),
            "sentences": len(self._tables["sentences"]["start"]),
            "lead_sentences": len(self._tables["leads"]["sentence"]),
            "links": links,
            "links_left_out": len(self._hashes["targets"]["hash"]) - links,
            "ict": len(self._tables["ict"]["sentence"]),
            "bfs": len(self._tables["bfs"]["sentence"]),
        }
        shutil.rmtree(self._folder / SPOOL)
        return counts

    def _resolve_links(self) -> None:
        """Write the links; of two articles with one title, the first is meant."""
        import numpy as np

        articles, passages = self._tables["articles"], self._tables["passages"]
        links = self._tables["links"]["article"]
        titles, first = np.unique(self._hashes["titles"]["hash"].numpy(), return_index=True)
        has_lead = articles["leads_stop"].numpy() > articles["leads_start"].numpy()
        targets = self._hashes["targets"]["hash"].numpy()
        targets_stop = self._hashes["passages"]["targets_stop"].numpy()
        owners = passages["article"].numpy()
        for begin in range(0, len(targets_stop), PASSAGES_AT_ONCE):
            block = slice(begin, begin + PASSAGES_AT_ONCE)
            before = targets_stop[begin - 1 : begin] if begin else [0]
            starts = np.concatenate([before, targets_stop[block]]).astype(np.int64)
            numbers = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
            wanted = targets[starts[0] : starts[-1]]
            places = np.minimum(np.searchsorted(titles, wanted), max(0, len(titles) - 1))
            known = titles[places] == wanted
            numbers, linked = numbers[known], first[places[known]]
            good = (linked != owners[block][numbers]) & has_lead[linked]
            pairs = np.unique(numbers[good] << 32 | linked[good])
            counts = np.bincount(pairs >> 32, minlength=len(starts) - 1)
            stops = len(links) + np.cumsum(counts)
            passages["links_start"].extend((stops - counts).tolist())
            passages["links_stop"].extend(stops.tolist())
            links.extend((pairs & 0xFFFFFFFF).tolist())


def title_hash(title: str) -> int:
    """64 bits of a title; white space and underscores are alike."""
    plain = " ".join(title.replace("_", " ").split()).encode("utf-8", "replace")
    return int.from_bytes(hashlib.blake2b(plain, digest_size=8).digest(), "little")
