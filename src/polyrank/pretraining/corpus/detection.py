"""Which kind of source a file is: the registry of kinds, and the choice among them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from polyrank.errors import DataError, UsageError, nearest
from polyrank.pretraining.corpus.articles import Articles
from polyrank.pretraining.corpus.books import Books
from polyrank.pretraining.corpus.conversations import Conversations
from polyrank.pretraining.corpus.reddit import Reddit
from polyrank.pretraining.corpus.source import FilesSource, Glimpse, Source, files_at
from polyrank.pretraining.corpus.wikipedia.source import Wikipedia

KINDS: tuple[type[Source], ...] = (Wikipedia, Reddit, Conversations, Articles, Books)
"""The kinds that a file can be; the first that recognises it is taken."""


def kind_of(
    path: Path, name: str | None = None, kinds: Sequence[type[Source]] = KINDS
) -> type[Source]:
    """The kind called `name`, by default the one that a file looks like.

    Raises UsageError for an unknown name, DataError if the kind is not recognised.
    """
    by_name = {kind.name: kind for kind in kinds}
    if name is not None:
        if name not in by_name:
            raise UsageError(f"There is no kind of source {name!r}.", nearest(name, by_name))
        return by_name[name]
    if not path.exists():  # a pattern, or a name
        path = next(iter(files_at(path)), path)
    glimpse = Glimpse(path)
    for kind in kinds:
        if kind.recognises(glimpse):
            return kind
    raise DataError(
        "This is neither a MediaWiki dump nor a .txt file, and its first line is not a JSON object "
        "of an article, a conversation, or a comment or post of Reddit."
        if not path.is_dir()
        else "The folder holds no .txt files and no dumps of Reddit (RC_…, RS_…).",
        f"Name its kind with --format: {', '.join(by_name)}.",
        path=path,
    )


def source_at(
    path: str | Path,
    *others: str | Path,
    kind: str | None = None,
    kinds: Sequence[type[Source]] = KINDS,
    **settings: Any,
) -> Source:
    """The source at a path, or at several, with the settings of its kind.

    Raises UsageError for several of a kind that takes one file, or of different kinds; DataError.
    """
    paths = [Path(path), *map(Path, others)]
    found = kind_of(paths[0], kind, kinds)
    if len(paths) == 1:
        return found(path=paths[0], **settings)
    if not issubclass(found, FilesSource):
        raise UsageError(
            f"A corpus of {found.name} needs exactly one file, got {len(paths)}.",
            "Make one corpus per file, and give all of them to polyrank pretrain.",
        )
    for path in paths[1:]:
        other = kind_of(path, kind, kinds)
        if other is not found:
            raise UsageError(
                f"A corpus needs files of one kind: {paths[0]} is {found.name}, and {path} "
                f"is {other.name}.",
                "Make one corpus per kind.",
            )
    return found(path=paths[0], others=tuple(paths[1:]), **settings)
