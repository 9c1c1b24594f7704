"""Reads JSON: one object per line, the items of an array one by one, or a whole value.

Knows the place of each for errors, but not what it means.
"""

from __future__ import annotations

import codecs
import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from polyrank.data.files import (
    at_line,
    damaged,
    is_damage,
    not_utf8,
    open_bytes,
    read_lines,
    text_in,
)
from polyrank.json_text import MOST_NESTED, TOO_DEEP, parse_readable_json

BETWEEN = b" \t\r\n,"
"""The signs between the items of an array."""
PIECE = 1 << 16
"""Bytes of a long line that are parsed at once."""
DAMAGED = "The file is damaged or truncated; download it again."
STARTS = ("start_map", "start_array")
ENDS = ("end_map", "end_array")
"""What a parser says where a list or an object begins and ends."""


def read_json_lines(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (line number, object) of a JSONL file; blank lines are skipped.

    Raises DataError, with file and line, for a line that is not a JSON object.
    """
    for number, line in read_lines(path):
        if line.strip():
            yield number, json_object(path, number, line)


def json_object(
    path: Path, number: int, line: str, *, parse: Callable[[str], Any] = parse_readable_json
) -> dict[str, Any]:
    """The JSON object of a line. Raises DataError, with file and line, if it is not one."""
    try:
        record = parse(line)
    except json.JSONDecodeError as error:
        raise at_line(path, number)(
            f"The line is not JSON: {error.msg} at column {error.colno}.",
            "Write one JSON object per line.",
        ) from error
    if not isinstance(record, dict):
        raise at_line(path, number)(
            f"The line holds a {type(record).__name__}, not a JSON object.",
            'Write one JSON object per line, such as {"context": "…", "response": "…"}.',
        )
    return record


def read_json(path: Path) -> Any:
    """The JSON value that a file holds. Raises DataError, with file and line."""
    text = "\n".join(line for _, line in read_lines(path))
    try:
        return parse_readable_json(text)
    except json.JSONDecodeError as error:
        raise at_line(path, error.lineno)(
            f"The file is not JSON: {error.msg} at column {error.colno}.", DAMAGED
        ) from error


def read_json_array(path: Path) -> Iterator[tuple[int, Any]]:
    """Yield (line where it begins, item) of a file that is one JSON array.

    Memory holds one item and a piece of a line. Fractions are `float`, other numbers `int` of up
    to 64 bits; half of a surrogate pair becomes a question mark. Raises DataError, with file and
    line, if the file is not an array, is truncated, is nested too deeply, or holds other numbers,
    such as NaN.
    """
    import ijson

    events: Any = ijson.sendable_list()
    parser = ijson.basic_parse_coro(events, use_float=True)
    items = Items(ijson.ObjectBuilder)
    begin: int | None = None  # the line where the item that is being read begins
    is_open, line, pieces = False, 1, Joined(read_pieces(path))
    try:
        for line, piece in pieces:
            if not is_open:
                piece = piece.lstrip()
                if not piece:
                    continue
                require_array(path, line, piece)
                parser.send(b"[")
                piece, is_open = piece[1:], True
            # An item that ends with the last sign of a line is followed by one on a later line.
            signs = len(piece.rstrip(BETWEEN))
            last = max(signs - 1, 0)
            pieces.is_stuck = True
            for part, is_end in ((piece[:last], False), (piece[last:], True)):
                if not part:
                    continue
                if begin is None and part.strip(BETWEEN):
                    begin = line
                parser.send(part)
                pieces.is_stuck = pieces.is_stuck and not events
                found = items.take(events)
                events.clear()
                for item in found:
                    yield begin or line, item
                    begin = line
                if found:
                    begin = None if is_end else line
                if items.depth > MOST_NESTED:
                    raise at_line(path, line)(f"{TOO_DEEP}.", DAMAGED)
        require_array(path, line, b"[" if is_open else b"")
        parser.close()
    except ijson.JSONError as error:
        raise at_line(path, line)(f"The text is not JSON: {reason_of(error)}.", DAMAGED) from error


class Items:
    """Puts the items of an array together from the events of a parser."""

    def __init__(self, builder: Callable[[], Any]) -> None:
        self.builder = builder
        self.building: Any = None
        self.depth = 0
        """How many lists and objects are open: 1 between the items."""

    def take(self, events: Iterable[tuple[str, Any]]) -> list[Any]:
        """The items that end with these events. Stops where they are nested too deeply."""
        found = []
        for event, value in events:
            is_start, is_end = event in STARTS, event in ENDS
            self.depth += is_start - is_end
            if self.depth > MOST_NESTED:
                break
            if self.depth == is_start:  # the array's own begin or end
                continue
            if self.building is None:
                self.building = self.builder()
            self.building.event(event, value)
            if self.depth == 1:
                found.append(self.building.value)
                self.building = None
        return found


def require_array(path: Path, line: int, text: bytes) -> None:
    """Raise DataError unless a text begins as an array does."""
    if not text.startswith(b"["):
        raise at_line(path, line)(
            "The file is not a JSON array: it does not begin with '['.", DAMAGED
        )


def read_pieces(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield (line number, a line with its end); a long line in pieces.

    Raises DataError, with the line, if the bytes are not UTF-8 or the compressed data is damaged.
    """
    line, start = 1, 0
    decoder = codecs.getincrementaldecoder("utf-8")()
    with open_bytes(path) as raw:
        try:
            handle = text_in(raw, path)
            while piece := handle.readline(PIECE):
                if decoder.getstate()[0] or not piece.isascii():
                    decoder.decode(piece)
                if line == 1 and not start:
                    piece = piece.removeprefix(codecs.BOM_UTF8)
                yield line, piece
                start += len(piece)
                if piece.endswith(b"\n"):
                    line, start = line + 1, 0
            decoder.decode(b"", final=True)
        except UnicodeDecodeError as error:
            raise not_utf8(path, line, start + error.start, error.reason) from error
        except Exception as error:
            if not is_damage(error):
                raise
            raise damaged(path, line, error) from error


class Joined:
    """Pieces of lines; while a parser is stuck in a long text, each is twice as long as the last.

    The parser begins a text again with every piece, which would take quadratic time. Blank lines
    come with what follows them.
    """

    def __init__(self, pieces: Iterable[tuple[int, bytes]]) -> None:
        self.pieces = pieces
        self.is_stuck = False
        """Whether the parser made nothing of the last piece."""

    def __iter__(self) -> Iterator[tuple[int, bytes]]:
        held, wanted, line = bytearray(), 0, 1
        for line, piece in self.pieces:
            held += piece
            if len(piece) <= 2 and piece.isspace() and len(held) < PIECE:
                continue
            if len(held) >= wanted or piece.endswith(b"\n"):
                yield line, bytes(held)
                wanted = 2 * len(held) if self.is_stuck else 0
                held.clear()
        if held:
            yield line, bytes(held)


def reason_of(error: Exception) -> str:
    """The first line of a parser's error, and the text that it shows."""
    problem, _, shown = str(error).partition("\n")
    near = shown.strip().partition("\n")[0].strip()
    return problem.rstrip(".") + (f" at {near[:60]!r}" if near and not near.startswith("(") else "")
