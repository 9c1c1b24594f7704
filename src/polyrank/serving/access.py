"""Who may call, and by which name. Keys come from flags, the environment and a file.

Keys are never shown.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from polyrank.errors import UsageError
from polyrank.serving.config import ServerConfig
from polyrank.serving.failures import RequestError

ENVIRONMENT = "POLYRANK_API_KEYS"
OPEN = ("/", "/health", "/ready", "/docs", "/openapi.json", "/favicon.ico")
"""What needs no key: how the server is, the page without its data, and what calls there are."""
OPEN_FOLDERS = ("/docs/", "/page/")


class Keys:
    """The keys that let requests in; without any, every request is let in."""

    def __init__(self, config: ServerConfig) -> None:
        """Read the keys of a configuration.

        Raises:
            UsageError: A key is blank or cannot be sent, or the file cannot be read or is empty.
        """
        self.config = config
        self.digests = self.read()

    def __bool__(self) -> bool:
        """Whether requests need a key."""
        return bool(self.digests)

    def read(self) -> tuple[bytes, ...]:
        """The digests of all keys as they are now. Raises UsageError."""
        found = [(key, "--api-key") for key in self.config.api_key]
        listed = os.environ.get(ENVIRONMENT, "")
        found += [(key.strip(), ENVIRONMENT) for key in listed.split(",") if listed.strip()]
        path = self.config.api_key_file
        if path is not None:
            found += [(key, str(path)) for key in keys_in(path)]
        for key, source in found:
            require_sendable(key, source)
        return tuple(dict.fromkeys(digest(key.encode("ascii")) for key, _ in found))

    def reload(self) -> None:
        """Read the keys again. Raises UsageError, and then the old keys stay."""
        self.digests = self.read()

    def admit(self, scope: Mapping[str, Any]) -> None:
        """Let a request in. Raises RequestError (401) where it has no key of ours and needs one.

        Every key is compared, each in constant time, so the time tells nothing.
        """
        path, is_read = scope["path"], scope["method"] in ("GET", "HEAD")
        if not self.digests or (is_read and (path in OPEN or path.startswith(OPEN_FOLDERS))):
            return
        given = next((value for name, value in scope["headers"] if name == b"authorization"), None)
        if given is None:
            raise RequestError(
                401,
                "This server needs a key, and the request has none.",
                "Send it as the header `Authorization: Bearer KEY`.",
                code="missing_api_key",
            )
        if not known(token_of(given), self.digests):
            raise RequestError(
                401,
                "The key of this request is not one of this server's.",
                "Check the key of the client, which it sends as `Authorization: Bearer KEY`.",
                code="invalid_api_key",
            )


class Hosts:
    """The names by which a server may be called.

    Without a key, whoever reaches the server may read and change everything. A page that runs in a
    browser on this machine reaches it if the page's own name suddenly stands for 127.0.0.1 (DNS
    rebinding). The request then has that name in its header Host.
    """

    def __init__(self, config: ServerConfig, keys: Keys) -> None:
        self.keys = keys
        self.known = {name.casefold() for name in config.allow_host}
        self.is_local = is_local(config.host)

    def admit(self, scope: Mapping[str, Any]) -> None:
        """Let a request in. Raises RequestError (400) for a name that is not known."""
        if not self.known and (self.keys or not self.is_local):
            return
        given = next((value for name, value in scope["headers"] if name == b"host"), b"")
        name = without_port(given.decode("latin-1")).casefold()
        if "*" in self.known or name in self.known or is_own_name(name):
            return
        raise RequestError(
            400,
            f"This server does not answer to the name {name!r}.",
            f"Start it with a key, or with --allow-host {name}, if that is its name.",
            code="unknown_host",
        )


def is_local(host: str) -> bool:
    """Whether only this machine reaches an address or a name that a server listens on."""
    address = address_in(host)
    if address is None:
        return bool(host) and is_own_name(host)
    return address.is_loopback


def is_own_name(name: str) -> bool:
    """Whether no page of another machine can have this name: an address, or no public domain."""
    return "." not in name or name.endswith(".localhost") or address_in(name) is not None


def address_in(name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """The address that a name is, if it is one."""
    try:
        return ipaddress.ip_address(name)
    except ValueError:
        return None


def without_port(host: str) -> str:
    """The name or address in the header Host."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0].rstrip(".")


def token_of(authorization: bytes) -> bytes:
    """The key in a header: after `Bearer`, or all of it, as some clients send it."""
    scheme, _, token = authorization.strip().partition(b" ")
    return token.strip() if scheme.lower() == b"bearer" else authorization.strip()


def known(token: bytes, digests: Sequence[bytes]) -> bool:
    """Whether a token is one of those with these digests."""
    given, found = digest(token), False
    for each in digests:
        found |= hmac.compare_digest(given, each)
    return found


def digest(key: bytes) -> bytes:
    """What is kept of a key: all digests have one length."""
    return hashlib.sha256(key).digest()


def keys_in(path: Path) -> list[str]:
    """The keys of a file. Raises UsageError where it cannot be read or has none."""
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is not UTF-8"
        raise UsageError(
            f"The file of keys {path} cannot be read: {why}.",
            "Give --api-key-file a text file with one key per line.",
        ) from None
    keys = [line.partition("#")[0].strip() for line in lines]
    keys = [key for key in keys if key]
    if not keys:
        raise UsageError(
            f"The file of keys {path} holds no key.",
            "Write one per line, or leave --api-key-file out to let every request in.",
        )
    return keys


def require_sendable(key: str, source: str) -> None:
    """Raise UsageError unless a header can carry a key. The message does not show it."""
    if not key or not all("!" <= letter <= "~" for letter in key):
        what = "is blank" if not key.strip() else "has a space or a character outside ASCII"
        raise UsageError(
            f"A key of {source} {what}, so that no client could send it.",
            "Use letters, digits and signs without spaces; `openssl rand -hex 32` makes one.",
        )
