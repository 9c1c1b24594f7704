"""Which kind of source a file is: the registry of kinds, and the choice among them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from polyrank.errors import DataError, UsageError, nearest
from polyrank.pretraining.corpus.articles import Articles
from polyrank.pretraining.corpus.conversations import Conversations
from polyrank.pretraining.corpus.reddit import Reddit
from polyrank.pretraining.corpus.source import Glimpse, Source
from polyrank.pretraining.corpus.wikipedia.source import Wikipedia

KINDS: tuple[type[Source], ...] = (Wikipedia, Reddit, Conversations, Articles)
"""The kinds that a file can be; the first that recognises it is taken."""


def kind_of(
    path: Path, name: str | None = None, kinds: Sequence[type[Source]] = KINDS
) -> type[Source]:
    """The kind called `name`, by default the one that a file looks like.

    Raises UsageError for an unknown name, DataError if the kind cannot be told.
    """
    by_name = {kind.name: kind for kind in kinds}
    if name is not None:
        if name not in by_name:
            raise UsageError(f"There is no kind of source {name!r}.", nearest(name, by_name))
        return by_name[name]
    glimpse = Glimpse(path)
    for kind in kinds:
        if kind.recognises(glimpse):
            return kind
    raise DataError(
        "This is not a MediaWiki dump, and its first line is not a JSON object of an article, a "
        "conversation or a Reddit comment.",
        f"Say what it is with --kind: {', '.join(by_name)}.",
        path=path,
    )


def source_at(path: str | Path, *, kind: str | None = None, **settings: Any) -> Source:
    """The source at a path, with the settings of its kind. Raises UsageError and DataError."""
    return kind_of(Path(path), kind)(path=Path(path), **settings)
