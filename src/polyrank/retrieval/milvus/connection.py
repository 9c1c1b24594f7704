"""The connection to Milvus: every call has a timeout, and every failure becomes a clear error.

Embedded Milvus is a server in this process, one for each file, shared by all engines that use the
file. Knows servers, timeouts and the errors of pymilvus; knows nothing of what is requested.
"""

from __future__ import annotations

import logging
import math
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from polyrank.config import from_mapping, require
from polyrank.errors import MissingExtraError, PolyrankError, StorageError
from polyrank.retrieval.milvus.address import TIMEOUTS, TOKEN, MilvusAddress, parse_numbers

LOGGERS = ("pymilvus", "pymilvus.milvus_client", "milvus_lite")
REFUSED = {"UNAUTHENTICATED", "PERMISSION_DENIED", 1400, 1401}
UNREACHABLE = {"UNAVAILABLE"}
LATE = {"DEADLINE_EXCEEDED", "FutureTimeoutError"}
"""Codes of gRPC and of Milvus."""

MOST_CAUSES = 4

NO_CONNECTION, RETRIED = "Fail connecting", "Retry timeout"
"""What pymilvus says when it gives no code of its own."""

MANAGER_LOG = "milvus_lite.server_manager"

_lock = threading.Lock()
_users: dict[Path, int] = {}


@dataclass(frozen=True, kw_only=True, slots=True)
class Timeouts:
    """Timeouts in seconds: to connect, for a request, for work on a whole collection."""

    connect: float = 10.0
    request: float = 60.0
    collection: float = 3600.0

    def __post_init__(self) -> None:
        for name in ("connect", "request", "collection"):
            value = getattr(self, name)
            require(0 < value < math.inf, name, "a number of seconds above 0", value)

    @classmethod
    def from_environment(cls) -> Timeouts:
        """The timeouts of POLYRANK_MILVUS_TIMEOUTS, such as `request=300`, or the defaults.

        Raises UsageError for an unknown name or a bad value.
        """
        given = parse_numbers(os.environ.get(TIMEOUTS, ""), where=TIMEOUTS)
        return from_mapping(cls, given, where=TIMEOUTS)


class Connection:
    """An open connection to the server or the file of an address, whatever its collection.

    Raises MissingExtraError without pymilvus, StorageError if none opens.
    """

    def __init__(self, address: MilvusAddress, timeouts: Timeouts | None = None) -> None:
        self.address = address
        self.timeouts = timeouts = timeouts or Timeouts.from_environment()
        client = client_class()
        path = address.path
        place = str(address.uri) if path is None else start_server(path)
        try:
            with self.errors(f"Connecting to {address}", timeouts.connect):
                self._client: Any = client(
                    uri=place,
                    token="" if path is not None else os.environ.get(TOKEN, ""),
                    db_name=address.database,
                    timeout=timeouts.connect,
                    dedicated=True,  # or closing would leave the channel open
                )
        except BaseException:
            if path is not None:
                stop_server(path)
            raise

    def ask(
        self, work: str, method: str, *arguments: Any, timeout: float | None = None, **options: Any
    ) -> Any:
        """The result of a method of pymilvus's client; errors name `work`, what was done where."""
        seconds = self.timeouts.request if timeout is None else timeout
        if self._client is None:
            raise StorageError(
                f"{work} failed: the connection was closed.", "Open the index again."
            )
        with self.errors(work, seconds):
            return getattr(self._client, method)(*arguments, timeout=seconds, **options)

    def close(self) -> None:
        """Close the connection, and stop embedded Milvus if nobody else uses it."""
        if self._client is None:
            return
        try:
            self._client.close()
        finally:
            self._client = None
            if self.address.path is not None:
                stop_server(self.address.path)

    @contextmanager
    def errors(self, work: str, seconds: float) -> Iterator[None]:
        """Turn the errors of pymilvus and gRPC into StorageError."""
        import grpc
        from pymilvus.exceptions import MilvusException

        try:
            yield
        except PolyrankError:
            raise
        except (MilvusException, grpc.RpcError, grpc.FutureTimeoutError) as error:
            raise explained(error, f"{work} failed", seconds) from error


def client_class() -> Any:
    """The client of pymilvus. Raises MissingExtraError.

    Importing pymilvus adds a handler to its loggers that writes a traceback to stderr for every
    error, even though pymilvus raises the error as well; the handler is removed.
    """
    try:
        from pymilvus import MilvusClient
    except ImportError:
        raise MissingExtraError("pymilvus", "milvus", "An index in Milvus") from None
    for name in LOGGERS:
        logger = logging.getLogger(name)
        logger.handlers = [logging.NullHandler()]
        logger.propagate = False
    return MilvusClient


def explained(error: Exception, problem: str, seconds: float) -> StorageError:
    """The error for a failed request, with what to do about it."""
    text, known = " ".join(described(error).split()), codes(error)
    if known & REFUSED:
        return StorageError(
            f"{problem}: the server refused the credentials.",
            f"Set the environment variable {TOKEN} to user:password or to an API key with the "
            "right to do this.",
        )
    if known & UNREACHABLE or text.startswith(NO_CONNECTION):
        return StorageError(
            f"{problem}: no Milvus server answered within {seconds:g} seconds.",
            "Check that the server runs and that host and port are right, then run this again.",
        )
    if known & LATE or RETRIED in text:
        return StorageError(
            f"{problem}: there was no answer within {seconds:g} seconds.",
            "Check the load of the server and run this again. If it is only slow, set the "
            f"environment variable {TIMEOUTS} to more seconds, such as request=300.",
        )
    return StorageError(f"{problem}: {text}.", "See the log of the Milvus server.")


def codes(error: BaseException | None) -> set[object]:
    """The codes of an error and of its causes: names from gRPC, numbers from Milvus."""
    found: set[object] = set()
    cause = error
    for _ in range(MOST_CAUSES):  # pymilvus raises errors that are their own cause
        if cause is None:
            break
        code = getattr(cause, "code", None)
        code = code() if callable(code) else code
        found |= {getattr(code, "name", code), type(cause).__name__}
        cause = cause.__cause__
    return found


def described(error: Exception) -> str:
    """The message of an error."""
    details = getattr(error, "details", None)
    message = getattr(error, "message", "") or (details() if callable(details) else "")
    return str(message or error).strip().rstrip(".")


def start_server(path: Path) -> str:
    """The address of a file's server, which is started if needed; pair with `stop_server`.

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
    """Stop the server of a file if nothing in this process uses it."""
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
    """Keeps the last exception that the manager logs, since it returns None instead of raising."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.error: BaseException | None = None

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the exception of a record."""
        if record.exc_info:
            self.error = record.exc_info[1]


def unopened(path: Path, error: BaseException | None) -> StorageError:
    """The error for a file whose server does not start."""
    if type(error).__name__ == "DataDirLockedError":
        return StorageError(
            f"{path} is open in another process, and embedded Milvus lets only one use a file.",
            "Close the other one, or run a Milvus server and name it as milvus://host:port.",
        )
    return StorageError(
        f"Embedded Milvus cannot open {path}: {error}.",
        "Check permissions and free space; if the file is damaged, build the index again.",
    )
