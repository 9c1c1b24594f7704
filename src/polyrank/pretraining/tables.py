"""The tables that tasks draw from: passages, sentences, links and turns of a corpus, by number.

    FOLDER/tables.json                 corpus, settings, counts, checksums
    FOLDER/train, FOLDER/held_out      Arrow files; each side has numbers of its own

Everything is memory-mapped. Nothing on one side can be reached from the other. Tables are built in
one pass over the documents, with constant memory, beside their place, and renamed into it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Protocol, get_args

from polyrank.config import to_mapping
from polyrank.errors import DataError, UsageError
from polyrank.folder_files import checksums_of, read_json, require_own_files
from polyrank.jobs import digest_of
from polyrank.pretraining.article_tables import ArticleBuilder, ArticleTables
from polyrank.pretraining.conversation_tables import ConversationBuilder, ConversationTables
from polyrank.pretraining.corpus.schema import Kind
from polyrank.pretraining.split import SPLITS, Split, SplitName, TablesSettings
from polyrank.pretraining.table_files import REMEDY, damaged
from polyrank.progress import bar
from polyrank.records import Document
from polyrank.storage import replaced_folder, storage_errors, write_text

VERSION = 3
MANIFEST = "tables.json"


class DocumentSource(Protocol):
    """What tables are built from: a corpus on the disk, or anything like it."""

    @property
    def path(self) -> Path: ...  # noqa: D102

    @property
    def kind(self) -> Kind: ...  # noqa: D102

    @property
    def fingerprint(self) -> str: ...  # noqa: D102

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Document]: ...


class CorpusTables:
    """Both sides of a corpus. Raises DataError if they cannot be read or have another version.

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
        self.files: dict[str, str] = manifest["files"]
        """The SHA-256 of each table by its name, such as `train/turns.arrow`."""
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

    def verify(self) -> None:
        """Raise DataError unless every table is byte for byte what was written."""
        total = sum(path.stat().st_size for path in self.path.glob("*/*") if path.is_file())
        with (
            bar("Checking tables", total=total, unit="bytes") as advance,
            storage_errors(self.path),
        ):
            found = checksums_of(self.path, without=MANIFEST, advance=advance)
        for name in sorted({*self.files, *found}):
            if found.get(name) != self.files.get(name):
                raise damaged(self.path / name, "its checksum differs")

    def _side(self, split: SplitName) -> ArticleTables | ConversationTables:
        if split not in self._sides:
            folder = self.path / split
            kind = ArticleTables if self.kind == "articles" else ConversationTables
            self._sides[split] = kind(folder)
        return self._sides[split]


def open_tables(
    corpus: DocumentSource, settings: TablesSettings | None = None, *, place: Path | None = None
) -> CorpusTables:
    """The tables of a corpus, in `place` or in its folder; they are built if needed.

    Raises UsageError for a held-out id that the corpus does not have, DataError if the corpus or
    its tables are damaged, StorageError if the disk refuses.
    """
    settings = settings or TablesSettings()
    folder = tables_folder(place or Path(corpus.path), corpus.fingerprint, settings)
    if not (folder / MANIFEST).is_file():
        with bar("Building tables", total=len(corpus), unit="documents") as advance:
            documents = counted(corpus, advance)
            return build_tables(documents, corpus.kind, corpus.fingerprint, folder, settings)
    require_own_files(folder, DataError)
    tables = CorpusTables(folder)
    tables.verify()
    return tables


def tables_folder(place: Path, fingerprint: str, settings: TablesSettings) -> Path:
    """The folder of the tables of a corpus: one for each of its contents and each settings."""
    return place / f".tables-{digest_of([VERSION, fingerprint, to_mapping(settings)])[:16]}"


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
    """Write the tables of documents to `folder`, replacing what was there."""
    split = Split(settings)
    missing = set(settings.held_out_ids)
    make_builder = ArticleBuilder if kind == "articles" else ConversationBuilder
    with replaced_folder(folder) as fresh:
        for name in SPLITS:
            (fresh / name).mkdir()
        builders = {name: make_builder(fresh / name, settings) for name in SPLITS}
        for document in documents:
            missing.discard(document.id)
            builders[split.of(document.id)].add(document)
        require_all_found(missing)
        manifest = {
            "version": VERSION,
            "kind": kind,
            "fingerprint": fingerprint,
            "settings": to_mapping(settings),
            "counts": {name: builders[name].finish() for name in SPLITS},
            "files": checksums_of(fresh, without=MANIFEST),
        }
        write_text(fresh / MANIFEST, json.dumps(manifest, indent=2) + "\n")
    return CorpusTables(folder)


def require_all_found(missing: set[str]) -> None:
    """Raise UsageError if ids that are to be held out are not in the corpus."""
    if missing:
        raise UsageError(
            f"{len(missing)} of the ids to hold out are not in the corpus, such as "
            f"{min(missing)!r}.",
            "Give only ids of its documents.",
        )


def read_manifest(path: Path) -> dict[str, Any]:
    """What the tables of a folder state about themselves. Raises DataError."""
    try:
        manifest = read_json(path / MANIFEST)
    except (OSError, ValueError) as error:
        raise DataError(f"The tables cannot be read: {error}.", REMEDY, path=path) from error
    if not isinstance(manifest, dict) or manifest.get("version") != VERSION:
        raise DataError(f"The tables do not have version {VERSION}.", REMEDY, path=path)
    kinds = {"kind": str, "fingerprint": str, "settings": dict, "counts": dict, "files": dict}
    for name, kind in kinds.items():
        if not isinstance(manifest.get(name), kind):
            raise DataError(f"{MANIFEST} has no {name}.", REMEDY, path=path)
    if manifest["kind"] not in get_args(Kind):
        raise DataError(f"{MANIFEST} has the kind {manifest['kind']!r}.", REMEDY, path=path)
    return manifest
