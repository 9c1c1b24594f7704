"""The process `polyrank`, also as `python -m polyrank`: its streams, and Ctrl-C at any moment."""

from __future__ import annotations

import atexit
import gc
import io
import signal
import sys
import time

from polyrank.errors import INTERRUPTED

SOON = 2.0
"""Seconds after a Ctrl-C in which another is not heard."""
OBJECTS_BETWEEN_COLLECTIONS = 50_000
"""Python's own number, 700 until 3.12, looks for garbage hundreds of times while modules are
imported, which make none: with it, the first search takes half as long again (docs/results.md)."""


class CtrlC(KeyboardInterrupt):
    """What Ctrl-C raises, so that our exit code is kept.

    After a plain KeyboardInterrupt in code that was made of a string, as that of dataclasses is,
    `python -m` ends the process with the signal, although it was caught.
    """


def main() -> None:
    """Run the command that was typed and end the process with its exit code."""
    hear_interrupts()
    gc.set_threshold(OBJECTS_BETWEEN_COLLECTIONS)
    atexit.register(gc.freeze)  # nothing is collected on the way out: the process ends
    if sys.stderr is None:  # it was closed, and print would take standard output instead
        sys.stderr = io.StringIO()
    if sys.stdout is None:
        sys.stdout = io.StringIO()
    try:
        from polyrank.cli.main import commands, run
        from polyrank.cli.output import escape_what_cannot_be_encoded
        from polyrank.progress import quieten_libraries

        quieten_libraries()
        escape_what_cannot_be_encoded()
        code = run(sys.argv[1:], commands())
    except KeyboardInterrupt:  # before there was a command to tell of it
        print("\nInterrupted.", file=sys.stderr)
        code = INTERRUPTED
    if code != INTERRUPTED and signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # all is done: it ends without a traceback
    sys.exit(code)


def hear_interrupts() -> None:
    """Ctrl-C interrupts once, so that what was made is tidied up and people are told.

    A second one soon after it is not heard. A later one ends the process at once. Nothing changes
    for a process that ignores Ctrl-C.
    """
    first = 0.0

    def heard(*_: object) -> None:
        nonlocal first
        now = time.monotonic()
        if not first:
            first = now
            raise CtrlC
        if now > first + SOON:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            signal.raise_signal(signal.SIGINT)

    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, heard)


if __name__ == "__main__":
    main()
