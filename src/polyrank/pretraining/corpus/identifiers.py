"""The id of a record of JSON lines. Knows nothing of what else the record holds."""

from __future__ import annotations

from typing import Any

from polyrank.data.formats.source import Blame
from polyrank.pretraining.corpus.characters import whole


def identifier_of(record: dict[str, Any], number: int, blame: Blame, kind: str) -> str:
    """The id of a record, by default the number of its line; `kind` is what the record is."""
    identifier = record.get("id")
    if identifier is None:
        return str(number)
    if not isinstance(identifier, (str, int)) or isinstance(identifier, bool):
        raise blame(
            f"The field 'id' must be a text or a whole number, got {identifier!r}.",
            f"Change it, or leave it out to name the {kind} by its line number.",
        )
    return whole(str(identifier))
