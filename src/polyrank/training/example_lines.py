"""Examples with their teacher's scores as lines of JSON, and back; and the digest of examples."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from typing import Any

from polyrank.data.examples import parse_example
from polyrank.records import Candidate, Example, LabelledPair


def line_of(example: Example) -> str:
    """One line of the format of examples."""
    record: dict[str, Any] = {
        "id": example.id,
        "context": example.context,
        "response": example.response,
        "candidates": example.candidates,
        "gold": example.gold,
        "negatives": example.negatives,
        "scores": example.scores,
    }
    kept = {name: value for name, value in record.items() if value not in (None, ())}
    return json.dumps(kept, ensure_ascii=False)


def example_of(line: str) -> Example:
    """The example of a line."""
    return parse_example(json.loads(line))


def digest_of(records: Iterable[Example | LabelledPair | Candidate]) -> str:
    """The SHA-256 of all that is in some records, in their order."""
    digest = hashlib.sha256()
    for record in records:
        digest.update(repr(record).encode())
    return digest.hexdigest()
