"""What the sources of JSON lines share: how they are told apart, ids, and characters.

Knows nothing of what else a record holds.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

from polyrank.data.files import Blame
from polyrank.pretraining.corpus.source import Glimpse

LONE_SURROGATE = re.compile("[\ud800-\udfff]")
"""Half of a character: JSON can write it (`\\ud83d`), UTF-8 cannot."""


def first_fields(glimpse: Glimpse, names: Iterable[str]) -> set[str]:
    """Which of some names the first JSON object of a file has. Raises DataError."""
    line = glimpse.start.partition(b"\n")[0].decode("utf-8", "replace")
    try:
        first = json.loads(line)
    except ValueError:
        # a first line longer than what was read: names look like this, and so do few texts
        return {name for name in names if line.startswith("{") and f'"{name}":' in line}
    return set(first) & set(names) if isinstance(first, dict) else set()


def identifier_of(record: dict[str, Any], number: int, blame: Blame, noun: str) -> str:
    """The id of a record, by default the number of its line; `noun` says what the record is."""
    identifier = record.get("id")
    if identifier is None:
        return str(number)
    if not isinstance(identifier, (str, int)) or isinstance(identifier, bool):
        raise blame(
            f"The field 'id' must be a text or a whole number, got {identifier!r}.",
            f"Change it, or leave it out to name the {noun} by its line number.",
        )
    return encodable(str(identifier))


def encodable(text: str) -> str:
    """The text with U+FFFD for halves of characters; every character keeps its place."""
    return LONE_SURROGATE.sub("\ufffd", text)
