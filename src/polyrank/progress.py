"""How a long call tells people how far it is, and silence from the libraries below.

Words go to a function that the caller gives, `say`. `bar` shows how far the work is on standard
error, once it has taken two seconds: a live line on a terminal, plain lines now and then anywhere
else. A process that works for another reports to it instead (`reporting`), and that one shows it.
"""

from __future__ import annotations

import contextlib
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import NamedTuple

from polyrank.display.meter import Meter, peak_memory
from polyrank.display.screen import SCREEN

Say = Callable[[str], None]
"""Says a line to people."""

Memory = Callable[[], "int | None"]
"""Gives the peak memory so far, in bytes; None where that is unknown."""


class Report(NamedTuple):
    """What a process that works for another tells of its progress."""

    description: str
    advance: int
    """How much more is done."""
    is_new: bool
    """Whether it was done now and not by an earlier run."""
    peak_memory: int | None


Listener = Callable[[Report], None]
LISTENER: ContextVar[Listener | None] = ContextVar("LISTENER", default=None)
OUTER: ContextVar[Task | None] = ContextVar("OUTER", default=None)
"""The task that counts what is done inside of it."""
QUIET = {
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_VERBOSITY": "error",
    "TOKENIZERS_PARALLELISM": "true",
    "TRANSFORMERS_NO_ADVISORY_WARNINGS": "1",
    "TRANSFORMERS_VERBOSITY": "error",
}


def silent(words: str) -> None:
    """Say nothing."""


def print_line(words: str) -> None:
    """Say a line on standard error."""
    print(words, file=sys.stderr, flush=True)


@contextlib.contextmanager
def reporting(listener: Listener) -> Iterator[None]:
    """Show nothing, but tell `listener` of all work that would be shown."""
    token = LISTENER.set(listener)
    try:
        yield
    finally:
        LISTENER.reset(token)


def hidden() -> contextlib.AbstractContextManager[None]:
    """Show nothing: another process speaks."""
    return reporting(lambda report: None)


def showing(wanted: bool) -> contextlib.AbstractContextManager[None]:
    """Show the work inside only if that is wanted."""
    return contextlib.nullcontext() if wanted else hidden()


def watched() -> bool:
    """Whether work is being shown, so that what is nested in it should be shown too."""
    return bool(SCREEN.shown) and LISTENER.get() is None


def paused() -> contextlib.AbstractContextManager[None]:
    """Draw nothing for a while, so that measured times are not disturbed."""
    return SCREEN.paused()


class Task:
    """Some long work. Call it with how much more is done."""

    def __init__(
        self,
        description: str | None,
        unit: str,
        *,
        tell: Callable[[int, bool], None] | None = None,
        outer: Task | None = None,
        memory: Memory | None = None,
        done: int = 0,
    ) -> None:
        """`tell` hears how much more is done, and whether it is new."""
        self.description = description
        self.unit = unit
        self.tell = tell
        self.outer = outer
        self.memory = memory or peak_memory
        self.done = done
        self.figures: dict[str, str] = {}
        self.is_live = False
        """Whether it is shown on a terminal, with no log beside it."""

    def __call__(self, count: int = 1) -> None:
        """Count what is newly done."""
        self.count(count, True)

    def skip(self, count: int) -> None:
        """Count what an earlier run has done: it has no part in the rate."""
        self.count(count, False)

    def count(self, count: int, is_new: bool) -> None:
        """Count it here, and wherever it is shown."""
        self.done += count
        if self.outer is not None:
            self.outer.count(count, is_new)
        elif self.tell is not None:
            self.tell(count, is_new)

    def reach(self, done: int) -> None:
        """Count up to `done`, which includes what folded work has counted."""
        if done > self.done:
            self(done - self.done)

    def show(self, **figures: str) -> None:
        """Show these figures beside the numbers, by name: `loss="2.31"`. The first matters most."""
        self.figures = figures

    def measure_memory(self, memory: Memory) -> None:
        """Let `memory` say how much there is."""
        self.memory = memory
        if self.outer is not None:
            self.outer.measure_memory(memory)

    @contextlib.contextmanager
    def folding(self) -> Iterator[None]:
        """Let work inside that is the same, or has no name, count as this task's own."""
        token = OUTER.set(self)
        try:
            yield
        finally:
            OUTER.reset(token)

    def contains(self, description: str | None, unit: str) -> bool:
        """Whether other work counts as this task's own."""
        return bool(unit) and self.unit == unit and description in (None, self.description)


@contextlib.contextmanager
def bar(
    description: str | None,
    *,
    total: int | None = None,
    unit: str = "",
    done: int = 0,
    rate: tuple[str, int] | None = None,
    has_rate: bool = True,
    own_time: bool = False,
    lines: bool = True,
    memory: Memory | None = None,
) -> Iterator[Task]:
    """Show how far some work is; gives the function that advances it.

    Nothing is shown without a description, where there is nothing to do, or within two seconds.

    Args:
        description: What is being done, such as "Encoding candidates".
        total: How much there is to do, if that is known.
        unit: What is counted, in the plural; amounts of "bytes" are shown as MB or GB.
        done: What an earlier run has done; it has no part in the rate.
        rate: Another unit for the rate, and how many of it one unit is.
        has_rate: Whether a rate is shown; one of models, for instance, tells nothing.
        own_time: Whether the rate leaves out the time of nested work, as a training leaves out its
            evaluations.
        lines: Whether to write lines that stay: how long it took and, where there is no terminal,
            how far it is.
        memory: Gives the peak memory; by default, that of the process.
    """
    outer, listener = OUTER.get(), LISTENER.get()
    task = Task(description, unit, memory=memory, done=done)
    if outer is not None and outer.contains(description, unit):
        task.outer = outer
        if memory is not None:
            outer.measure_memory(memory)
        yield task
    elif description is None or total == 0:
        yield task
    elif listener is not None:

        def report(count: int, is_new: bool) -> None:
            listener(Report(description, count, is_new, task.memory()))

        task.tell = report
        yield task
    else:
        meter = Meter(
            description,
            total=total,
            unit=unit,
            done=done,
            rate=rate,
            has_rate=has_rate,
            own_time=own_time,
            memory=lambda: task.memory(),
            figures=lambda: task.figures,
        )
        task.tell = meter.add
        with SCREEN.showing(meter, lines=lines) as task.is_live:
            yield task


def quieten_libraries() -> None:
    """Keep the bars, advice and warnings of the libraries below out of what people read.

    What the user has set in the environment stays. Must come before transformers is imported.
    """
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    if not sys.warnoptions:
        warnings.simplefilter("ignore")
