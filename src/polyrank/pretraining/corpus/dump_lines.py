"""Lines of a dump of any size, as bytes, with a cut-off file told from a whole one.

Knows compressions; knows nothing of what the lines mean.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from polyrank.data.files import damaged, is_damage, open_bytes
from polyrank.errors import MissingExtraError

LARGEST_WINDOW = 2**31
"""How far back a .zst file may refer, in bytes: dumps are compressed with `--long=31`.

That much of what was read stays in memory where a file was: 2 GiB, whatever reads it.
"""
CHUNK = 1 << 16


class Frames(io.RawIOBase):
    """What is in the frames of a .zst file. Raises EOFError where the last one does not end."""

    def __init__(self, raw: IO[bytes]) -> None:
        try:
            import zstandard
        except ImportError:
            raise MissingExtraError("zstandard", "zstd", "Reading .zst files") from None
        self.raw = raw
        self.decompressor = zstandard.ZstdDecompressor(max_window_size=LARGEST_WINDOW)
        self.frame: Any = None
        self.pending = memoryview(b"")

    def readable(self) -> bool:
        """Yes."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill the buffer with what comes next; 0 at the end."""
        while not self.pending:
            chunk = self.raw.read(CHUNK)
            if not chunk:
                if self.frame is not None:
                    raise EOFError("the file ends in the middle of a frame")
                return 0
            self.pending = memoryview(self.decompressed(chunk))
        size = min(len(buffer), len(self.pending))
        buffer[:size] = self.pending[:size]
        self.pending = self.pending[size:]
        return size

    def close(self) -> None:
        """Close the file too."""
        self.raw.close()
        super().close()

    def decompressed(self, chunk: bytes) -> bytes:
        """What a chunk of the file adds; it may end one frame and begin another."""
        pieces = []
        while chunk:
            if self.frame is None:
                self.frame = self.decompressor.decompressobj()
            pieces.append(self.frame.decompress(chunk))
            chunk = b""
            if self.frame.eof:
                chunk = self.frame.unused_data
                self.frame = None
        return b"".join(pieces)


def read_byte_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield (line number from 1, line without its end) of a file, plain or compressed.

    Raises DataError, with the line, where the compressed data is broken or cut off.
    """
    number = 0
    with open_dump(path) as handle:
        try:
            for number, line in enumerate(handle, start=1):
                yield number, line.rstrip(b"\r\n")
        except Exception as error:
            if not is_damage(error):
                raise
            raise damaged(path, number + 1, error) from error


def open_dump(path: Path) -> IO[bytes]:
    """Open a dump; .zst with the large window that dumps are written with."""
    if path.suffix != ".zst":
        return open_bytes(path)
    open_bytes(path).close()
    return io.BufferedReader(Frames(open(path, "rb")), 1 << 20)
