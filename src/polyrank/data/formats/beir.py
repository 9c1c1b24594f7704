"""BEIR folders, `corpus.jsonl`, `queries.jsonl` and `qrels/*.tsv`, to a `RetrievalSet`.

Each of the files may be compressed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from polyrank.data.files import COMPRESSIONS, Blame, at_line, read_lines
from polyrank.data.format import Format
from polyrank.data.json_files import read_json_lines
from polyrank.data.source import Identifiers, Source
from polyrank.errors import DataError, UsageError, nearest
from polyrank.records import Candidate, RetrievalSet

CORPUS, QUERIES, QRELS = "corpus.jsonl", "queries.jsonl", "qrels"
USUAL = ("test", "dev", "validation", "train")
"""The splits to evaluate on, preferred first; the last is the one to train on."""
GRADE = re.compile(r"-?\d{1,18}")


def read(source: Source) -> RetrievalSet:
    """The corpus, and the queries of one split. Raises DataError, with file and line."""
    split, qrels = split_of(source)
    corpus: list[Candidate] = []
    for _, record, blame in records(required(source.path, CORPUS)):
        title, text = record.get("title") or "", record.get("text")
        if not isinstance(text, str) or not isinstance(title, str):
            raise blame("The document has no text 'text'.", 'Write {"_id", "title", "text"}.')
        corpus.append(Candidate(record["_id"], f"{title} {text}".strip()))
    queries: dict[str, str] = {}
    for _, record, blame in records(required(source.path, QUERIES)):
        if not isinstance(record.get("text"), str):
            raise blame("The query has no text 'text'.", 'Write {"_id", "text"}.')
        queries[record["_id"]] = record["text"]
    judgements = read_judgements(qrels, {candidate.id for candidate in corpus}, queries)
    if not judgements:
        raise DataError("The file holds no judgement.", "Name another split.", path=qrels)
    return RetrievalSet(
        corpus=corpus,
        queries={query: queries[query] for query in judgements},
        judgements=judgements,
        split=split,
    )


def is_beir(path: Path) -> bool:
    """Whether a folder has the three parts."""
    parts = (find(path, CORPUS), find(path, QUERIES))
    return None not in parts and (path / QRELS).is_dir()


def find(folder: Path, name: str) -> Path | None:
    """The file of this name, or a compressed one."""
    paths = (folder / f"{name}{suffix}" for suffix in ("", *COMPRESSIONS))
    return next((path for path in paths if path.is_file()), None)


def required(folder: Path, name: str) -> Path:
    """The file of this name, or a compressed one. Raises DataError if there is none."""
    path = find(folder, name)
    if path is None:
        raise DataError(
            f"The folder has no {name}, plain or compressed.",
            f"Give a folder in BEIR's layout: {CORPUS}, {QUERIES}, {QRELS}/SPLIT.tsv.",
            path=folder,
        )
    return path


def split_of(source: Source) -> tuple[str, Path]:
    """The split to read, and the file of its judgements. Raises UsageError, DataError."""
    required(source.path, CORPUS)
    files = {
        path.name.partition(".tsv")[0]: path
        for path in sorted((source.path / QRELS).glob("*.tsv*"))
        if path.suffix in (".tsv", *COMPRESSIONS)
    }
    if not files:
        required(source.path, f"{QRELS}/SPLIT.tsv")
    usual = reversed(USUAL) if source.training else USUAL
    split = source.split or next((name for name in usual if name in files), min(files))
    if split not in files:
        raise UsageError(f"{source.path} has no split {split!r}.", nearest(split, files))
    return split, files[split]


def records(path: Path) -> Iterator[tuple[int, dict[str, Any], Blame]]:
    """Yield the objects of a file, each with its own "_id"."""
    identifiers = Identifiers()
    for number, record in read_json_lines(path):
        blame = at_line(path, number)
        identifier = record.get("_id")
        if not isinstance(identifier, str):
            raise blame(
                f"The field '_id' must be a text, got {identifier!r}.", 'Write {"_id": "…", …}.'
            )
        identifiers.add(identifier, f"line {number}", blame)
        yield number, record, blame


def read_judgements(
    path: Path, corpus: set[str], queries: dict[str, str]
) -> dict[str, dict[str, int]]:
    """The grades by query and candidate, in the order of the file; its first line is a header."""
    judgements: dict[str, dict[str, int]] = {}
    for number, line in read_lines(path):
        if number == 1 or not line.strip():
            continue
        blame = at_line(path, number)
        cells = line.split("\t")
        if len(cells) != 3:
            raise blame(
                f"The line has {len(cells)} columns; 3 are expected.",
                "Write query-id, corpus-id and score, separated by tabs.",
            )
        query, candidate, grade = cells
        if query not in queries or candidate not in corpus:
            what, where = ("query", QUERIES) if query not in queries else ("document", CORPUS)
            name = query if what == "query" else candidate
            raise blame(
                f"The {what} {name!r} is not in {where}.",
                "Remove the judgement; if the other file is incomplete, download it again.",
            )
        if not GRADE.fullmatch(grade.strip()):
            raise blame(
                f"The score {grade!r} is not a whole number.",
                "Write 0 for wrong, and 1 or more for right.",
            )
        grades = judgements.setdefault(query, {})
        if candidate in grades:
            raise blame(f"The query {query!r} has the document {candidate!r} twice.", "Remove one.")
        grades[candidate] = int(grade)
    return judgements


FORMATS = (
    Format(
        name="beir",
        gives="retrieval",
        description="a folder in BEIR's layout",
        read=read,
        has_mark=lambda beginning: beginning.is_folder and is_beir(beginning.path),
    ),
)
