"""The items of a JSON array in a file, one by one, without the whole file in memory.

Knows where each item lies; knows nothing of what it means.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from polyrank.data.files import read_lines
from polyrank.errors import DataError

CHUNK = 1 << 20
REMEDY = "The file is damaged or cut off; fetch it again."


class Text:
    """A window on the text of a file: what is read and not yet used, and its line."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lines = (line if number == 1 else "\n" + line for number, line in read_lines(path))
        self.rest = ""
        self.line = 1

    def more(self) -> bool:
        """Read on by at least what is there; False at the end of the file."""
        wanted = max(CHUNK, len(self.rest))
        pieces = []
        size = 0
        for piece in self.lines:
            pieces.append(piece)
            size += len(piece)
            if size >= wanted:
                break
        self.rest += "".join(pieces)
        return bool(pieces)

    def use(self, length: int) -> None:
        """Drop what was used."""
        self.line += self.rest.count("\n", 0, length)
        self.rest = self.rest[length:]

    def next_sign(self) -> str:
        """The next sign that is no space, or an empty text at the end."""
        while True:
            stripped = self.rest.lstrip()
            self.use(len(self.rest) - len(stripped))
            if self.rest or not self.more():
                return self.rest[:1]

    def error(self, problem: str) -> DataError:
        """An error at the present line."""
        return DataError(problem, REMEDY, path=self.path, line=self.line)


def read_json_array(path: Path) -> Iterator[tuple[int, Any]]:
    """Yield (line where it begins, item) of a file that is one JSON array.

    Raises DataError, with file and line, where it is none or is cut off.
    """
    text = Text(path)
    if text.next_sign() != "[":
        raise text.error("The file is no JSON array: it does not begin with '['.")
    text.use(1)
    if text.next_sign() == "]":
        return
    decoder = json.JSONDecoder()
    while True:
        text.next_sign()
        line = text.line
        item, length = decoded(decoder, text)
        text.use(length)
        yield line, item
        sign = text.next_sign()
        if sign == "]":
            return
        if sign != ",":
            found = f"{sign!r}" if sign else "the end of the file"
            raise text.error(f"The JSON array does not go on: expected ',' or ']', got {found}.")
        text.use(1)


def decoded(decoder: json.JSONDecoder, text: Text) -> tuple[Any, int]:
    """The item at the beginning of the window, and its length; reads on as far as needed."""
    while True:
        try:
            item, length = decoder.raw_decode(text.rest)
        except json.JSONDecodeError as error:
            if not text.more():
                where = text.line + error.lineno - 1
                problem = f"The text is not JSON: {error.msg} at column {error.colno}."
                raise DataError(problem, REMEDY, path=text.path, line=where) from error
            continue
        if length < len(text.rest) or not text.more():
            return item, length
