"""A corpus to tables, in one pass over its documents, with memory that does not grow with them.

Only the links are resolved at the end (`linking.py`). The folder is written beside its place and
renamed into it.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Protocol

from polyrank.config import to_mapping
from polyrank.errors import UsageError
from polyrank.pretraining.columns import Writer
from polyrank.pretraining.linking import resolve, title_hash
from polyrank.pretraining.passages import Piece, count_words, passages_of, unique
from polyrank.pretraining.split import SPLITS, Split, SplitName
from polyrank.pretraining.tables import MANIFEST, VERSION, CorpusTables, Kind, TablesSettings
from polyrank.progress import bar
from polyrank.records import Article, Conversation, Document, Turn
from polyrank.storage import replaced_folder, write_text

RAW = "raw"


class Source(Protocol):
    """What tables are built from: a corpus on the disk, or anything like it."""

    @property
    def path(self) -> Path: ...  # noqa: D102

    @property
    def kind(self) -> Kind: ...  # noqa: D102

    @property
    def fingerprint(self) -> str: ...  # noqa: D102

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Document]: ...


def open_tables(
    corpus: Source, settings: TablesSettings | None = None, *, place: Path | None = None
) -> CorpusTables:
    """The tables of a corpus, built where they are not there yet: in `place`, or in its folder.

    Raises UsageError for a held-out id that the corpus does not have, DataError where the corpus is
    damaged, StorageError if the disk refuses.
    """
    settings = settings or TablesSettings()
    folder = tables_folder(place or Path(corpus.path), corpus.fingerprint, settings)
    if not (folder / MANIFEST).is_file():
        with bar("Building tables", total=len(corpus)) as advance:
            documents = counted(corpus, advance)
            build_tables(documents, corpus.kind, corpus.fingerprint, folder, settings)
    return CorpusTables(folder)


def tables_folder(place: Path, fingerprint: str, settings: TablesSettings) -> Path:
    """The folder of the tables of a corpus: one for each of its contents and each settings."""
    identity = json.dumps([VERSION, fingerprint, to_mapping(settings)])
    return place / f".tables-{hashlib.sha256(identity.encode()).hexdigest()[:16]}"


def counted(documents: Iterable[Document], advance: Callable[[int], None]) -> Iterator[Document]:
    """The documents, each reported when the next is taken."""
    for document in documents:
        yield document
        advance(1)


def build_tables(
    documents: Iterable[Document],
    kind: Kind,
    fingerprint: str,
    folder: Path,
    settings: TablesSettings,
) -> CorpusTables:
    """Write the tables of documents to `folder`; what stood there is replaced."""
    split = Split(settings)
    missing = set(settings.held_out_ids)
    with replaced_folder(folder) as fresh, ExitStack() as stack:
        sides: dict[SplitName, ArticleBuilder | ConversationBuilder] = {}
        for name in SPLITS:
            (fresh / name).mkdir()
            sides[name] = builder_of(kind, fresh / name, settings)
            stack.enter_context(sides[name])
        for document in documents:
            missing.discard(document.id)
            sides[split.of(document.id)].add(document)
        require_all_found(missing)
        stack.close()
        manifest = {
            "version": VERSION,
            "kind": kind,
            "fingerprint": fingerprint,
            "settings": to_mapping(settings),
            "counts": {name: sides[name].finish() for name in SPLITS},
        }
        write_text(fresh / MANIFEST, json.dumps(manifest, indent=2) + "\n")
    return CorpusTables(folder)


def builder_of(
    kind: Kind, folder: Path, settings: TablesSettings
) -> ArticleBuilder | ConversationBuilder:
    """What writes one side of a corpus."""
    return (ArticleBuilder if kind == "articles" else ConversationBuilder)(folder, settings)


def require_all_found(missing: set[str]) -> None:
    """Raise UsageError if ids that are to be held out are not in the corpus."""
    if missing:
        raise UsageError(
            f"{len(missing)} of the ids to hold out are not in the corpus, such as "
            f"{min(missing)!r}.",
            "Give ids of its documents.",
        )


class ArticleBuilder:
    """Writes one side of a corpus of articles."""

    def __init__(self, folder: Path, settings: TablesSettings) -> None:
        self._folder = folder
        self._settings = settings
        self._articles = self._passages = self._sentences = self._leads = self._targets = 0
        self._ict = self._bfs = 0

    def __enter__(self) -> ArticleBuilder:
        (self._folder / RAW).mkdir()
        self._raw = Writer(self._folder / RAW)
        self._raw.declare("titles.u64", "targets.u64", "ends.u64")
        self._writer = writer = Writer(self._folder)
        writer.declare_texts("titles", "ids", "passages")
        writer.declare("passage.article.u32", "sentence.starts.u32", "sentence.stops.u32")
        writer.declare("article.rest.u64", "leads.u64", "ict.u64", "bfs.u64", "following.u64")
        for name in ("article.passages.u64", "article.leads.u64", "passage.sentences.u64"):
            writer.declare(name)
            writer.append(name, [0])
        return self

    def __exit__(self, *error: Any) -> None:
        self._writer.__exit__(*error)
        self._raw.__exit__(*error)

    def add(self, article: Document) -> None:
        """Append an article; one without a passage is left out."""
        assert isinstance(article, Article)
        lead: list[Piece] = []
        rest: list[Piece] = []
        for number, section in enumerate(article.sections):
            first = number == 0 and section.level == 1
            (lead if first else rest).extend(passages_of(section, self._settings.passage_words))
        if not lead and not rest:
            return
        writer = self._writer
        writer.append_text("titles", article.title)
        writer.append_text("ids", article.id)
        self._raw.append("titles.u64", [title_hash(article.title)])
        leads = [sentence for piece in lead for sentence in self._passage(piece)]
        writer.append("article.rest.u64", [self._passages])
        for piece in rest:
            self._passage(piece)
        writer.append("leads.u64", leads)
        self._leads += len(leads)
        if rest:
            writer.append("bfs.u64", leads)
            self._bfs += len(leads)
        self._articles += 1
        writer.append("article.passages.u64", [self._passages])
        writer.append("article.leads.u64", [self._leads])

    def _passage(self, piece: Piece) -> list[int]:
        """Append a passage; returns its sentences that can be queries."""
        writer = self._writer
        texts = [piece.text[start:stop] for start, stop in piece.sentences]
        queries = [
            self._sentences + number
            for number, text in enumerate(texts)
            if count_words(text) >= self._settings.min_query_words
        ]
        writer.append_text("passages", piece.text)
        writer.append("sentence.starts.u32", (start for start, _ in piece.sentences))
        writer.append("sentence.stops.u32", (stop for _, stop in piece.sentences))
        writer.append("following.u64", range(self._sentences + 1, self._sentences + len(texts)))
        if len(set(texts)) > 1:
            writer.append("ict.u64", queries)
            self._ict += len(queries)
        targets = [title_hash(target) for target in unique(piece.targets)]
        self._raw.append("targets.u64", targets)
        self._targets += len(targets)
        self._raw.append("ends.u64", [self._targets])
        self._passages += 1
        self._sentences += len(texts)
        writer.append("passage.article.u32", [self._articles])
        writer.append("passage.sentences.u64", [self._sentences])
        return queries

    def finish(self) -> dict[str, int]:
        """Resolve the links when all else is written, and count."""
        links = resolve(self._folder / RAW, self._folder)
        shutil.rmtree(self._folder / RAW)
        return {
            "articles": self._articles,
            "passages": self._passages,
            "sentences": self._sentences,
            "lead_sentences": self._leads,
            "links": links,
            "links_left_out": self._targets - links,
            "ict": self._ict,
            "bfs": self._bfs,
        }


class ConversationBuilder:
    """Writes one side of a corpus of conversations."""

    def __init__(self, folder: Path, settings: TablesSettings) -> None:
        self._folder = folder
        self._merge = settings.merge_speaker
        self._conversations = self._turns = self._replies = 0

    def __enter__(self) -> ConversationBuilder:
        self._writer = Writer(self._folder)
        self._writer.declare_texts("ids", "turns")
        self._writer.declare("conversation.turns.u64", "replies.u64")
        self._writer.append("conversation.turns.u64", [0])
        return self

    def __exit__(self, *error: Any) -> None:
        self._writer.__exit__(*error)

    def add(self, conversation: Document) -> None:
        """Append a conversation; one without a text is left out."""
        assert isinstance(conversation, Conversation)
        texts = utterances(conversation.turns, merge=self._merge)
        if not texts:
            return
        for text in texts:
            self._writer.append_text("turns", text)
        self._writer.append("replies.u64", range(self._turns + 1, self._turns + len(texts)))
        self._writer.append_text("ids", conversation.id)
        self._turns += len(texts)
        self._replies += len(texts) - 1
        self._conversations += 1
        self._writer.append("conversation.turns.u64", [self._turns])

    def finish(self) -> dict[str, int]:
        """What was written."""
        return {
            "conversations": self._conversations,
            "turns": self._turns,
            "replies": self._replies,
        }


def utterances(turns: Iterable[Turn], *, merge: bool) -> list[str]:
    """The texts of turns without the blank ones; neighbours of one speaker as one if asked."""
    texts: list[str] = []
    last: str | None = None
    for turn in turns:
        text = turn.text.strip()
        if not text:
            continue
        if merge and turn.speaker and turn.speaker == last:
            texts[-1] += " " + text
        else:
            texts.append(text)
        last = turn.speaker
    return texts
