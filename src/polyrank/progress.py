"""Progress bars on standard error. Silent where standard error is no terminal.

A process that works for another reports to it instead (`reporting`), and that one draws the bar.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from functools import partial

Listener = Callable[[str, int], None]
LISTENER: ContextVar[Listener | None] = ContextVar("LISTENER", default=None)


@contextlib.contextmanager
def reporting(listener: Listener) -> Iterator[None]:
    """Draw no bars, but tell `listener` the description and the advance of each."""
    token = LISTENER.set(listener)
    try:
        yield
    finally:
        LISTENER.reset(token)


@contextlib.contextmanager
def bar(description: str | None, *, total: int | None = None) -> Iterator[Callable[[int], None]]:
    """A progress bar; gives the function that advances it. Without a description, none is shown."""
    listener = LISTENER.get()
    if description is not None and listener is not None:
        yield partial(listener, description)
        return
    if description is None or not sys.stderr.isatty():
        yield lambda count: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        SpinnerColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(description, total=total)
        yield lambda count: progress.advance(task, count)
