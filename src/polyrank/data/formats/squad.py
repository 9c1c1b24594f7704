"""SQuAD 1.1 and 2.0, in JSON, as ReQA: from a question to the sentence that answers it.

The candidates are the sentences of all paragraphs; the sentences in which an annotator's answer
begins are relevant. Questions without an answer, as SQuAD 2.0 has, are passed over.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from polyrank.data.files import read_lines
from polyrank.data.formats.beir import RetrievalSet
from polyrank.data.formats.reqa import Collection
from polyrank.data.formats.source import Identifiers, Source, at_place
from polyrank.errors import DataError

UNANSWERABLE = "questions without an answer"
REMEDY = "Give a file of SQuAD, version 1.1 or 2.0."


def read(source: Source) -> RetrievalSet:
    """The questions of a file and the sentences of its paragraphs.

    Raises DataError, with the file and the place in the JSON.
    """
    path = source.path
    collection = Collection(path.name.partition(".")[0])
    identifiers = Identifiers()
    articles = items(path, whole(path), "data", "$")
    for a, article in enumerate(articles):
        place = f"$.data[{a}]"
        for p, paragraph in enumerate(items(path, article, "paragraphs", place)):
            where = f"{place}.paragraphs[{p}]"
            add_paragraph(source, collection, paragraph, f"{a}-{p}", where, identifiers)
    return collection.retrieval_set()


def add_paragraph(
    source: Source,
    collection: Collection,
    paragraph: Any,
    name: str,
    place: str,
    identifiers: Identifiers,
) -> None:
    """Add a paragraph and its questions."""
    path = source.path
    context = text_at(path, paragraph, "context", place)
    name = collection.add_paragraph(name, context)
    for q, question in enumerate(items(path, paragraph, "qas", place)):
        where = f"{place}.qas[{q}]"
        identifier = text_at(path, question, "id", where)
        identifiers.add(identifier, where, at_place(path, where))
        answers = items(path, question, "answers", where)
        if not answers:
            source.passed_over[UNANSWERABLE] += 1
            continue
        starts = [
            answer_start(path, answer, context, f"{where}.answers[{n}]")
            for n, answer in enumerate(answers)
        ]
        text = text_at(path, question, "question", where).strip()
        collection.add_question(identifier, text, name, starts)


def answer_start(path: Path, answer: Any, context: str, place: str) -> int:
    """Where an answer begins, after any space. Raises DataError where it does not stand there."""
    text = text_at(path, answer, "text", place)
    start = answer.get("answer_start")
    if not isinstance(start, int) or start < 0 or not context.startswith(text, start):
        raise at_place(path, place)(
            f"The answer {text[:60]!r} does not stand at {start!r} of its paragraph.", REMEDY
        )
    if not text.strip():
        raise at_place(path, place)("The answer is empty.", REMEDY)
    return start + len(text) - len(text.lstrip())


def whole(path: Path) -> Any:
    """The JSON of a file. Raises DataError, with file and line."""
    text = "\n".join(line for _, line in read_lines(path))
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise DataError(
            f"The file is not JSON: {error.msg} at column {error.colno}.",
            "The file is damaged or cut off; fetch it again.",
            path=path,
            line=error.lineno,
        ) from error


def items(path: Path, record: Any, field: str, place: str) -> list[Any]:
    """The list that a field of an object holds. Raises DataError, with the place."""
    value = record.get(field) if isinstance(record, dict) else None
    if not isinstance(value, list):
        raise at_place(path, place)(f"There is no list {field!r}.", REMEDY)
    return value


def text_at(path: Path, record: Any, field: str, place: str) -> str:
    """The text that a field of an object holds. Raises DataError, with the place."""
    value = record.get(field) if isinstance(record, dict) else None
    if not isinstance(value, str):
        raise at_place(path, place)(f"There is no text {field!r}.", REMEDY)
    return value
