"""Results that are kept in a folder, each in a small file named by the digest of its key.

A key is all that a result depends on. Knows JSON; knows nothing of what the results mean.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from polyrank.storage import write_text

KEPT = "evaluations"
"""The folder of kept results in that of a comparison."""

FORMAT = 1


class Store:
    """Results in a folder, by the digest of what they depend on."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, key: Sequence[object]) -> Path:
        """The file of a result."""
        digest = hashlib.sha256(json.dumps([FORMAT, *key]).encode()).hexdigest()
        return self.folder / f"{key[0]}-{digest[:32]}.json"

    def get(self, key: Sequence[object], parse: Callable[[Any], Any]) -> Any:
        """A kept result, or None where there is none that can be read."""
        try:
            return parse(json.loads(self.path(key).read_text(encoding="utf-8")))
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None

    def put(self, key: Sequence[object], result: Any) -> None:
        """Keep a result. Raises StorageError."""
        write_text(self.path(key), json.dumps(result) + "\n")
