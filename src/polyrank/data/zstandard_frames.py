"""What is in a .zst file, with a cut-off one told from a whole one. Knows nothing of lines."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from polyrank.errors import MissingExtraError

LARGEST_WINDOW = 2**31
"""How far back a .zst file may refer, in bytes: dumps are compressed with `--long=31`.

That much of what was read stays in memory where a file was: 2 GiB, whatever reads it.
"""
CHUNK = 1 << 16


class Frames(io.RawIOBase):
    """What is in the frames of a .zst file, as bytes.

    Raises MissingExtraError without the package; reading, EOFError where the last frame does not
    end.
    """

    def __init__(self, path: Path) -> None:
        try:
            import zstandard
        except ImportError:
            raise MissingExtraError("zstandard", "zstd", "Reading .zst files") from None
        self.raw = open(path, "rb")  # noqa: SIM115 - closed with this
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
