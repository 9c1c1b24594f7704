"""The address of an index in Milvus, as text: a server or a file, and a collection.

    milvus://host[:port]/[database/]collection          over plain connections, port 19530
    milvus+https://host[:port]/[database/]collection    over TLS, port 443
    folder/name.db[/collection]                         embedded Milvus, in this process

The default collection is `polyrank`. An address holds neither a token nor timeouts: they come from
the environment variables POLYRANK_MILVUS_TOKEN and POLYRANK_MILVUS_TIMEOUTS. Knows nothing of
connections.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import SplitResult, urlsplit

from polyrank.errors import UsageError

TOKEN = "POLYRANK_MILVUS_TOKEN"
"""The environment variable that holds the token, or `user:password`."""

TIMEOUTS = "POLYRANK_MILVUS_TIMEOUTS"
"""The environment variable that holds timeouts in seconds, such as `connect=5,request=300`."""

COLLECTION = "polyrank"
SCHEMES = {"milvus": ("http", 19530), "milvus+https": ("https", 443)}
SUFFIX = ".db"
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,254}")
HELP = "Write milvus://host:port/collection, or a path that ends in .db for embedded Milvus."


@dataclass(frozen=True, kw_only=True, slots=True)
class MilvusAddress:
    """A collection of a server (`uri`), or of embedded Milvus (`path`). `str` gives it as text."""

    collection: str
    uri: str | None = None
    database: str = ""
    path: Path | None = None

    def __str__(self) -> str:
        if self.path is not None:
            return f"{self.path}/{self.collection}"
        scheme, rest = str(self.uri).split("://")
        own = next(name for name, (plain, _) in SCHEMES.items() if plain == scheme)
        return "/".join(filter(None, (f"{own}://{rest}", self.database, self.collection)))


def is_milvus(backend: str) -> bool:
    """Whether a backend names a place in Milvus, well-formed or not."""
    if "://" in backend:
        return backend.startswith("milvus")
    path = Path(backend)
    return SUFFIX in (path.suffix, path.parent.suffix)


def parse_backend(text: str) -> MilvusAddress:
    """Read an address. Raises UsageError. The path of a file is made absolute."""
    return parse_server(text) if "://" in text else parse_file(text)


def parse_file(text: str) -> MilvusAddress:
    """Read `path.db` or `path.db/collection`."""
    path = Path(text)
    collection = COLLECTION
    if path.suffix != SUFFIX and path.parent.suffix == SUFFIX:
        path, collection = path.parent, path.name
    if path.suffix != SUFFIX or path.name == SUFFIX:
        raise UsageError(f"{text!r} does not name a place in Milvus.", HELP)
    return MilvusAddress(path=path.absolute(), collection=require_name(collection, text))


def parse_server(text: str) -> MilvusAddress:
    """Read `milvus://host[:port]/[database/]collection`."""
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as error:
        raise UsageError(f"{text!r} is not an address: {error}.", HELP) from error
    if parts.scheme not in SCHEMES or not parts.hostname:
        raise UsageError(f"{text!r} does not name a place in Milvus.", HELP)
    require_plain(parts)
    names = [name for name in parts.path.split("/") if name]
    if len(names) > 2:
        raise UsageError(
            f"{text!r} has {len(names)} names after the host.",
            "Write one, the collection, or two, the database and the collection.",
        )
    scheme, usual = SCHEMES[parts.scheme]
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return MilvusAddress(
        uri=f"{scheme}://{host}:{port or usual}",
        database=require_name(names[0], text) if len(names) == 2 else "",
        collection=require_name(names[-1] if names else COLLECTION, text),
    )


def require_plain(parts: SplitResult) -> None:
    """Raise UsageError for a password or options in an address; the password is not repeated."""
    if parts.username is not None or parts.password is not None:
        raise UsageError(
            f"The address of {parts.hostname} holds a user or a password, which would be stored.",
            f"Leave them out and set the environment variable {TOKEN} to user:password.",
        )
    if parts.query or parts.fragment:
        raise UsageError(f"The address {parts.geturl()!r} has options.", HELP)


def require_name(name: str, text: str) -> str:
    """The name, if Milvus accepts it."""
    if not NAME.fullmatch(name):
        raise UsageError(
            f"{name!r} in {text!r} cannot name a collection or a database.",
            "Use letters, digits and underscores, no digit first, at most 255.",
        )
    return name


def parse_numbers(text: str, *, where: str) -> dict[str, int | float]:
    """Read `name=number,name=number`; `where` says whose settings these are. Raises UsageError."""
    numbers: dict[str, int | float] = {}
    for part in filter(None, text.split(",")):
        name, _, value = (piece.strip() for piece in part.partition("="))
        try:
            numbers[name] = int(value) if value.isdigit() else float(value)
        except ValueError:
            raise UsageError(
                f"{where}: {part.strip()!r} is not a name and a number.",
                "Write them like name=1,other=2.",
            ) from None
    return numbers
