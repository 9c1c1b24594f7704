"""How a long call tells people how far it is, and silence from the libraries below.

Words go to a function that the caller gives, `say`. Bars are drawn on standard error if that is a
terminal; a process that works for another reports to it instead (`reporting`), and that one draws
the bar.
"""

from __future__ import annotations

import contextlib
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from functools import partial

Say = Callable[[str], None]
"""Says a line to people."""

Listener = Callable[[str, int], None]
LISTENER: ContextVar[Listener | None] = ContextVar("LISTENER", default=None)
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
    """Draw no bars, but tell `listener` the description and the advance of each."""
    token = LISTENER.set(listener)
    try:
        yield
    finally:
        LISTENER.reset(token)


def showing(wanted: bool) -> contextlib.AbstractContextManager[None]:
    """Show bars inside of it only if they are wanted."""
    return contextlib.nullcontext() if wanted else reporting(lambda *_: None)


@contextlib.contextmanager
def bar(description: str | None, *, total: int | None = None) -> Iterator[Callable[[int], None]]:
    """A progress bar; gives the function that advances it.

    None is shown without a description, or where there is nothing to do.
    """
    listener = LISTENER.get()
    if description is not None and listener is not None:
        yield partial(listener, description)
        return
    if description is None or total == 0 or not sys.stderr.isatty():
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


def quieten_libraries() -> None:
    """Keep the bars, advice and warnings of the libraries below out of what people read.

    What the user has set in the environment stays. Must come before transformers is imported.
    """
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    if not sys.warnoptions:
        warnings.simplefilter("ignore")
