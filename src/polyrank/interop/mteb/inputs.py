"""MTEB's queries, documents and batches as contexts and candidates.

Knows MTEB's columns; imports nothing of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from polyrank.records import Context

INSTRUCTION = "instruction"


def contexts_of(queries: Iterable[Mapping[str, Any]]) -> dict[str, Context]:
    """The queries by their ids: texts, and conversations as lists of turns, oldest first.

    An instruction stands where MTEB puts it: after a text, before the first turn.
    """
    return {str(row["id"]): context_of(row["text"], row.get(INSTRUCTION) or "") for row in queries}


def context_of(text: Any, instruction: str) -> Context:
    """One query as a context. Turns are texts or mappings with a `content`."""
    if isinstance(text, str):
        return f"{text} {instruction}" if instruction else text
    turns = [turn if isinstance(turn, str) else str(turn["content"]) for turn in text]
    if not instruction or not turns:
        return turns
    return [f"{instruction} {turns[0]}", *turns[1:]]


def candidates_of(corpus: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    """Yield the id and the text of each document: its title, if it has one, before its body."""
    for row in corpus:
        title = row.get("title") or ""
        yield str(row["id"]), f"{title} {row['text']}".strip()


def texts_of(batches: Iterable[Mapping[str, Any]]) -> list[Context]:
    """What an encoder gets, in batches: texts, and conversations as lists of turns."""
    found: list[Context] = []
    for batch in batches:
        if "conversation" in batch:
            instructions = batch.get(INSTRUCTION) or [""] * len(batch["conversation"])
            rows = zip(batch["conversation"], instructions, strict=True)
            found += [context_of(turns, instruction) for turns, instruction in rows]
        else:
            found += batch["text"]
    return found
