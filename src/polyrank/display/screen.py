"""Where long work is shown: a live line or two on a terminal, lines now and then anywhere else.

A thread draws, four times a second at most, so that reporting costs the work nothing. Knows
meters; knows nothing of what they measure.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Iterator
from typing import Any, TextIO

from polyrank.display.meter import Meter, last_line, live_line, plain_line

DELAY = 2.0
"""Seconds of work before anything is shown of it."""
NESTED_DELAY = 0.5
TICK = 0.25
FIRST_LINE = 5.0
"""Seconds before the first line where there is no terminal; each gap is twice the one before."""
NESTED_FIRST_LINE = 30.0
LONGEST_GAP = 600.0
ERASE = "\x1b[J"
ERASE_LINE = "\x1b[K"
DUMB = {"dumb", "unknown"}
"""Values of TERM of terminals without control sequences."""


class Screen:
    """The work of this process that is under way, the outermost first, and how it is shown."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Show nothing yet."""
        self.lock = threading.RLock()
        self.shown: list[tuple[Meter, Lines]] = []
        self.terminal: Terminal | None = None
        self.done = threading.Event()
        self.still = 0

    @contextlib.contextmanager
    def showing(self, meter: Meter, *, lines: bool) -> Iterator[bool]:
        """Show the meter; gives whether people see it live, and no log. Without `lines`, no line
        stays.
        """
        with self.lock:
            if not self.shown:
                self.terminal = Terminal(self.lock) if is_terminal(sys.stderr) else None
                self.done = threading.Event()
                threading.Thread(target=self.keep_drawing, args=(self.done,), daemon=True).start()
            entry = meter, Lines(NESTED_FIRST_LINE if self.shown else FIRST_LINE, lines)
            self.shown.append(entry)
            live = self.terminal is not None and is_terminal(sys.stdout)
        completed = False
        try:
            yield live
            completed = True
        finally:
            self.remove(entry, completed=completed)

    def remove(self, entry: tuple[Meter, Lines], *, completed: bool) -> None:
        """End the showing of a meter; of long work, one line stays."""
        meter, lines = entry
        with self.lock:
            place = self.shown.index(entry)
            nested = place > 0
            if nested:
                self.shown[place - 1][0].leave_out(meter.elapsed)
            self.shown.remove(entry)
            if not self.shown:
                self.done.set()
                if self.terminal is not None:
                    self.terminal.close()
                    self.terminal = None
            long = meter.elapsed >= DELAY and not nested
            if completed and lines.wanted and (long or lines.said):
                lines.say(last_line(meter), meter.elapsed, nested)

    def keep_drawing(self, done: threading.Event) -> None:
        """Draw until all is done; the work of the thread."""
        while not done.wait(TICK):
            with self.lock:
                if not done.is_set() and self.shown and not self.still:
                    self.draw()

    def draw(self) -> None:
        """Show how far the work is."""
        (outermost, _), (innermost, lines) = self.shown[0], self.shown[-1]
        if self.terminal is None:
            nested = len(self.shown) > 1
            if lines.wanted and innermost.elapsed >= lines.due:
                lines.say(plain_line(innermost), innermost.elapsed, nested)
        elif outermost.elapsed >= DELAY:
            nested = innermost is not outermost and innermost.elapsed >= NESTED_DELAY
            self.terminal.draw([outermost, innermost] if nested else [outermost])

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Draw nothing for a while, so that measured times are not disturbed."""
        with self.lock:
            self.still += 1
        try:
            yield
        finally:
            with self.lock:
                self.still -= 1


class Lines:
    """The lines of a log about one piece of work, ever rarer."""

    def __init__(self, first: float, wanted: bool) -> None:
        self.due = self.gap = first
        self.wanted = wanted
        self.said = False

    def say(self, words: str, elapsed: float, nested: bool) -> None:
        """Write a line, and plan the next. Where standard error is closed, nobody is told."""
        self.said = True
        self.gap = min(2 * self.gap, LONGEST_GAP)
        self.due = elapsed + self.gap
        with contextlib.suppress(OSError, ValueError):
            if sys.stderr is not None:
                print(("  " if nested else "") + words, file=sys.stderr, flush=True)


class Terminal:
    """Lines at the bottom of a terminal that are drawn again and again.

    The cursor rests at their beginning, so that they can be erased wherever a change of the width
    has wrapped them. What is written to standard output and error meanwhile goes above them.
    """

    def __init__(self, lock: threading.RLock) -> None:
        self.lock = lock
        self.stream: TextIO = sys.stderr
        self.above: list[Above] = []
        self.is_drawn = False
        self.console: Any = None
        self.text = ""

    def draw(self, meters: list[Meter]) -> None:
        """Draw each meter as a line, in the place of the lines before."""
        if self.console is None:
            self.start()
        width = self.console.size.width - 1  # the last column would wrap in some terminals
        utf8 = (self.console.encoding or "").startswith("utf")
        letters = ("━", "─") if utf8 else ("=", " ")
        lines = [
            self.styled(("  " * number) + live_line(meter, width - 2 * number, *letters), letters)
            for number, meter in enumerate(meters)
        ]
        up = f"\x1b[{len(lines) - 1}A" if len(lines) > 1 else ""
        self.text = f"{ERASE_LINE}\n".join(lines) + ERASE_LINE + ERASE + "\r" + up
        self.redraw()

    def styled(self, line: str, letters: tuple[str, str]) -> str:
        """A line with its bar in colour, unless the terminal has none or NO_COLOR is set."""
        from rich.text import Text

        text = Text(line)
        text.highlight_regex(f"{letters[0]}+", "cyan")
        text.highlight_regex("─+", "dim")
        with self.console.capture() as captured:
            self.console.print(text, end="", no_wrap=True, overflow="crop", highlight=False)
        return str(captured.get())

    def start(self) -> None:
        """Take standard output and error, where they are terminals, to write above the lines."""
        from rich.console import Console

        sizes = ("COLUMNS", "LINES")  # may have been exported when the window had another size
        environment = {name: value for name, value in os.environ.items() if name not in sizes}
        self.console = Console(file=self.stream, legacy_windows=False, _environ=environment)
        for name in ("stdout", "stderr"):
            stream = getattr(sys, name)
            if is_terminal(stream):
                self.above.append(Above(name, stream, self))
                setattr(sys, name, self.above[-1])

    def redraw(self) -> None:
        """Write the lines again, unless somebody is in the middle of a line."""
        if all(stream.is_at_start for stream in self.above):
            self.write(self.text)
            self.is_drawn = bool(self.text)

    def erase(self) -> None:
        """Remove the lines."""
        if self.is_drawn:
            self.write(ERASE)
            self.is_drawn = False

    def write(self, text: str) -> None:
        """Write to the terminal, if it is still there."""
        with contextlib.suppress(OSError, ValueError):
            self.stream.write(text)
            self.stream.flush()

    def close(self) -> None:
        """Remove the lines."""
        self.text = ""
        self.erase()
        self.give_back()

    def give_back(self) -> None:
        """Put standard output and error back in their places."""
        for above in self.above:
            if getattr(sys, above.name) is above:
                setattr(sys, above.name, above.stream)


class Above:
    """A stream whose text is written above the lines of a terminal, unchanged."""

    def __init__(self, name: str, stream: TextIO, terminal: Terminal) -> None:
        self.name = name
        self.stream = stream
        self.terminal = terminal
        self.is_at_start = True

    def write(self, text: str) -> int:
        """Write, and draw the lines again below."""
        with self.terminal.lock:
            self.terminal.erase()
            count = self.stream.write(text)
            self.stream.flush()
            if text:
                self.is_at_start = text.endswith("\n")
            self.terminal.redraw()
        return count

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def is_terminal(stream: Any) -> bool:
    """Whether a stream is a terminal that understands control sequences."""
    if os.environ.get("TERM", "").lower() in DUMB:
        return False
    try:
        there = stream is not None and stream.isatty()
    except ValueError:  # it is closed
        return False
    if there and sys.platform == "win32":
        from rich.console import detect_legacy_windows

        return not detect_legacy_windows()
    return bool(there)


SCREEN = Screen()
"""The screen of this process: it has one standard error."""


def begin_after_fork() -> None:
    """Give a forked process a screen of its own: its parent's thread does not draw there."""
    if SCREEN.terminal is not None:
        SCREEN.terminal.give_back()
    SCREEN.begin()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=begin_after_fork)
