"""Amounts, rates, times and sizes as people read them. Knows numbers only."""

from __future__ import annotations

BYTES = "bytes"
"""The unit whose amounts are written as MB or GB."""

MINUTE, HOUR, DAY = 60, 3600, 86400


def amount(count: float, unit: str) -> str:
    """A number of things: 12,480; 1.4 GB."""
    return size(count) if unit == BYTES else f"{count:,.0f}"


def size(count: float) -> str:
    """A number of bytes: 812 MB, 1.4 GB."""
    for name in ("bytes", "kB", "MB", "GB"):
        if count < 999.5:
            return f"{count:.1f} {name}" if count < 9.95 and name == "GB" else f"{count:.0f} {name}"
        count /= 1000
    return f"{count:.1f} TB"


def per_time(rate: float, unit: str) -> str:
    """So many things per second, or per minute or hour where they are slow: 812/s, 1.5/min."""
    if unit == BYTES:
        return f"{size(rate)}/s"
    for name, seconds in (("s", 1), ("min", MINUTE), ("h", HOUR)):
        if rate * seconds >= 1 or name == "h":
            return f"{short(rate * seconds)}/{name}"
    raise AssertionError(rate)


def short(number: float) -> str:
    """A number with one decimal if it is small: 3.4, 812, 12,480."""
    return f"{number:.1f}" if number < 9.95 else f"{number:,.0f}"


def clock(seconds: float) -> str:
    """A time in few letters, for a line that changes: 58 s, 4:05, 1:02:33, 2 d 3 h."""
    whole = round(seconds)
    if whole < MINUTE:
        return f"{whole} s"
    if whole < HOUR:
        return f"{whole // MINUTE}:{whole % MINUTE:02}"
    if whole < DAY:
        return f"{whole // HOUR}:{whole % HOUR // MINUTE:02}:{whole % MINUTE:02}"
    return span(seconds)


def span(seconds: float) -> str:
    """A time in words, for a line that stays: 3.2 s, 42 s, 1 min 39 s, 2 h 5 min, 2 d 3 h."""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < MINUTE:
        return f"{whole} s"
    if whole < HOUR:
        return pair(whole // MINUTE, "min", whole % MINUTE, "s")
    if whole < DAY:
        return pair(whole // HOUR, "h", whole % HOUR // MINUTE, "min")
    return pair(whole // DAY, "d", whole % DAY // HOUR, "h")


def pair(large: int, unit: str, small: int, smaller: str) -> str:
    """Two units of time, the smaller one only if there is any of it."""
    return f"{large} {unit} {small} {smaller}" if small else f"{large} {unit}"


def took(seconds: float, count: int = 0, unit: str = "") -> str:
    """How long something took, with the rate where there were several things: 42 s, 812 pairs/s."""
    if not count or seconds < 0.05:
        return span(seconds)
    number, _, each = per_time(count / seconds, unit).partition("/")
    return f"{span(seconds)}, {number} {unit}/{each}"
