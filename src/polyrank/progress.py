"""Progress bars on standard error. Silent where standard error is no terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")


def track(items: Iterable[T], description: str, *, total: int | None = None) -> Iterator[T]:
    """Yield `items` while a bar shows how far it is."""
    with bar(description, total=total) as advance:
        for item in items:
            yield item
            advance(1)


class bar:  # noqa: N801 - used as `with bar(…) as advance`
    """A progress bar as a context manager; gives the function that advances it by n."""

    def __init__(self, description: str, *, total: int | None = None) -> None:
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

        console = Console(stderr=True)
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task = self._progress.add_task(description, total=total)

    def __enter__(self):  # type: ignore[no-untyped-def]
        self._progress.start()
        return lambda count: self._progress.advance(self._task, count)

    def __exit__(self, *exception: object) -> None:
        self._progress.stop()
