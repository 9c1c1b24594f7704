"""Tasks to results in other processes, in the order of the tasks."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Generator, Iterable
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool

from polyrank.errors import PolyrankError
from polyrank.pretraining.corpus.tasks import Make, Result, Task, convert_task

AHEAD = 2
"""Tasks that wait for each process; with them memory has a bound."""
MAKE: list[Make | None] = [None]
"""What a process that converts was told to do; set when it starts."""


def results(
    make: Make | None, tasks: Iterable[Task], num_processes: int
) -> Generator[Result, None, None]:
    """Yield the result of each task. Raises PolyrankError if a process dies."""
    if num_processes == 1 or make is None:
        yield from (convert_task(make, task) for task in tasks)
        return
    waiting: deque[Future[Result]] = deque()
    pool = ProcessPoolExecutor(
        num_processes,
        mp_context=multiprocessing.get_context("spawn"),
        initializer=begin,
        initargs=(make,),
    )
    try:
        for task in tasks:
            waiting.append(pool.submit(convert, task))
            if len(waiting) >= AHEAD * num_processes:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    except BrokenProcessPool as error:
        raise PolyrankError(
            "A converting process ended unexpectedly.",
            "Run the same again, which goes on where it was; with fewer processes if memory is "
            "short.",
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)


def begin(make: Make) -> None:
    """Prepare a process: Ctrl-C is for its parent, and it ends when that has ended."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=end_with_parent, daemon=True).start()
    MAKE[0] = make


def end_with_parent() -> None:
    """End this process when the one that started it has ended."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def convert(task: Task) -> Result:
    """One task, in a process that `begin` prepared."""
    return convert_task(MAKE[0], task)
