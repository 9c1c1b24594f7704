"""What a reader of dumps, logs or documents gives, one at a time. Knows no format."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from polyrank.records import Document


class Dropped(NamedTuple):
    """A page or record that did not become a document."""

    reason: str
    """One of a few short words, to count by: `redirect`, `disambiguation`, `broken markup`, …"""
    where: str
    """Its title, line or offset, for the report."""


Reading = Iterator[Document | Dropped]

Reader = Callable[[Path], Reading]
"""Streams a file. Raises DataError, with the place, where it cannot go on."""
