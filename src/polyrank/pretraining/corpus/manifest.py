"""`corpus.json`: what a corpus folder holds, what it was made from, and what was dropped."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from polyrank.config import from_mapping
from polyrank.errors import DataError, UsageError
from polyrank.folder_files import read_json
from polyrank.pretraining.corpus.schema import Kind
from polyrank.pretraining.corpus.source import Dropped
from polyrank.storage import write_text

MANIFEST = "corpus.json"
FORMAT = "polyrank corpus"
VERSION = 1
NUM_EXAMPLES = 5
LONGEST_EXAMPLE = 200


@dataclass(frozen=True, kw_only=True)
class Part:
    """A Parquet file of the folder."""

    file: str
    rows: int
    bytes: int
    sha256: str


@dataclass(frozen=True, kw_only=True)
class DroppedCount:
    """How many pages or records were dropped for one reason, and some of them."""

    count: int
    examples: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """All that is known of a corpus.

    `source` tells the file apart from others: name, bytes and sha256 or, of a large one, modified.
    `damage` says where reading the source failed, if the corpus was made all the same.
    """

    kind: Kind
    language: str
    source: Mapping[str, Any]
    settings: Mapping[str, Any]
    counts: Mapping[str, int]
    dropped: Mapping[str, DroppedCount]
    parts: tuple[Part, ...]
    damage: str | None = None

    @property
    def fingerprint(self) -> str:
        """Sixteen hexadecimal digits that identify the content of a corpus."""
        digest = hashlib.sha256(self.kind.encode())
        for part in self.parts:
            digest.update(part.sha256.encode())
        return digest.hexdigest()[:16]


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write `corpus.json` into a folder."""
    content = {"format": FORMAT, "version": VERSION, **dataclasses.asdict(manifest)}
    write_text(folder / MANIFEST, json.dumps(content, indent=2, ensure_ascii=False) + "\n")


def read_manifest(folder: Path) -> Manifest:
    """Read `corpus.json`. Raises UsageError if there is none, DataError if it cannot be used."""
    path = folder / MANIFEST
    try:
        content = read_json(path)
    except (FileNotFoundError, NotADirectoryError):
        what = "has no corpus.json" if folder.is_dir() else "is not a folder"
        raise UsageError(
            f"{folder} is not a corpus: it {what}.",
            "Make one with: polyrank corpus DUMP --output DIR.",
        ) from None
    except (OSError, ValueError) as error:
        raise DataError(f"The file cannot be read: {error}.", REMEDY, path=path) from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise DataError(f'The file does not have the format "{FORMAT}".', REMEDY, path=path)
    if content.get("version") != VERSION:
        raise DataError(
            f"The corpus has version {content.get('version')}, but this polyrank reads {VERSION}.",
            "Make the corpus again, or use the version of polyrank that made it.",
            path=path,
        )
    try:
        dropped = {
            reason: from_mapping(DroppedCount, found, where=reason)
            for reason, found in content["dropped"].items()
        }
        parts = tuple(from_mapping(Part, part, where="part") for part in content["parts"])
        known = {field.name for field in dataclasses.fields(Manifest)}
        values = {name: value for name, value in content.items() if name in known}
        manifest = Manifest(**{**values, "dropped": dropped, "parts": parts})
        require_sound(manifest)
        return manifest
    except (KeyError, TypeError, AttributeError, ValueError, UsageError) as error:
        raise DataError(f"The file is damaged: {error}.", REMEDY, path=path) from error


REMEDY = "Make the corpus again with: polyrank corpus DUMP --output DIR --restart."


def require_sound(manifest: Manifest) -> None:
    """Raise ValueError for values of another type, and for parts outside the folder."""
    texts = [manifest.kind, manifest.language, *([manifest.damage] if manifest.damage else [])]
    if not all(isinstance(each, str) for each in texts) or manifest.kind not in get_args(Kind):
        raise ValueError("kind, language or damage is not one of its values")
    if not all(isinstance(each, dict) for each in (manifest.source, manifest.settings)):
        raise ValueError("source or settings is not an object")
    if not all(re.fullmatch("[0-9a-f]{64}", part.sha256) for part in manifest.parts):
        raise ValueError("a checksum is not one")
    counts = [*manifest.counts.values(), *(part.rows for part in manifest.parts)]
    if not all(type(count) is int and 0 <= count <= sys.maxsize for count in counts):
        raise ValueError("a count is not a whole number, or larger than any")
    documents = sum(part.rows for part in manifest.parts)
    if documents != manifest.counts.get(manifest.kind):
        raise ValueError(f"the parts have {documents:,} documents, and the counts others")
    for part in manifest.parts:
        if Path(part.file).name != part.file:
            raise ValueError(f"the part {part.file!r} lies in another folder")


class DroppedCounter:
    """Reasons with how often each came, and the first places."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.examples: dict[str, list[str]] = {}

    def add(self, dropped: Dropped) -> None:
        """Count one."""
        reason = dropped.reason
        self.counts[reason] = self.counts.get(reason, 0) + 1
        examples = self.examples.setdefault(reason, [])
        if len(examples) < NUM_EXAMPLES:
            examples.append(" ".join(dropped.where.split())[:LONGEST_EXAMPLE])

    def merge(self, other: Mapping[str, Any]) -> None:
        """Count what another counter gave by `plain`, which comes after this one's."""
        for reason, (count, examples) in other.items():
            self.counts[reason] = self.counts.get(reason, 0) + count
            mine = self.examples.setdefault(reason, [])
            mine += examples[: NUM_EXAMPLES - len(mine)]

    def plain(self) -> dict[str, tuple[int, list[str]]]:
        """Counts and examples by reason, for JSON and for other processes."""
        return {reason: (count, self.examples[reason]) for reason, count in self.counts.items()}

    def report(self) -> dict[str, DroppedCount]:
        """The most frequent reason first."""
        return {
            reason: DroppedCount(count=count, examples=tuple(self.examples[reason]))
            for reason, count in sorted(self.counts.items(), key=lambda item: (-item[1], item[0]))
        }
