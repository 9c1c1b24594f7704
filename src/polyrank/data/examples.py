"""Reads JSONL files of contexts and responses as `Example` records.

Format: {"context": text or [turn, …], "response": text} with optional "id", "candidates" (a list
that holds the response), "gold" (its index), "negatives" and "scores" (a teacher's: of the
response, then of each negative). Other fields are ignored.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from polyrank.data.columns import how_to_name
from polyrank.data.json_files import read_json_lines
from polyrank.errors import DataError
from polyrank.records import Example
from polyrank.storage import write_text

FIELDS = ("id", "context", "response", "candidates", "gold", "negatives", "scores")


def read_examples(path: str | Path) -> Iterator[Example]:
    """Yield the examples of a JSONL file, one by one.

    Raises DataError, with file and line, for anything that breaks the format.
    """
    path = Path(path)
    lines: dict[str, int] = {}
    for number, record in read_json_lines(path):
        try:
            example = parse_example(record)
            if example.id is not None and lines.setdefault(example.id, number) != number:
                raise DataError(
                    f"The id {example.id!r} is also that of line {lines[example.id]}.",
                    "Give each example its own id, or none.",
                )
        except DataError as error:
            raise DataError(error.problem, error.remedy, path=path, line=number) from None
        yield example


def parse_example(record: dict[str, Any]) -> Example:
    """One record as an `Example`. Raises DataError, without the place."""
    for name in ("context", "response"):
        if name not in record:
            raise DataError(
                f"The field {name!r} is missing; the line has {', '.join(map(repr, record))}.",
                f'Give every line "context" and "response". {how_to_name(record)}',
            )
    context = parse_context(record["context"])
    response = parse_text(record["response"], "response")
    candidates = parse_texts(record.get("candidates"), "candidates")
    gold = parse_gold(record.get("gold"), response, candidates)
    negatives = parse_texts(record.get("negatives"), "negatives") or ()
    identifier = record.get("id")
    return Example(
        context=context,
        response=response,
        id=None if identifier is None else str(identifier),
        candidates=candidates,
        gold=gold,
        negatives=negatives,
        scores=parse_scores(record.get("scores"), len(negatives)),
    )


def parse_context(value: Any) -> str | tuple[str, ...]:
    """A text, or a list of turns with at least one turn."""
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        raise DataError(
            f"The field 'context' must be a text or a list of turns, got {type(value).__name__}.",
            "Give a string or a list of strings.",
        )
    turns = parse_texts(value, "context")
    if not turns:
        raise DataError(
            "The field 'context' is an empty list.", "Give a text or a list of at least one turn."
        )
    return turns


def parse_text(value: Any, name: str) -> str:
    """A string."""
    if not isinstance(value, str):
        raise DataError(
            f"The field {name!r} must be a text, got {type(value).__name__}.", "Give a string."
        )
    return value


def parse_texts(value: Any, name: str) -> tuple[str, ...] | None:
    """A list of strings, or None if the field is absent."""
    if value is None:
        return None
    if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
        raise DataError(f"The field {name!r} must be a list of texts.", "Give a list of strings.")
    return tuple(value)


def parse_gold(value: Any, response: str, candidates: tuple[str, ...] | None) -> int | None:
    """The index of the response among the candidates, checked."""
    if candidates is None:
        return None
    if response not in candidates:
        raise DataError(
            f"The response {response[:60]!r} is not among its {len(candidates)} candidates.",
            'Put the response into "candidates".',
        )
    if value is None:
        return candidates.index(response)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < len(candidates):
        raise DataError(
            f"The field 'gold' must be an index from 0 to {len(candidates) - 1}, got {value!r}.",
            'Leave "gold" out, or give the index of the response.',
        )
    if candidates[value] != response:
        raise DataError(
            f"The candidate at 'gold' = {value} is not the response.",
            'Leave "gold" out, or give the index of the response.',
        )
    return value


def parse_scores(value: Any, num_negatives: int) -> tuple[float, ...] | None:
    """A teacher's scores of the response and of each negative, checked."""
    if value is None:
        return None
    numbers = isinstance(value, list) and all(is_finite_number(score) for score in value)
    if not numbers or len(value) != 1 + num_negatives:
        got = f"{len(value)} numbers" if numbers else repr(value)[:60]
        raise DataError(
            f"The field 'scores' must be a list of {1 + num_negatives} numbers, got {got}.",
            "Give the score of the response, then one per negative, in their order.",
        )
    return tuple(map(float, value))


def is_finite_number(value: Any) -> bool:
    """Whether a JSON value is a finite number."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def example_line(example: Example) -> str:
    """An example as a line of the JSONL that `read_examples` reads."""
    record = {name: getattr(example, name) for name in FIELDS}
    kept = {name: value for name, value in record.items() if value not in (None, ())}
    return json.dumps(kept, ensure_ascii=False)


def write_examples(path: Path, examples: Iterable[Example]) -> None:
    """Write examples as JSONL; an existing file is replaced in one step."""
    write_text(path, "".join(f"{example_line(example)}\n" for example in examples))
