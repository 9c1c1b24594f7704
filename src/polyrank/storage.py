"""Writes folders and files so that a crash or a full disk never damages what was there."""

from __future__ import annotations

import contextlib
import glob
import io
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from polyrank.errors import LockedError, StorageError, UsageError
from polyrank.folder_files import is_utf8

AT_FDCWD = -100
RENAME_EXCHANGE = 2
JUST_MADE = 1.0
"""Seconds."""


@contextlib.contextmanager
def storage_errors(path: Path) -> Iterator[None]:
    """Turn an OSError of a write below `path` into a StorageError."""
    try:
        yield
    except OSError as error:
        raise StorageError(
            f"Writing {path} failed: {error.strerror or error}.",
            "Nothing that was there before has changed; free some space or choose another place.",
        ) from error


@contextlib.contextmanager
def replaced_folder(path: Path) -> Iterator[Path]:
    """Give an empty folder beside `path`; on success rename it to `path`, on failure remove it.

    An existing `path` stays until the new folder is complete, and stays if anything fails. What a
    killed process left behind is removed. Raises StorageError if the disk refuses, and UsageError
    for a device or a pipe in its place.
    """
    path = path.absolute()
    require_ordinary(path)
    with storage_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        for earlier in path.parent.glob(f".{glob.escape(path.name)}.new-*"):
            if is_abandoned(earlier):
                shutil.rmtree(earlier, ignore_errors=True)
        fresh = Path(tempfile.mkdtemp(prefix=f".{path.name}.new-", dir=path.parent))
    try:
        with storage_errors(path), in_use(fresh):
            fresh.chmod(0o777 & ~current_umask())
            yield fresh
            for file in fresh.rglob("*"):
                if file.is_file():
                    synchronise(file)
            swap_folders(fresh, path)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


@contextlib.contextmanager
def in_use(folder: Path) -> Iterator[None]:
    """Mark a folder, so that it is not abandoned as long as this process lives."""
    try:
        import fcntl
    except ImportError:  # Windows
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


def is_abandoned(folder: Path) -> bool:
    """Whether the process that marked a folder as `in_use` has died."""
    try:
        import fcntl

        if time.time() - folder.stat().st_mtime < JUST_MADE:  # it may not be marked yet
            return False
        descriptor = os.open(folder, os.O_RDONLY)
    except (ImportError, OSError):
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    else:
        return True
    finally:
        os.close(descriptor)


def require_replaceable(
    path: Path, marker: str, kind: str, *, valid: Callable[[Path], bool] = Path.exists
) -> None:
    """Raise UsageError unless `path` is free, an empty folder, or a folder that holds `marker`.

    `valid` says whether the marker is the right one. Call this before work whose result goes to
    `path`: nothing else is ever replaced.
    """
    if not path.exists() or valid(path / marker):
        return
    if path.is_dir() and not any(path.iterdir()):
        return
    raise UsageError(
        f"{path} already exists and is not {kind}, so it is not replaced.",
        "Choose another output, or move it away.",
    )


def swap_folders(fresh: Path, path: Path) -> None:
    """Replace `path` by `fresh`, and remove the old folder last.

    If the system can exchange two names at once, there is always a folder at `path`.
    """
    if not path.exists():
        os.rename(fresh, path)
    elif exchange(fresh, path):
        synchronise_folder(path.parent)
        shutil.rmtree(fresh, ignore_errors=True)
    else:
        rename_twice(fresh, path)
    synchronise_folder(path.parent)


def exchange(first: Path, second: Path) -> bool:
    """Exchange two names at once. If the system cannot, do nothing and return false.

    Uses Linux's renameat2, which Python does not offer.
    """
    import ctypes

    try:
        renameat2 = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError, TypeError):
        return False
    here = ctypes.c_int(AT_FDCWD)
    names = [ctypes.c_char_p(os.fsencode(path)) for path in (first, second)]
    return bool(renameat2(here, names[0], here, names[1], ctypes.c_uint(RENAME_EXCHANGE)) == 0)


def rename_twice(fresh: Path, path: Path) -> None:
    """Move the folder at `path` aside and `fresh` to its place; undo it if that fails."""
    old = Path(tempfile.mkdtemp(prefix=f".{path.name}.old-", dir=path.parent))
    os.rename(path, old / path.name)
    try:
        os.rename(fresh, path)
    except OSError:
        os.rename(old / path.name, path)
        raise
    finally:
        shutil.rmtree(old, ignore_errors=True)


def discard(folder: Path, place: Path) -> None:
    """Remove a folder beside `place`, even if others take its name at the same moment."""
    with contextlib.suppress(OSError):
        old = Path(tempfile.mkdtemp(prefix=f".{place.name}.old-", dir=place.parent))
        with contextlib.suppress(OSError):
            os.rename(folder, old / folder.name)
        shutil.rmtree(old, ignore_errors=True)


@contextlib.contextmanager
def exclusive(lock: Path, problem: str, remedy: str) -> Iterator[None]:
    """Hold a lock file, creating it if needed. Raises LockedError if another process holds it.

    The system releases it when the process ends, however it ends.
    """
    try:
        import fcntl
    except ImportError:  # Windows: nobody guards the folder
        yield
        return
    while True:
        with storage_errors(lock):
            lock.parent.mkdir(parents=True, exist_ok=True)
            # never a link that leads elsewhere, nor a pipe, which would be waited for
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
            descriptor = os.open(lock, flags, 0o666)
        with open(descriptor, "ab") as handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise LockedError(problem, remedy) from None
            if names_file(lock, descriptor):
                yield
                return


def names_file(path: Path, descriptor: int) -> bool:
    """Whether `path` is still the name of an open file, not of one that replaced it."""
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def write_all(handle: io.FileIO, data: bytes | memoryview) -> None:
    """Write all of `data` to an unbuffered file, which may accept it in parts."""
    view = memoryview(data)
    while len(view):
        view = view[handle.write(view) :]


def synchronise(file: Path) -> None:
    """Flush the file to the disk itself."""
    with open(file, "rb") as handle:
        os.fsync(handle.fileno())


def synchronise_folder(folder: Path) -> None:
    """Flush the names in a folder to the disk itself."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def synchronise_tree(folder: Path) -> None:
    """Flush everything in a folder to the disk itself."""
    for path in [folder, *folder.rglob("*")]:
        (synchronise_folder if path.is_dir() else synchronise)(path)


def write_text(path: Path, text: str) -> None:
    """Write a small file beside `path` and rename it into place.

    Raises StorageError, and UsageError for a device or a pipe in its place.
    """
    require_ordinary(path)
    with storage_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, text, path.with_name(f".{path.name}.new-{os.getpid()}"))


def replace_file(path: Path, text: str, fresh: Path) -> None:
    """Write a text to the new file `fresh`, whatever lies there, and rename that to `path`.

    It is UTF-8; the bytes of a path in it that are not become escapes, as JSON has them.
    """
    try:
        fresh.unlink(missing_ok=True)  # it may be a link that leads elsewhere
        with open(fresh, "x", encoding="utf-8", errors="backslashreplace", newline="\n") as handle:
            handle.write(text)
        synchronise(fresh)
        os.replace(fresh, path)
    finally:
        fresh.unlink(missing_ok=True)
    synchronise_folder(path.parent)


def require_ordinary(path: Path) -> None:
    """Raise UsageError for a device, a pipe or a socket, whose place nothing must take.

    And for a path that is not UTF-8, which not all libraries can open.
    """
    if not is_utf8(path):
        raise UsageError(
            f"The path {str(path)!r} is not UTF-8, so models and tables cannot be written there.",
            "Give another path.",
        )
    if path.exists() and not path.is_file() and not path.is_dir():
        raise UsageError(
            f"{path} is a device or a pipe, so nothing is put in its place.",
            "Give another path.",
        )


def current_umask() -> int:
    """The umask of this process; no call only reads it."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
