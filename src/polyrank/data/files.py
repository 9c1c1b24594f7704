"""Opens text files, plain or compressed, and reads them line by line with line numbers.

Knows encodings, compressions and how an error names its place, but not what the lines mean.
"""

from __future__ import annotations

import bz2
import codecs
import gzip
import io
import lzma
import shlex
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from polyrank.data.encodings import as_utf8, is_mostly_utf8, likely_encoding
from polyrank.errors import DataError, MissingExtraError, nearest

COMPRESSIONS = (".gz", ".bz2", ".xz", ".zst")
LARGEST_WINDOW = 2**31
"""How far back a .zst file may refer, in bytes: dumps are compressed with `--long=31`.

Whatever reads such a file keeps that much of it in memory: 2 GiB.
"""
MOST_EXPANSION = 250
EXPANSION_ALLOWED = 1 << 26
"""A compressed file may expand to so many times its size, and to so many bytes in any case."""
CHUNK = 1 << 16
SPREADSHEET = "Save it as CSV in the spreadsheet program (“CSV UTF-8”), and give that file."
NOT_TEXTS = {
    b"PK\x03\x04": ("a ZIP archive", "Unpack it, and give the file with the texts."),
    b"\xd0\xcf\x11\xe0": ("an Excel workbook", SPREADSHEET),
    b"%PDF": ("a PDF", "Copy its texts into a CSV file, and give that."),
    b"PAR1": ("a Parquet file", "Let its name end in .parquet."),
    b"\x1f\x8b": ("compressed by gzip", "Let its name end in .gz."),
    b"BZh": ("compressed by bzip2", "Let its name end in .bz2."),
    b"\xfd7zXZ": ("compressed by xz", "Let its name end in .xz."),
    b"\x28\xb5\x2f\xfd": ("compressed by zstd", "Let its name end in .zst."),
}
"""How files begin that are taken for texts and are none: what they are, and what to do."""
WORKBOOK = (b"xl/", b"[Content_Types].xml")
"""What the beginning of an Excel workbook, a ZIP archive, names."""

Blame = Callable[[str, str], DataError]
"""Makes an error from a problem and a remedy, and adds the place."""


def at_line(path: Path, line: int) -> Blame:
    """A maker of errors that name a line of a file, from 1."""
    return lambda problem, remedy: DataError(problem, remedy, path=path, line=line)


def at_place(path: Path, place: str) -> Blame:
    """A maker of errors that name another place in a file, such as `row 3` or `$[3].label`."""
    return lambda problem, remedy: DataError(f"At {place}: {problem}", remedy, path=path)


def open_bytes(path: Path) -> IO[bytes]:
    """Open a file for reading; .gz, .bz2, .xz and .zst are decompressed on the way.

    Raises DataError if there is no such file, and MissingExtraError for .zst without its package.
    """
    if path.is_dir():
        raise DataError("This is a folder, not a file.", "Give the path of a file.", path=path)
    openers: dict[str, Callable[[Path], Any]] = {
        ".gz": gzip.open,
        ".bz2": bz2.open,
        ".xz": lzma.open,
        ".zst": ZstandardFrames,
    }
    try:
        if path.suffix not in openers:
            return open(path, "rb")
        return io.BufferedReader(Expanded(openers[path.suffix](path), path), 1 << 20)
    except FileNotFoundError:
        raise DataError("There is no such file.", how_to_find(path), path=path) from None
    except OSError as error:
        raise DataError(
            f"The file cannot be opened: {error.strerror}.", "Check its permissions.", path=path
        ) from error


def how_to_find(path: Path) -> str:
    """What to do about a file that is not there: the name of one that is nearly the same."""
    folder = path.parent
    try:
        names = [found.name for found in folder.iterdir()]
    except OSError:
        return f"There is no folder {folder} either; check the path."
    found = nearest(path.name, names)
    return found if found.startswith("Did") else "Check the path."


def text_in(raw: IO[bytes], path: Path) -> IO[bytes]:
    """A file of texts as UTF-8; UTF-16 is decoded. Raises DataError for what is not a text."""
    peek = getattr(raw, "peek", None)
    start: bytes = b"" if peek is None else peek(CHUNK)[:CHUNK]
    for mark, (what, remedy) in NOT_TEXTS.items():
        if start.startswith(mark):
            if mark.startswith(b"PK") and any(name in start for name in WORKBOOK):
                what, remedy = NOT_TEXTS[b"\xd0\xcf\x11\xe0"]
            raise DataError(f"The file is not a text but {what}.", remedy, path=path)
    return as_utf8(raw)


class Allowance:
    """The bytes that a compressed file may expand to.

    That is MOST_EXPANSION times its size, and EXPANSION_ALLOWED in any case: a text compresses to a
    tenth, and a file that is made to fill memory to a thousandth.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.left = max(MOST_EXPANSION * path.stat().st_size, EXPANSION_ALLOWED)

    def use(self, count: int) -> None:
        """Count so many bytes more. Raises DataError where they are too many."""
        self.left -= count
        if self.left < 0:
            raise DataError(
                f"The file expands to more than {MOST_EXPANSION} times its size, and more than "
                f"{EXPANSION_ALLOWED:,} bytes.",
                "It may be made to fill the memory. If you trust it, decompress it first, or write "
                "it as JSONL.",
                path=self.path,
            )


class Expanded(io.RawIOBase):
    """What a compressed file expands to. Raises DataError beyond its `Allowance`."""

    def __init__(self, raw: Any, path: Path) -> None:
        self.raw = raw
        self.allowance = Allowance(path)

    def readable(self) -> bool:
        """Whether it can be read: always."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill the buffer with the next bytes; returns 0 at the end."""
        data: bytes = self.raw.read1(len(buffer))  # what comes before damage is not lost
        count = len(data)
        buffer[:count] = data
        self.allowance.use(count)
        return count

    def close(self) -> None:
        """Close the file too."""
        self.raw.close()
        super().close()


class ZstandardFrames:
    """The bytes in the frames of a .zst file; detects a truncated file.

    Raises MissingExtraError without the package; reading raises EOFError if the last frame does not
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

    def read1(self, size: int) -> bytes:
        """The next bytes, at most so many; none at the end."""
        while not self.pending:
            chunk = self.raw.read(CHUNK)
            if not chunk:
                if self.frame is not None:
                    raise EOFError("the file ends in the middle of a frame")
                return b""
            self.pending = memoryview(self.decompressed(chunk))
        found = bytes(self.pending[:size])
        self.pending = self.pending[size:]
        return found

    def close(self) -> None:
        """Close the file."""
        self.raw.close()

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


def read_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield (line number from 1, line without its end), empty lines too.

    Raises DataError, with the line, if the bytes are not UTF-8 or the compressed data is damaged.
    """
    number = 0
    with open_bytes(path) as raw:
        try:
            for number, line in enumerate(text_in(raw, path), start=1):
                if number == 1:
                    line = line.removeprefix(codecs.BOM_UTF8)
                yield number, line.rstrip(b"\r\n").decode("utf-8")
        except UnicodeDecodeError as error:
            raise not_utf8(path, number, error.start, error.reason) from error
        except Exception as error:
            if not is_damage(error):
                raise
            raise damaged(path, number + 1, error) from error


def read_text_start(path: Path, size: int) -> bytes:
    """The first bytes of a file of texts as `read_start` gives them, in UTF-8.

    Raises DataError for what is not a text too.
    """
    with open_bytes(path) as raw:
        try:
            return text_in(raw, path).read(size).removeprefix(codecs.BOM_UTF8).lstrip()
        except Exception as error:
            if not is_damage(error):
                raise
            raise damaged(path, 1, error) from error


def read_start(path: Path, size: int) -> bytes:
    """The first bytes of a file, after a byte order mark and white space.

    Raises DataError if the compressed data is damaged.
    """
    with open_bytes(path) as handle:
        try:
            return handle.read(size).removeprefix(codecs.BOM_UTF8).lstrip()
        except Exception as error:
            if not is_damage(error):
                raise
            raise damaged(path, 1, error) from error


def is_damage(error: Exception) -> bool:
    """Whether a reading error comes from damaged compressed data."""
    # zstandard's own error cannot be named where the package is not installed
    known = (OSError, EOFError, lzma.LZMAError, ValueError, zlib.error)
    if isinstance(error, DataError):
        return False
    return isinstance(error, known) or type(error).__name__ == "ZstdError"


def damaged(path: Path, line: int, error: Exception) -> DataError:
    """The error for damaged compressed data."""
    return at_line(path, line)(
        f"The compressed data cannot be read: {error}.",
        "The file is damaged or truncated; download it again.",
    )


def not_utf8(path: Path, line: int, byte: int, reason: str) -> DataError:
    """The error of a text in another encoding, with the one that it is probably in."""
    problem = f"The text is not UTF-8: {reason} at byte {byte} of the line."
    return at_line(path, line)(problem, how_to_convert(path))


def how_to_convert(path: Path) -> str:
    """What to do about a text in another encoding: the command that converts it."""
    try:
        with open_bytes(path) as handle:
            start = handle.read(CHUNK)
    except Exception as error:
        if not isinstance(error, DataError) and not is_damage(error):
            raise
        return "Convert the file to UTF-8."
    if is_mostly_utf8(start):
        return "The rest of the file is UTF-8: mend this line, or remove it."
    name, language = likely_encoding(start)
    if path.suffix in COMPRESSIONS:
        return f"It looks like {name} ({language}): decompress the file and convert it to UTF-8."
    target = path.with_name(f"{path.stem}-utf8{path.suffix}")
    command = shlex.join(["iconv", "-f", name, "-t", "UTF-8", str(path)])
    return f"It looks like {name} ({language}): {command} > {shlex.quote(str(target))} converts it."


def base_suffix(path: Path) -> str:
    """The suffix below a compression: `.jsonl` of `dev.jsonl.xz`."""
    return Path(path.stem).suffix if path.suffix in COMPRESSIONS else path.suffix
