"""What a command says: words for people, or one JSON object for programs.

Without --json words go to standard output. With --json they go to standard error and standard
output holds exactly one JSON object, or one per line where a command answers line by line. Knows
streams; knows nothing of what is said.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import math
import os
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from polyrank.errors import StorageError

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

WIDTH_WITHOUT_TERMINAL = 160
CONTROL = {*range(0x20), *range(0x7F, 0xA0)} - {ord("\n"), ord("\t")}
"""Control characters, with those that begin a terminal's escape sequences."""
BIDIRECTIONAL = {*range(0x202A, 0x202F), *range(0x2066, 0x206A)}
"""Characters that reverse the order of what follows, so that a text looks like another."""
ESCAPES = {
    **{code: f"\\x{code:02x}" for code in CONTROL},
    **{code: f"\\u{code:04x}" for code in BIDIRECTIONAL},
}
"""How people see characters that would not be seen."""


class Output:
    """Where a command puts its words and its result."""

    def __init__(self, *, json: bool = False) -> None:
        self.json = json
        self.started = time.perf_counter()

    @property
    def seconds(self) -> float:
        """How long the command has taken."""
        return time.perf_counter() - self.started

    @property
    def stream(self) -> TextIO:
        """Where words for people go."""
        return sys.stderr if self.json else sys.stdout

    def say(self, text: str = "") -> None:
        """Print a line for people: brackets are not markup, control characters are escaped."""
        put(visible(text), self.stream)

    def warn(self, text: str) -> None:
        """Print a warning on standard error."""
        print(f"Warning: {visible(text)}", file=sys.stderr, flush=True)

    def table(self, table: RenderableType) -> None:
        """Print a rich table, or anything rich can draw, for people."""
        console_for(self.stream).print(table)

    def result(self, result: Mapping[str, Any]) -> None:
        """Print a JSON object with --json; without it, nothing.

        Call it once, last, or once per question where a command converses.
        """
        if self.json:
            put(json_line(plain(result)), sys.stdout)


def put(text: str, stream: TextIO) -> None:
    """Print a line at once. Raises StorageError where the stream cannot take it."""
    with written(stream):
        print(text, file=stream, flush=True)


@contextlib.contextmanager
def written(stream: TextIO) -> Iterator[None]:
    """Raise StorageError where what is printed or flushed within cannot be written.

    Where nobody reads the stream any more, it is BrokenPipeError, as print raises it.
    """
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        give_up(stream)
        raise StorageError(
            f"The output cannot be written: {error.strerror}.",
            "Free some space, or direct standard output elsewhere.",
        ) from error


def give_up(stream: TextIO) -> None:
    """Send what else goes to a stream nowhere: Python would fail once more when it ends."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def json_line(value: Any) -> str:
    """A value as JSON on one line; where the output is not UTF-8, it is ASCII."""
    encoding = (sys.stdout.encoding or "utf-8").lower().replace("-", "")
    return json.dumps(value, ensure_ascii=encoding != "utf8", allow_nan=False)


def escape_what_cannot_be_encoded() -> None:
    """Let standard output and error escape what their encoding cannot write."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def say_error(message: str) -> None:
    """Print an error on standard error."""
    label = "\x1b[1;31mError:\x1b[0m" if use_colour() else "Error:"
    print(f"{label} {visible(message)}", file=sys.stderr, flush=True)


def visible(text: str, *, on_one_line: bool = False) -> str:
    """A text for a terminal, whoever wrote it: control characters and the like are escaped."""
    found = text.translate(ESCAPES)
    return found.replace("\n", "\\n") if on_one_line else found


def use_colour() -> bool:
    """Whether standard error is a terminal that has not been asked to stay plain."""
    return sys.stderr.isatty() and not os.environ.get("NO_COLOR")


def console_for(stream: TextIO) -> Console:
    """A rich console on a stream, wide enough for tables if it is not a terminal.

    It raises BrokenPipeError, as print does, where rich would end the process.
    """
    from rich.console import Console

    class PlainConsole(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError

    width = None if stream.isatty() else WIDTH_WITHOUT_TERMINAL
    return PlainConsole(file=stream, width=width, highlight=False)


def plain(value: Any) -> Any:
    """A value of JSON: paths as texts, arrays as lists, infinities and NaN as null."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    if isinstance(value, Mapping):
        return {str(name): plain(item) for name, item in value.items()}
    if hasattr(value, "_asdict"):
        return plain(value._asdict())
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"a {type(value).__name__} cannot be written as JSON")
