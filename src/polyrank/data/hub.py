"""Reads data sets of the Hugging Face hub, `hub:NAME[:CONFIG][:SPLIT]`. No remote code is run.

NAME is what `datasets.load_dataset` takes: a hub id, or a folder of data files.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from polyrank.data.source import Source
from polyrank.errors import DataError, MissingExtraError, UsageError, nearest

PREFIX = "hub:"
USUAL = ("test", "validation", "valid", "dev", "train")
"""The splits to evaluate on, preferred first; the last is the one to train on."""


class Address(NamedTuple):
    """A data set of the hub."""

    name: str
    config: str | None
    split: str | None


def is_hub(path: Path) -> bool:
    """Whether a path is the address of a hub data set."""
    return str(path).startswith(PREFIX)


def parse_address(path: Path) -> Address:
    """Split an address; the second of two parts is a split if it has a split's name.

    Raises UsageError.
    """
    name, *parts = str(path).removeprefix(PREFIX).split(":")
    if not name or len(parts) > 2 or not all(parts):
        raise UsageError(
            f"{path} does not name a data set.",
            "Write hub:NAME, hub:NAME:SPLIT, hub:NAME:CONFIG or hub:NAME:CONFIG:SPLIT.",
        )
    if len(parts) == 2:
        return Address(name, parts[0], parts[1])
    if parts and parts[0] in USUAL:
        return Address(name, None, parts[0])
    return Address(name, parts[0] if parts else None, None)


def read_hub(source: Source, *, named: bool = True) -> Iterator[dict[str, Any]]:
    """Yield the rows of a data set; if `named`, classes by their names, and by "-" without one.

    Raises MissingExtraError, UsageError, DataError.
    """
    rows = load_split(source, parse_address(source.path))
    yield from with_class_names(rows, rows.features) if named else rows


def with_class_names(
    rows: Iterable[dict[str, Any]], features: Mapping[str, Any]
) -> Iterator[dict[str, Any]]:
    """Yield the rows with their classes by name; "-" where a number has no name."""
    names = class_names(features)
    for row in rows:
        classes = {
            column: (known[row[column]] if 0 <= row[column] < len(known) else "-")
            for column, known in names.items()
            if row.get(column) is not None
        }
        yield {**row, **classes}


def load_split(source: Source, address: Address) -> Any:
    """The data set of one split."""
    try:
        import datasets
    except ImportError:
        raise MissingExtraError("datasets", "hub", "Reading data sets of the hub") from None
    had_bars = datasets.utils.logging.is_progress_bar_enabled()
    datasets.disable_progress_bars()
    try:
        found = datasets.load_dataset(address.name, address.config)
    except (OSError, ValueError, RuntimeError, datasets.exceptions.DatasetsError) as error:
        reason = " ".join(str(error).split()).rstrip(".")
        raise DataError(
            f"The data set cannot be loaded: {reason[:300]}.",
            "Check its name and the network; data sets that need their own code are not supported.",
            path=source.path,
        ) from error
    finally:
        if had_bars:
            datasets.enable_progress_bars()
    return found[chosen_split(source, address.split or source.split, found)]


def chosen_split(source: Source, wanted: str | None, found: Mapping[str, Any]) -> str:
    """The split that was asked for, or the usual one. Raises UsageError if it is missing."""
    if wanted is None:
        usual = reversed(USUAL) if source.training else USUAL
        return next((name for name in usual if name in found), next(iter(found)))
    if wanted not in found:
        raise UsageError(f"{source.path} has no split {wanted!r}.", nearest(wanted, found))
    return wanted


def class_names(features: Any) -> dict[str, list[str]]:
    """The names of the classes of each column that has numbered classes."""
    return {
        column: list(feature.names)
        for column, feature in features.items()
        if type(feature).__name__ == "ClassLabel"
    }
