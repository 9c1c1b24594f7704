"""The characters of a text, as a file of UTF-8 can hold them. Knows no format and no language."""

from __future__ import annotations

import re

LONE_SURROGATE = re.compile("[\ud800-\udfff]")
"""Half of a character: JSON can write it (`\\ud83d`), UTF-8 cannot."""
SPACE = re.compile(r"\s+")
BLANK_LINES = re.compile(r"\n\s*\n")


def whole(text: str) -> str:
    """The text with U+FFFD for halves of characters; every character keeps its place."""
    return LONE_SURROGATE.sub("\ufffd", text)


def on_one_line(text: str) -> str:
    """The text with one blank for each run of space, and none around it."""
    return SPACE.sub(" ", text).strip()


def cut_at_blank_lines(text: str) -> list[str]:
    """The paragraphs of a text, without the space around them; none is empty."""
    pieces = (piece.strip() for piece in BLANK_LINES.split(text.replace("\r\n", "\n")))
    return [piece for piece in pieces if piece]
