"""The socket that a server listens on. Knows addresses; knows nothing of HTTP."""

from __future__ import annotations

import errno
import socket
import sys

from polyrank.errors import UsageError

BACKLOG = 2048
"""How many connections may wait to be accepted."""


def bind(host: str, port: int) -> socket.socket:
    """A socket that listens on an address. Raises UsageError where it cannot."""
    try:
        found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise UsageError(
            f"The address {host!r} is not known.",
            "Give --host an address of this machine, such as 127.0.0.1, or 0.0.0.0 for all.",
        ) from None
    family, kind, protocol, _, address = min(found, key=lambda each: each[0] != socket.AF_INET)
    made = socket.socket(family, kind, protocol)
    try:
        if sys.platform != "win32":
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(address)
        made.listen(BACKLOG)
    except OSError as error:
        made.close()
        raise refused(error, host, port) from None
    made.setblocking(False)
    return made


def refused(error: OSError, host: str, port: int) -> UsageError:
    """What to say where an address cannot be listened on."""
    if error.errno == errno.EADDRINUSE:
        return UsageError(
            f"Port {port} of {host} is in use.",
            "Stop what listens there, or give another --port; --port 0 takes a free one.",
        )
    if error.errno in (errno.EACCES, errno.EPERM):
        return UsageError(
            f"Port {port} of {host} may not be listened on without special rights.",
            "Give a --port from 1024 on, and let a proxy forward to it.",
        )
    if error.errno == errno.EADDRNOTAVAIL:
        return UsageError(
            f"{host} is not an address of this machine.",
            "Give --host one of its own, such as 127.0.0.1, or 0.0.0.0 for all.",
        )
    return UsageError(
        f"The server cannot listen on port {port} of {host}: {error.strerror}.",
        "Give another --host or --port.",
    )


def url_of(listening: socket.socket) -> str:
    """The address of a listening socket, as one types it into a browser."""
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
