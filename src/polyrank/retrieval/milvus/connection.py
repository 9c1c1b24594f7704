"""The connection to Milvus: opened and asked within a bounded time, every failure a clear error.

Knows servers, timeouts and pymilvus's errors; knows nothing of what is asked.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from polyrank.config import require
from polyrank.errors import MissingExtraError, PolyrankError, StorageError
from polyrank.retrieval.milvus.address import TOKEN, MilvusAddress
from polyrank.retrieval.milvus.embedded import start_server, stop_server

LOGGERS = ("pymilvus", "pymilvus.milvus_client", "milvus_lite")
REFUSED = {"UNAUTHENTICATED", "PERMISSION_DENIED", 1400, 1401}
UNREACHABLE = {"UNAVAILABLE"}
LATE = {"DEADLINE_EXCEEDED", "FutureTimeoutError"}
"""Codes of gRPC and of Milvus."""

MOST_CAUSES = 4

NO_CONNECTION, RETRIED = "Fail connecting", "Retry timeout"
"""What pymilvus says where it gives no code of its own."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Timeouts:
    """Seconds to wait: for a connection, for a request, for work on a whole collection."""

    connect: float = 10.0
    request: float = 60.0
    collection: float = 3600.0

    def __post_init__(self) -> None:
        for name in ("connect", "request", "collection"):
            value = getattr(self, name)
            require(value > 0, name, "a number of seconds above 0", value)


class Connection:
    """An open connection. Raises MissingExtraError without pymilvus, StorageError if none opens."""

    def __init__(self, address: MilvusAddress, timeouts: Timeouts) -> None:
        self.address = address
        self.timeouts = timeouts
        client = client_class()
        path = address.path
        place = str(address.uri) if path is None else start_server(path)
        try:
            with self.errors("Connecting", timeouts.connect):
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
        """What a method of pymilvus's client answers. `work` names it in errors: "Searching"."""
        seconds = self.timeouts.request if timeout is None else timeout
        if self._client is None:
            raise StorageError(
                f"{work} in {self.address} failed: it was closed.", "Open the index again."
            )
        with self.errors(work, seconds):
            return getattr(self._client, method)(*arguments, timeout=seconds, **options)

    def close(self) -> None:
        """Close the connection, and stop embedded Milvus when nobody uses it."""
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
            raise explained(error, f"{work} in {self.address} failed", seconds) from error


def client_class() -> Any:
    """The client of pymilvus. Raises MissingExtraError.

    Importing pymilvus hangs a handler on its loggers that writes a traceback to stderr for every
    error that it raises, too; it is taken off.
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
    """The error of a request, by what can be done about it."""
    text, known = " ".join(described(error).split()), codes(error)
    if known & REFUSED:
        return StorageError(
            f"{problem}: the server refused the credentials.",
            f"Set the environment variable {TOKEN} to user:password or to an API key with the "
            "right to do this.",
        )
    if known & UNREACHABLE or text.startswith(NO_CONNECTION):
        return StorageError(
            f"{problem}: nothing answered as Milvus within {seconds:g} seconds.",
            "Check that the server runs and that host and port are right, then run this again.",
        )
    if known & LATE or RETRIED in text:
        return StorageError(
            f"{problem}: there was no answer within {seconds:g} seconds.",
            "Look at the load of the server and run this again, with longer timeouts or smaller "
            "requests if it is only slow.",
        )
    return StorageError(f"{problem}: {text}.", "See the log of the Milvus server.")


def codes(error: BaseException | None) -> set[object]:
    """The codes of an error and of those that caused it: names of gRPC, numbers of Milvus."""
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
    """What an error says."""
    details = getattr(error, "details", None)
    message = getattr(error, "message", "") or (details() if callable(details) else "")
    return str(message or error).strip().rstrip(".")
