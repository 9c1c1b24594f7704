"""Every error that polyrank raises on purpose.

    PolyrankError                exit code 1: a failure
    ├── InputError               exit code 2: the input cannot be used
    │   ├── UsageError           an option, a setting or an argument
    │   │   └── LockedError      another process is changing the same folder
    │   ├── DataError            a text file: names file and line
    │   ├── ModelError           a folder that is not a model, or weights that do not fit
    │   └── IndexFolderError     a folder that is not an index, or one made by another model
    ├── MissingExtraError        an optional dependency is not installed
    ├── StorageError             a write failed: the disk is full or read-only
    └── TrainingError            training cannot continue

Each has two sentences: what failed, with what was expected and got, and what to do next.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import Self

INTERRUPTED = 130
"""The exit code after Ctrl-C."""
OUT_OF_MEMORY = ("out of memory", "allocate memory", "bad_alloc")
"""What torch, the system and ONNX Runtime say of it."""
MOST_SAID = 1000
"""Characters of a problem or a remedy."""
LONGEST_WORD = 100
"""No known word is near to a longer one."""


class PolyrankError(Exception):
    """Base class of all errors: `problem` says what failed, `remedy` what to do next."""

    exit_code = 1
    said_elsewhere = False
    """Whether another process of the same run reports it, or it has been reported."""

    def __init__(self, problem: str, remedy: str) -> None:
        problem, remedy = shortened(problem), shortened(remedy)
        self.problem = problem
        self.remedy = remedy
        super().__init__(f"{problem} {remedy}")

    def left_to_another_process(self) -> Self:
        """This error, marked as reported by another process of the same run."""
        self.said_elsewhere = True
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        """Lets errors pass from one process to another."""
        return restored, (type(self), str(self), dict(self.__dict__))


def shortened(text: str) -> str:
    """A text without its middle, if it is very long: it may quote what a file holds."""
    if len(text) <= MOST_SAID:
        return text
    return f"{text[: MOST_SAID // 2]}… ({len(text):,} characters) …{text[-MOST_SAID // 4 :]}"


def restored(kind: type[PolyrankError], message: str, state: dict[str, Any]) -> PolyrankError:
    """An error from another process."""
    error = kind.__new__(kind, message)
    error.__dict__.update(state)
    return error


class InputError(PolyrankError):
    """The input cannot be used."""

    exit_code = 2


class UsageError(InputError):
    """An option, a setting or an argument is wrong."""


class LockedError(UsageError):
    """Another process is changing the same folder; it works once that one is done."""


class DataError(InputError):
    """A data file cannot be read; the message begins with file and line."""

    def __init__(
        self, problem: str, remedy: str, *, path: str | Path | None = None, line: int | None = None
    ) -> None:
        """Say what is wrong, and where.

        Args:
            problem: What failed, with what was expected and got.
            remedy: What to do next.
            path: The file.
            line: The line of the file, from 1.
        """
        self.path = None if path is None else str(path)
        self.line = line
        place = "" if path is None else f"{path}: " if line is None else f"{path}, line {line}: "
        super().__init__(place + problem, remedy)


class ModelError(InputError):
    """A folder is not a model, or its weights do not fit its description."""


class IndexFolderError(InputError):
    """A folder is not an index, is damaged, or belongs to another model."""


class MissingExtraError(PolyrankError):
    """An optional dependency is missing; the message holds the exact pip command."""

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        super().__init__(
            f"{purpose} needs the package {package}, which is not installed.",
            f'Install it with: pip install "polyrank[{extra}]"',
        )


class StorageError(PolyrankError):
    """A write failed because the disk is full, read-only or broken."""


class TrainingError(PolyrankError):
    """Training cannot continue."""


class OutOfMemoryError(PolyrankError):
    """There is not enough memory."""

    def __init__(self, error: BaseException) -> None:
        """Say what a library said (see `is_out_of_memory`)."""
        words = " ".join(str(error).split())
        super().__init__(
            f"There is not enough memory{f': {words}' if words else ''}.",
            "Use a smaller --batch-size where the command has one, or a machine with more.",
        )


MOST_LISTED = 20
"""A message lists no more known words than this, if something else does."""


def nearest(name: str, known: Iterable[str], *, listed_by: str | None = None) -> str:
    """A sentence with the known word nearest to `name`, or with all of them.

    `listed_by` is a command that lists them, which is named instead of very many words.
    """
    known = sorted(known)
    folded = {word.casefold(): word for word in known}
    word = name.casefold()
    close = difflib.get_close_matches(word, folded, n=1) if len(word) <= LONGEST_WORD else []
    if close:
        return f"Did you mean {folded[close[0]]!r}?"
    if listed_by is not None and len(known) > MOST_LISTED:
        return f"To see all {len(known)}, run: {listed_by}."
    return f"Known are: {', '.join(known)}."


def is_out_of_memory(error: BaseException) -> bool:
    """Whether there was not enough memory; libraries say so with errors of many kinds."""
    if isinstance(error, PolyrankError):  # others may quote a text that says so
        return isinstance(error, OutOfMemoryError)
    words = str(error).casefold()
    return isinstance(error, MemoryError) or any(sign in words for sign in OUT_OF_MEMORY)


def not_numbers(what: str) -> ModelError:
    """The error for vectors or scores that are not numbers."""
    return ModelError(
        f"{what} are not numbers.",
        "The model's weights are damaged or its training diverged; use another checkpoint.",
    )
