r"""Conversations as JSON lines to `Conversation`s.

    {"id"?, "turns": [{"speaker"?, "text"} or "text", …]}
        also called "utterances", "messages", "dialog" or "dialogue", of "content" by a "role"
    {"id"?, "context": "text" or ["turn", …], "response": "text"}       an example, as for training

Of examples that follow one another, as in a log where each reply is an example with all that was
said before it, the last and longest stands for those that it begins with. Empty turns are dropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from polyrank.data.examples import parse_context, parse_text
from polyrank.data.files import Blame, at_line
from polyrank.data.json_files import read_json_lines
from polyrank.errors import DataError
from polyrank.pretraining.corpus.source import (
    Documents,
    Dropped,
    Glimpse,
    Source,
    encodable,
    identifier_of,
)
from polyrank.records import Conversation, Turn

EMPTY_TURN = "empty turn"
NO_TURNS = "no turns"
TURNS = ("turns", "utterances", "messages", "dialog", "dialogue")
TEXT = ("text", "content")
SPEAKER = ("speaker", "role")
BEGINNING = "beginning of the next example"
FORM = 'Write {"turns": [{"speaker": "…", "text": "…"}]} or {"context": ["…"], "response": "…"}.'


@dataclass(frozen=True, kw_only=True)
class Conversations(Source):
    """A file of conversations as JSON lines."""

    name = "conversations"

    @classmethod
    def recognises(cls, glimpse: Glimpse) -> bool:
        """Whether the first object has turns or a context."""
        return bool(glimpse.fields((*TURNS, "context")))

    def read(self, scratch: Path) -> Documents:
        """Yield the conversations, and what was dropped from them."""
        return read_conversations(self.path)


def read_conversations(path: Path) -> Documents:
    """Yield the conversations of a file, plain or compressed, and what was dropped from them.

    A speaker that is not given is empty. Raises DataError, with file and line, for anything
    in none of these forms.
    """
    held: tuple[Conversation, int] | None = None
    for number, record in read_json_lines(path):
        blame = at_line(path, number)
        name = first_of(TURNS, record)
        is_example = name is None
        found = example_turns(record, blame) if name is None else turns_of(record, name, blame)
        turns = tuple(Turn(speaker, text) for speaker, text in found if text)
        if held is not None:
            before, line = held
            goes_on = is_example and turns[: len(before.turns)] == before.turns
            yield Dropped(BEGINNING, f"line {line}") if goes_on else before
            held = None
        for place, turn in enumerate(found, start=1):
            if not turn.text:
                yield Dropped(EMPTY_TURN, f"line {number}, turn {place}")
        if not turns:
            yield Dropped(NO_TURNS, f"line {number}")
            continue
        conversation = Conversation(identifier_of(record, number, blame, "conversation"), turns)
        if is_example:
            held = conversation, number
        else:
            yield conversation
    if held is not None:
        yield held[0]


def first_of(names: Sequence[str], record: dict[str, Any]) -> str | None:
    """The first of some names that a record has."""
    return next((name for name in names if name in record), None)


def turns_of(record: dict[str, Any], name: str, blame: Blame) -> list[Turn]:
    """The turns of a conversation, empty ones too."""
    given = record[name]
    if not isinstance(given, list):
        raise blame(f"The field {name!r} must be a list, got {type(given).__name__}.", FORM)
    return [turn_of(turn, f"{name}[{place}]", blame) for place, turn in enumerate(given)]


def turn_of(given: Any, place: str, blame: Blame) -> Turn:
    """One turn, which is a text or an object."""
    fields = {"text": given} if isinstance(given, str) else given
    if not isinstance(fields, dict) or not isinstance(
        text := fields.get(first_of(TEXT, fields) or ""), str
    ):
        raise blame(f"{place} must be a text or an object with a 'text'.", FORM)
    speaker = fields.get(first_of(SPEAKER, fields) or "")
    if not isinstance(speaker, (str, int, type(None))):
        got = type(speaker).__name__
        raise blame(f"The 'speaker' of {place} must be a text, got {got}.", FORM)
    return Turn(
        encodable("" if speaker is None else str(speaker)),
        encodable(text).strip(),
    )


def example_turns(record: dict[str, Any], blame: Blame) -> list[Turn]:
    """The turns of an example: its context, then its response."""
    if "context" not in record or "response" not in record:
        raise blame(
            "The line has neither 'turns' nor 'context' and 'response', but "
            f"{', '.join(map(repr, record)) or 'no field'}.",
            FORM,
        )
    try:
        context = parse_context(record["context"])
        response = parse_text(record["response"], "response")
    except DataError as error:
        raise blame(error.problem, error.remedy) from None
    texts = [context, response] if isinstance(context, str) else [*context, response]
    return [Turn("", encodable(text).strip()) for text in texts]
