"""Opening text files, plain or compressed, and reading them line by line with their numbers.

Knows encodings and compressions; knows nothing of what the lines mean.
"""

from __future__ import annotations

import bz2
import codecs
import gzip
import io
import json
import lzma
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, cast

from polyrank.errors import DataError

COMPRESSIONS = (".gz", ".bz2", ".xz", ".zst")


def open_bytes(path: Path) -> IO[bytes]:
    """Open a file for reading, decompressing .gz, .bz2, .xz and .zst as they lie.

    Raises DataError if there is no such file, MissingExtraError for .zst without its package.
    """
    if path.is_dir():
        raise DataError("This is a folder, not a file.", "Give the path of a file.", path=path)
    openers: dict[str, Any] = {
        ".gz": gzip.open,
        ".bz2": bz2.open,
        ".xz": lzma.open,
        ".zst": open_zstandard,
    }
    try:
        return cast("IO[bytes]", openers.get(path.suffix, open)(path, "rb"))
    except FileNotFoundError:
        raise DataError("There is no such file.", "Check the path.", path=path) from None
    except OSError as error:
        raise DataError(
            f"The file cannot be opened: {error.strerror}.", "Check its permissions.", path=path
        ) from error


def open_zstandard(path: Path, _: str) -> Any:
    """Open a .zst file with the zstandard package, buffered so that lines can be read."""
    from polyrank.data.zstandard_frames import Frames

    return io.BufferedReader(Frames(path), 1 << 20)


def read_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield (line number from 1, line without its end). Empty lines are yielded too.

    Raises DataError, with the line, where the bytes are not UTF-8 or the compressed data is broken.
    """
    number = 0
    with open_bytes(path) as handle:
        try:
            for number, line in enumerate(handle, start=1):
                if number == 1:
                    line = line.removeprefix(codecs.BOM_UTF8)
                yield number, line.rstrip(b"\r\n").decode("utf-8")
        except UnicodeDecodeError as error:
            raise DataError(
                f"The text is not UTF-8: {error.reason} at byte {error.start} of the line.",
                "Convert the file, for example with: iconv -f LATIN1 -t UTF-8.",
                path=path,
                line=number,
            ) from error
        except Exception as error:
            if not is_damage(error):
                raise
            raise damaged(path, number + 1, error) from error


def read_start(path: Path, size: int) -> bytes:
    """The first bytes of a file, without a byte order mark and space before them.

    Raises DataError where the compressed data is broken.
    """
    with open_bytes(path) as handle:
        try:
            return handle.read(size).removeprefix(codecs.BOM_UTF8).lstrip()
        except Exception as error:
            if not is_damage(error):
                raise
            raise damaged(path, 1, error) from error


def is_damage(error: Exception) -> bool:
    """Whether an error of reading comes from broken compressed data."""
    # zstandard's own error cannot be named where the package is not installed
    known = (OSError, EOFError, lzma.LZMAError, ValueError, zlib.error)
    return isinstance(error, known) or type(error).__name__ == "ZstdError"


def damaged(path: Path, line: int, error: Exception) -> DataError:
    """The error of broken compressed data."""
    return DataError(
        f"The compressed data cannot be read: {error}.",
        "The file is damaged or cut off; fetch it again.",
        path=path,
        line=line,
    )


def read_json_lines(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (line number, object) of a JSONL file; blank lines are passed over.

    Raises DataError, with file and line, for a line that is not a JSON object.
    """
    for number, line in read_lines(path):
        if line.strip():
            yield number, json_object(path, number, line)


def json_object(path: Path, number: int, line: str) -> dict[str, Any]:
    """The JSON object of a line. Raises DataError, with file and line, if it is none."""
    try:
        record = json.loads(line)
    except json.JSONDecodeError as error:
        raise DataError(
            f"The line is not JSON: {error.msg} at column {error.colno}.",
            "Write one JSON object a line.",
            path=path,
            line=number,
        ) from error
    if not isinstance(record, dict):
        raise DataError(
            f"The line holds a {type(record).__name__}, not a JSON object.",
            'Write one JSON object a line, such as {"context": "…", "response": "…"}.',
            path=path,
            line=number,
        )
    return record


def base_suffix(path: Path) -> str:
    """The suffix below a compression: `.jsonl` of `dev.jsonl.xz`."""
    return Path(path.stem).suffix if path.suffix in COMPRESSIONS else path.suffix
