"""The encoding of a text file: UTF-8, UTF-16 by its bytes, or a likely other one.

Knows bytes; knows nothing of files that are read line by line (`data.files`).
"""

from __future__ import annotations

import codecs
import io
from typing import IO, Any

LOOKED_AT = 4096
"""Bytes at the beginning of a file that tell UTF-16."""
CHUNK = 1 << 16
MARKS = {codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}
LIKELY = (
    ("cp949", "CP949", "Korean", "가", "힣", 0.9),
    ("cp932", "CP932", "Japanese", "ぁ", "ヿ", 0.25),
    ("gb18030", "GB18030", "Chinese", "一", "鿿", 0.9),
)
"""Encodings with the signs that most of such a text's signs beyond ASCII are, and how many."""


class AsUtf8(io.RawIOBase):
    """The bytes of a file in another encoding, as UTF-8."""

    def __init__(self, raw: IO[bytes], encoding: str) -> None:
        self.raw = raw
        self.decoder = codecs.getincrementaldecoder(encoding)()
        self.pending = b""

    def readable(self) -> bool:
        """Whether it can be read: always."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill the buffer with the next bytes; returns 0 at the end."""
        while not self.pending:
            chunk = self.raw.read(CHUNK)
            self.pending = self.decoder.decode(chunk, final=not chunk).encode()
            if not chunk and not self.pending:
                return 0
        size = min(len(buffer), len(self.pending))
        buffer[:size] = self.pending[:size]
        self.pending = self.pending[size:]
        return size


def as_utf8(raw: IO[bytes]) -> IO[bytes]:
    """The same file, decoded if it is UTF-16. Its byte order mark stays."""
    peek = getattr(raw, "peek", None)
    encoding = None if peek is None else utf16_of(peek(LOOKED_AT)[:LOOKED_AT])
    return raw if encoding is None else io.BufferedReader(AsUtf8(raw, encoding), CHUNK)


def utf16_of(start: bytes) -> str | None:
    """The kind of UTF-16 that the beginning of a file shows, or None.

    Without a mark, zero bytes tell it, which no text in another encoding has: in the order of bytes
    that is right, they belong to spaces, line ends and other ASCII.
    """
    for mark, encoding in MARKS.items():
        if start.startswith(mark):
            return encoding
    if b"\0" not in start:
        return None
    counts = {encoding: ascii_in(start, encoding) for encoding in MARKS.values()}
    best = max(counts, key=lambda encoding: counts[encoding])
    return best if counts[best] > 2 * min(counts.values()) else None


def ascii_in(start: bytes, encoding: str) -> int:
    """How many signs are printed ASCII or space; -1 for what is not a text in the encoding."""
    try:
        text = codecs.getincrementaldecoder(encoding)().decode(start)
    except UnicodeDecodeError:
        return -1
    if any(sign < " " and sign not in "\t\r\n" for sign in text):
        return -1
    return sum(sign < "\x7f" for sign in text)


def likely_encoding(start: bytes) -> tuple[str, str]:
    """The encoding that bytes which are not UTF-8 are probably in: its name, and whose it is."""
    for encoding, name, language, first, last, share in LIKELY:
        try:
            text = codecs.getincrementaldecoder(encoding)().decode(start)
        except UnicodeDecodeError:
            continue
        beyond = [sign for sign in text if sign.isalpha() and sign > "\x7f"]
        if beyond and sum(first <= sign <= last for sign in beyond) >= share * len(beyond):
            return name, language
    return "CP1252", "Western European"


def is_mostly_utf8(start: bytes) -> bool:
    """Whether most of what is not ASCII is UTF-8 after all."""
    beyond = [sign for sign in start.decode("utf-8", "replace") if sign > "\x7f"]
    return beyond.count("\ufffd") * 2 < len(beyond)
