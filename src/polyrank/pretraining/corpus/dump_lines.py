"""Lines of a dump of any size, as bytes. Knows nothing of what the lines mean."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from polyrank.data.files import damaged, is_damage, open_bytes


def read_byte_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield (line number from 1, line without its end) of a file, plain or compressed.

    Raises DataError, with the line, where the compressed data is broken or cut off.
    """
    number = 0
    with open_bytes(path) as handle:
        try:
            for number, line in enumerate(handle, start=1):
                yield number, line.rstrip(b"\r\n")
        except Exception as error:
            if not is_damage(error):
                raise
            raise damaged(path, number + 1, error) from error
