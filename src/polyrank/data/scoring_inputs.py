"""Reads what a model scores: contexts with candidates, or pairs of texts, with or without labels.

Rows of our own formats need no label and no right answer: a context and candidates, or two texts,
under any of the names that the formats know. Records of all other formats are taken as their
readers give them. One record is in memory at a time, where the format allows it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import chain
from pathlib import Path

from polyrank.data.columns import CONTEXT, RESPONSE, check_columns, column_of, couple_of
from polyrank.data.examples import parse_context, parse_text, parse_texts
from polyrank.data.files import at_line
from polyrank.data.formats.labelled_pairs import has_no_header, headerless
from polyrank.data.hub import is_hub
from polyrank.data.json_files import read_json_lines
from polyrank.data.loading import AUTO, chosen_format, no_records, read_source, report
from polyrank.data.rows import Row, read_rows
from polyrank.data.source import NO_COLUMNS, Source
from polyrank.errors import DataError
from polyrank.folder_files import sha256_of
from polyrank.progress import Say, silent
from polyrank.records import Example, LabelledPair, RetrievalSet, ScoringInput

ROWS = ("examples", "table", "pairs", "nli", "sts")
"""The formats whose rows are read here, with or without labels."""
FIELDS = ("id", "context", "candidates", "candidate", "response", "first", "second")
CANDIDATE = ("candidate", "passage", "document", *RESPONSE)
"""The names of the column of a text to score, unless it is mapped."""


def read_scoring_inputs(
    path: str | Path,
    *,
    format: str = AUTO,
    split: str | None = None,
    columns: Mapping[str, str] = NO_COLUMNS,
    say: Say = silent,
) -> Iterator[ScoringInput]:
    """Yield the inputs to score, in the order of a file, a folder or a hub data set.

    Of an example without candidates, the response is scored; of a corpus with judgements, the
    judged documents of each query. Other arguments and errors are those of `load_records`.
    """
    source = Source(path=Path(path), split=split, columns=columns)
    chosen = chosen_format(source, format)
    if chosen.name in ROWS:
        check_columns(columns, FIELDS)
        if chosen.name == "examples":
            found = from_rows(json_rows(source.path), source)
        elif chosen.name == "sts" and has_no_header(source):
            found = from_rows(headerless(source), replace(source, found={}))
        else:
            found = from_rows(read_rows(source), source)
    else:
        _, records = read_source(source, format, say)
        if isinstance(records, RetrievalSet):
            found = judged(records)
        else:
            found = (from_record(record) for record in records)
    first = next(found, None)
    if first is None:
        raise no_records(source, "text to score")
    yield from chain([first], found)
    report(source, chosen, say)


def json_rows(path: Path) -> Iterator[Row]:
    """Yield the objects of a JSONL file, which is opened once: it may be a pipe."""
    for line, values in read_json_lines(path):
        yield Row(values, f"line {line}", at_line(path, line))


def from_rows(rows: Iterable[Row], source: Source) -> Iterator[ScoringInput]:
    """Yield each row as an input to score. Raises DataError, with the place."""
    columns = source.columns
    several = columns.get("candidates", "candidates")
    candidates: tuple[str, ...]
    for row in rows:
        values = row.values
        is_pair = values.get(several) is None
        first, second = couple_of(values) or ("first", "second")
        first = column_for(row, ("context", "first"), (*CONTEXT, first), source)
        try:
            context = parse_context(values[first])
            if is_pair:
                fields = ("candidate", "response", "second")
                second = column_for(row, fields, (*CANDIDATE, second), source)
                candidates = (parse_text(values[second], second),)
            else:
                candidates = parse_texts(values[several], several) or ()
        except DataError as error:
            if error.path is not None:
                raise
            raise row.blame(error.problem, error.remedy) from None
        if not candidates:
            raise row.blame("The list of candidates is empty.", "Give at least one text to score.")
        identifier = values.get(columns.get("id", "id"))
        yield ScoringInput(
            context=context,
            candidates=candidates,
            id=None if identifier is None else str(identifier),
            is_pair=is_pair,
        )


def column_for(row: Row, fields: tuple[str, ...], names: tuple[str, ...], source: Source) -> str:
    """The column of a text: the one mapped to any of the fields, or the first of `names`.

    Raises DataError if there is none.
    """
    mapped = next((field for field in fields if field in source.columns), fields[0])
    found = column_of(row, mapped, names, source, needed=True)
    assert found is not None
    return found


def from_record(record: Example | LabelledPair) -> ScoringInput:
    """A record of any format as an input to score."""
    if isinstance(record, LabelledPair):
        return ScoringInput(
            context=record.first, candidates=(record.second,), id=record.id, is_pair=True
        )
    return ScoringInput(
        context=record.context,
        candidates=record.candidates or (record.response,),
        id=record.id,
        is_pair=record.candidates is None,
    )


def judged(data: RetrievalSet) -> Iterator[ScoringInput]:
    """Yield each query with its judged documents."""
    texts = {candidate.id: candidate.text for candidate in data.corpus}
    for query, grades in data.judgements.items():
        yield ScoringInput(
            context=data.queries[query],
            candidates=tuple(texts[identifier] for identifier in grades),
            id=query,
            candidate_ids=tuple(grades),
        )


def identity_of(path: Path) -> str | None:
    """What identifies a source: the SHA-256 of its files, or the name of a hub data set. None for a
    pipe, which cannot be read twice.
    """
    if is_hub(path):
        return str(path)
    if path.is_dir():
        files = sorted(each for each in path.rglob("*") if each.is_file())
        return " ".join(f"{each.relative_to(path)} {sha256_of(each)}" for each in files)
    return sha256_of(path) if path.is_file() else None
