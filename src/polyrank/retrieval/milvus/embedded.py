"""Embedded Milvus: one server a file, shared by every engine of this process that uses the file.

Knows files and servers; knows nothing of collections.
"""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from typing import Any

from polyrank.errors import MissingExtraError, StorageError

MANAGER_LOG = "milvus_lite.server_manager"

_lock = threading.Lock()
_users: dict[Path, int] = {}


def start_server(path: Path) -> str:
    """The address of the server of a file, started if there is none yet; pair with `stop_server`.

    Raises MissingExtraError, or StorageError for a file that cannot be opened or that another
    process has open.
    """
    manager = server_manager()
    with _lock:
        if path.is_file():
            raise StorageError(
                f"{path} is a file; embedded Milvus (milvus-lite 3) keeps a folder there.",
                "Choose another name, or build the index again beside it: files of milvus-lite 2 "
                "cannot be read.",
            )
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StorageError(
                f"The folder {path.parent} cannot be made: {error.strerror}.",
                "Choose another place.",
            ) from error
        failures = Failures()
        logger = logging.getLogger(MANAGER_LOG)
        logger.addHandler(failures)
        try:
            address = manager.start_and_get_uri(str(path))
        finally:
            logger.removeHandler(failures)
        if address is None:
            raise unopened(path, failures.error) from failures.error
        _users[path] = _users.get(path, 0) + 1
        return str(address)


def stop_server(path: Path) -> None:
    """Stop the server of a file if nobody in this process uses it any more."""
    with _lock:
        _users[path] -= 1
        if not _users[path]:
            del _users[path]
            server_manager().release_server(str(path))


def server_manager() -> Any:
    """The manager of milvus-lite's servers. Raises MissingExtraError."""
    try:
        from milvus_lite import server_manager_instance
    except ImportError:
        raise MissingExtraError("milvus-lite", "milvus", "Embedded Milvus") from None
    return server_manager_instance


class Failures(logging.Handler):
    """Keeps the last exception that the manager logs: it returns None instead of raising it."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.error: BaseException | None = None

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the exception of a record."""
        if record.exc_info:
            self.error = record.exc_info[1]


def unopened(path: Path, error: BaseException | None) -> StorageError:
    """The error of a file whose server does not start."""
    if type(error).__name__ == "DataDirLockedError":
        return StorageError(
            f"{path} is open in another process, and embedded Milvus lets only one use a file.",
            "Close the other one, or run a Milvus server and name it as milvus://host:port.",
        )
    return StorageError(
        f"Embedded Milvus cannot open {path}: {error}.",
        "Check permissions and free space; if the file is damaged, build the index again.",
    )
