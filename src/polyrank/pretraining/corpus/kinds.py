"""What a corpus can be made from, by name, and which of it a file is by its name and first bytes.

The readers are imported when they are used.
"""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import cast

from polyrank.data.files import COMPRESSIONS, read_start
from polyrank.errors import DataError, UsageError, nearest
from polyrank.pretraining.corpus.reading import Reader

WIKIPEDIA = "wikipedia"
ARTICLES = "articles"
PYTHON_DOCS = "python-docs"
REDDIT = "reddit"
HERE = "polyrank.pretraining.corpus"
READERS = {
    WIKIPEDIA: f"{HERE}.wikipedia.reader:read",
    ARTICLES: f"{HERE}.articles:read",
    PYTHON_DOCS: f"{HERE}.python_docs:read",
    "conversations": f"{HERE}.conversations:read",
    REDDIT: f"{HERE}.reddit:read",
}
"""Where the reader of each kind is."""

START = 1 << 16
IN_REDDIT = ("parent_id", "body")
IN_ARTICLES = ("sections", "text", "paragraphs", "title")
IN_CONVERSATIONS = ("turns", "utterances", "messages", "dialog", "dialogue", "context")


def reader_of(kind: str) -> Reader:
    """The reader of a kind. Raises UsageError for an unknown one."""
    if kind not in READERS:
        raise UsageError(f"There is no kind of corpus {kind!r}.", nearest(kind, READERS))
    module, _, name = READERS[kind].partition(":")
    return cast("Reader", getattr(importlib.import_module(module), name))


def detect(path: Path) -> str:
    """The kind of a file, or of a Python's library. Raises DataError if it cannot be told."""
    if path.is_dir() or (path.name == PYTHON_DOCS and not path.exists()):
        return PYTHON_DOCS
    suffixes = [suffix.lower() for suffix in path.suffixes if suffix.lower() not in COMPRESSIONS]
    if suffixes[-1:] == [".xml"]:
        return WIKIPEDIA
    start = read_start(path, START)
    if b"<mediawiki" in start[:4096]:
        return WIKIPEDIA
    names = first_names(start)
    for kind, known in (
        (REDDIT, IN_REDDIT),
        ("conversations", IN_CONVERSATIONS),
        (ARTICLES, IN_ARTICLES),
    ):
        found = [name in names for name in known]
        if all(found) if kind == REDDIT else any(found):
            return kind
    raise DataError(
        "This is no MediaWiki dump, and its first line is no JSON object of an article, a "
        "conversation or a Reddit comment.",
        f"Say what it is with --kind: {', '.join(READERS)}.",
        path=path,
    )


def first_names(start: bytes) -> set[str]:
    """The names in the first JSON object of a file, by its first line or what is there of it."""
    line = start.partition(b"\n")[0].decode("utf-8", "replace")
    try:
        first = json.loads(line)
    except ValueError:
        # a first line longer than what was read: names look like this, and so do few texts
        known = (*IN_REDDIT, *IN_CONVERSATIONS, *IN_ARTICLES)
        return {name for name in known if line.startswith("{") and f'"{name}":' in line}
    return set(first) if isinstance(first, dict) else set()
