"""Which format a file is in, by its suffix and its beginning; reads no more than one record."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from polyrank.data.files import base_suffix, read_start
from polyrank.data.formats import beir, convai2, nli, sts, table, ubuntu
from polyrank.data.formats.hub import is_hub
from polyrank.data.formats.rows import JSON_LINES, read_rows
from polyrank.data.formats.source import Source
from polyrank.errors import DataError

PEEKED = 1 << 16


def detected(source: Source) -> str:
    """The name of the format. Raises DataError where it cannot be told.

    What is no plain file, such as a pipe, is not touched: it holds polyrank's own examples.
    """
    path = source.path
    if path.is_dir():
        if beir.is_beir(path):
            return "beir"
        raise DataError(
            "The folder is none in BEIR's layout: corpus.jsonl, queries.jsonl, qrels/SPLIT.tsv.",
            "Give a file, such a folder, or hub:FOLDER for data files that `datasets` reads.",
            path=path,
        )
    if is_hub(path) or base_suffix(path) == ".parquet":
        return by_first_row(source) or "table"
    if not path.is_file():
        return "examples"
    if base_suffix(path) in JSON_LINES:
        return by_first_row(source) or "examples"
    return by_first_line(source)


def by_first_line(source: Source) -> str:
    """The format of a file that is no JSONL by its name."""
    start = read_start(source.path, PEEKED).decode(errors="replace")
    if start.startswith("["):
        return "dstc7" if '"messages-so-far"' in start else by_first_row(source) or "table"
    if start.startswith("{"):
        return "squad" if '"paragraphs"' in start else by_first_row(source) or "examples"
    first = start.partition("\n")[0].rstrip("\r")
    if convai2.NUMBERED.match(first):
        return "convai2"
    if first.startswith(("text:", "id:")):
        return "parlai"
    cells = first.split("\t")
    if cells[0] in ("0", "1") and len(cells) > 2:
        return "tab"
    if sts.is_headerless(cells):
        return "sts"
    if len(cells) > 1 or "," in first:
        if named := by_first_row(source):
            return named
        if base_suffix(source.path) in (".csv", ".tsv"):
            return "table"
        if len(cells) > 1:
            return "wikipedia"
    if base_suffix(source.path) in (".json", ""):
        return "examples"
    raise DataError(
        "Neither name nor first line tell the format of the file.",
        "Name it with --format; docs/data.md lists the formats.",
        path=source.path,
    )


def by_first_row(source: Source) -> str | None:
    """The format that the names in a first row tell, or None.

    What cannot be read is left to the reader to complain of.
    """
    try:
        row = next(read_rows(source), None)
    except DataError:
        if is_hub(source.path):
            raise
        row = None
    values = {} if row is None else row.values
    if set(source.columns.values()) & set(values):
        is_pair = set(source.columns) & {"first", "second", "label"}
        return "pairs" if is_pair else "table"
    if {"context", "response"} <= set(values):
        return "examples" if is_json_lines(source.path) else "table"
    return by_names(values)


def by_names(values: Mapping[str, Any]) -> str | None:
    """The format of rows of which this is the first, or None."""
    names = set(values)
    if {"first", "second", "label"} <= names:
        return "pairs"
    if {ubuntu.CONTEXT, ubuntu.UTTERANCE, ubuntu.LABEL} <= names or ubuntu.TRUTH in names:
        return "ubuntu-v2"
    if {"sentence1", "sentence2"} <= names or {"premise", "hypothesis"} <= names:
        if "gold_label" in names or values.get("label") in (*nli.CLASSES, "-"):
            return "nli"
        return "sts" if "score" in names else "pairs"
    if {"question_text", "document_text"} <= names:
        return "natural-questions"
    if {"title", "text"} <= names and "_id" not in names:
        return "wikipedia"
    usual = (table.USUAL["context"], table.USUAL["response"])
    return "table" if all(names & set(known) for known in usual) else None


def is_json_lines(path: Path) -> bool:
    """Whether a file is JSONL, by its name or else by its beginning."""
    if is_hub(path) or base_suffix(path) == ".parquet":
        return False
    return base_suffix(path) in JSON_LINES or read_start(path, 64)[:1] == b"{"
