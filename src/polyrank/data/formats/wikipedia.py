r"""Wikipedia article search (Wu et al., 2018): from a sentence to the article it was taken from.

An article is a line of sentences separated by tabs, as StarSpace's files have it, or a JSON object
with "title" and "text", as WikiExtractor and ParlAI have it. The context is one sentence, chosen by
the text alone, so that every reading chooses the same; the response is the article without it.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from pathlib import Path

from polyrank.data.files import at_line, read_lines
from polyrank.data.format import Beginning, Fit, Format
from polyrank.data.json_files import json_object
from polyrank.data.sentences import sentence_spans
from polyrank.data.source import Identifiers, Source
from polyrank.records import Example

TOO_SHORT = "articles of fewer than 2 sentences"


def read(source: Source) -> Iterator[Example]:
    """Yield an example per article. Raises DataError, with file and line."""
    identifiers = Identifiers()
    for number, line in read_lines(source.path):
        if not line.strip():
            continue
        identifier = None
        title = ""
        if line.startswith("{"):
            identifier, title, sentences = article(source.path, number, line)
            if identifier is not None:
                identifiers.add(identifier, f"line {number}", at_line(source.path, number))
        else:
            sentences = [piece.strip() for piece in line.split("\t") if piece.strip()]
        if len(sentences) < 2:
            source.passed_over[TOO_SHORT] += 1
            continue
        chosen = zlib.crc32("\t".join(sentences).encode()) % len(sentences)
        rest = [title] if title else []
        rest += sentences[:chosen] + sentences[chosen + 1 :]
        yield Example(id=identifier, context=sentences[chosen], response=" ".join(rest))


def article(path: Path, number: int, line: str) -> tuple[str | None, str, list[str]]:
    """The id, the title and the sentences of a JSON line."""
    record = json_object(path, number, line)
    title, text = record.get("title", ""), record.get("text")
    if not isinstance(text, str) or not isinstance(title, str):
        raise at_line(path, number)(
            f"The article has no 'title' and 'text'; the line has {', '.join(map(repr, record))}.",
            'Write {"title": "…", "text": "…"} per line.',
        )
    text = text.strip().removeprefix(title + "\n")
    identifier = record.get("id")
    sentences = [text[start:end] for start, end in sentence_spans(text)]
    return None if identifier is None else str(identifier), title, sentences


def fit(beginning: Beginning) -> Fit:
    """Titles and texts, or any lines with tabs whose name is not a table's."""
    if {"title", "text"} <= beginning.names and "_id" not in beginning.names:
        return Fit.COLUMNS
    is_lines = beginning.has_cells and len(beginning.cells) > 1
    return Fit.NAME if is_lines and beginning.suffix not in (".csv", ".tsv") else Fit.NOT


FORMATS = (
    Format(
        name="wikipedia",
        gives="examples",
        description="articles, searched by one of their sentences",
        read=read,
        fit=fit,
    ),
)
