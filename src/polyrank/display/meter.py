"""The numbers of one piece of long work, and the lines that show them.

The rate is that of the last half minute, of what is newly done: what an earlier run has done does
not count. Knows nothing of streams and terminals.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable, Mapping

from polyrank.display.words import amount, clock, per_time, size, span

WINDOW = 30.0
"""Seconds over which the rate is taken; longer where little is reported in them."""
FEWEST_MARKS = 8
SPACING = 0.25
"""Seconds between two marks."""
FEWEST_SECONDS = 1.0
"""Before that there is no rate."""
GAP = "  "
BAR, LONGEST_BAR = 6, 30


class Meter:
    """How far one piece of work is. Any thread may read it while another one adds to it."""

    def __init__(
        self,
        description: str,
        *,
        total: int | None = None,
        unit: str = "",
        done: int = 0,
        rate: tuple[str, int] | None = None,
        has_rate: bool = True,
        own_time: bool = False,
        memory: Callable[[], int | None],
        figures: Callable[[], Mapping[str, str]],
    ) -> None:
        """`done` is what an earlier run has done. `rate` is another unit for the rate, and how many
        of it one is; with `own_time`, the rate leaves out nested work. `memory` gives the peak so
        far, in bytes. `figures` gives what else is worth watching, such as the loss, by name, what
        matters most first.
        """
        self.description = description
        self.total = total
        self.unit = unit
        self.done = done
        self.rate_unit, self.rate_factor = rate or (unit, 1)
        self.names_rate = rate is not None
        self.has_rate = has_rate
        self.own_time = own_time
        self.memory = memory
        self.figures = figures
        self.began = self.last = time.monotonic()
        self.new = 0
        self.nested = 0.0
        """Seconds of nested work."""
        self.marks = deque([(self.began, 0)])

    def add(self, count: int, new: bool = True) -> None:
        """Count what is done; what is not `new` was done by an earlier run."""
        self.done += count
        if not new:
            return
        self.new += count
        now = self.last = time.monotonic()
        if now - self.marks[-1][0] >= SPACING:
            self.marks.append((now, self.new))
            while len(self.marks) > FEWEST_MARKS and now - self.marks[0][0] > WINDOW:
                self.marks.popleft()

    def leave_out(self, seconds: float) -> None:
        """Leave the time of nested work out of the rate, where that is wanted."""
        if not self.own_time:
            return
        self.nested += seconds
        self.last += seconds
        self.marks = deque((at + seconds, new) for at, new in self.marks)

    @property
    def elapsed(self) -> float:
        """Seconds since the beginning."""
        return time.monotonic() - self.began

    @property
    def rate(self) -> float | None:
        """How many are done per second at present; None while that is unknown."""
        began, before = self.marks[0]
        seconds = self.last - began
        if self.new == before or seconds < FEWEST_SECONDS:
            return None
        return (self.new - before) / seconds

    @property
    def mean_rate(self) -> float | None:
        """How many were done per second, from the beginning to now."""
        seconds = self.elapsed - self.nested
        return self.new / seconds if self.new and seconds > 0 else None

    @property
    def left(self) -> float | None:
        """The seconds that are left, if that can be told."""
        if self.total is None or self.done > self.total:
            return None
        if self.nested and self.new:  # there will be more of it
            return (self.total - self.done) * self.elapsed / self.new
        rate = self.rate
        return None if rate is None else (self.total - self.done) / rate

    @property
    def share(self) -> float | None:
        """The share that is done, if there is a total that holds."""
        return self.done / self.total if self.total and self.done <= self.total else None

    def rate_words(self, rate: float | None, *, named: bool = False) -> str:
        """A rate in words, or nothing."""
        if rate is None or not self.has_rate:
            return ""
        number, _, each = per_time(rate * self.rate_factor, self.rate_unit).partition("/")
        name = f" {self.rate_unit}" if (named or self.names_rate) and self.rate_unit else ""
        return f"{number}{name if self.rate_unit != 'bytes' else ''}/{each}"

    def memory_words(self) -> str:
        """The peak memory in words, or nothing."""
        peak = self.memory()
        return f"peak {size(peak)}" if peak else ""


def peak_memory() -> int | None:
    """The most memory that this process has had, in bytes; None where the system does not say."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def live_line(meter: Meter, width: int, full: str = "━", empty: str = "─") -> str:
    """The meter as one line of at most `width` columns: what matters most is kept in a narrow one.

    The bar is made of the letters `full` and `empty`.
    """
    share, left = meter.share, meter.left
    figures = figure_words(meter)
    # in the order in which they matter
    shown = {
        "percent": "" if share is None else f"{int(100 * share)}%",
        "left": "" if left is None else f"{clock(left)} left",
        **dict(list(figures.items())[:1]),
        "count": count_words(meter, "/", named=False),
        "rate": meter.rate_words(meter.rate),
        **figures,
        "memory": meter.memory_words(),
        "elapsed": clock(meter.elapsed),
    }
    # in the order in which they stand
    order = ("percent", "count", *figures, "rate", "elapsed", "left", "memory")
    taken = dict.fromkeys(order, "")
    room = width - len(meter.description)
    if room < 2 * BAR:
        room = min(max(2 * BAR, width // 2), width)
    for name, words in shown.items():
        if words and len(words) + len(GAP) <= room:
            taken[name] = words
            room -= len(words) + len(GAP)
    if taken["elapsed"] and taken["left"]:
        taken["left"] = f"{taken.pop('elapsed')}, {taken['left']}"
    named = count_words(meter, "/", named=True)
    if taken["count"] and len(named) - len(taken["count"]) <= room:
        room -= len(named) - len(taken["count"])
        taken["count"] = named
    parts = [words for words in taken.values() if words]
    cells = min(room - len(GAP), LONGEST_BAR)
    if share is not None and cells >= BAR:
        parts.insert(0, full * round(share * cells) + empty * (cells - round(share * cells)))
    rest = "".join(GAP + words for words in parts)
    return fitted(meter.description, width - len(rest)) + rest


def fitted(text: str, width: int) -> str:
    """A text, cut to a width."""
    return text if len(text) <= width else text[: max(width - 3, 0)] + "..."[: max(width, 0)]


def count_words(meter: Meter, of: str, *, named: bool) -> str:
    """How many are done, of how many; nothing where nothing is counted."""
    if not meter.done and meter.total is None:
        return ""
    words = amount(meter.done, meter.unit)
    if meter.share is not None:
        words += of + amount(meter.total or 0, meter.unit)
    return f"{words} {meter.unit}" if named and meter.unit not in ("", "bytes") else words


def figure_words(meter: Meter) -> dict[str, str]:
    """Each figure in words."""
    return {name: f"{name} {value}" for name, value in meter.figures().items()}


def plain_line(meter: Meter) -> str:
    """The meter as a line of a log."""
    share, left = meter.share, meter.left
    count = count_words(meter, " of ", named=True)
    words = [
        count if share is None else f"{count} ({int(100 * share)}%)",
        *figure_words(meter).values(),
        meter.rate_words(meter.rate),
        span(meter.elapsed),
        "" if left is None else f"{span(left)} left",
        meter.memory_words(),
    ]
    return f"{meter.description}: {', '.join(filter(None, words))}"


def last_line(meter: Meter) -> str:
    """The line of a log that says what was done and how long it took."""
    count = count_words(meter, " of ", named=True)
    if meter.done == meter.total or (meter.new and meter.new < meter.done):
        count = f"{amount(meter.new, meter.unit)} {'' if meter.unit == 'bytes' else meter.unit}"
    words = [
        f"{count.strip()} in {span(meter.elapsed)}" if meter.new else span(meter.elapsed),
        *figure_words(meter).values(),
        meter.rate_words(meter.mean_rate),
        meter.memory_words(),
    ]
    return f"{meter.description}: {', '.join(filter(None, words))}"
