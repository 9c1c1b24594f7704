"""The metadata of a candidate: named texts, numbers and truth values, validated.

Knows what names and values are allowed, but not files or how they are stored.
"""

from __future__ import annotations

import keyword
import math
import unicodedata
from collections.abc import Mapping
from typing import Any

from polyrank.data.files import Blame
from polyrank.records import NO_METADATA, Value

LARGEST_INTEGER = 2**53 - 1
"""Floating-point numbers and most JSON readers do not keep larger whole numbers exactly."""

RESERVED = ("true", "false")
EXAMPLE = 'Write, for example: "metadata": {"lang": "en", "year": 2020}.'


def as_metadata(plain: object, blame: Blame) -> Mapping[str, Value]:
    """The given metadata without null fields. Raises the error that `blame` makes."""
    if plain is None or plain is NO_METADATA:
        return NO_METADATA
    if not isinstance(plain, Mapping):
        raise blame(f"The metadata is {plain!r}, not an object of names and values.", EXAMPLE)
    checked: dict[str, Value] = {}
    for name, value in plain.items():
        require_name(name, blame)
        if value is not None:
            checked[name] = as_value(name, value, blame)
    return checked or NO_METADATA


def require_name(name: object, blame: Blame) -> None:
    """Check that a filter can name the field."""
    if not can_be_filtered(name):
        raise blame(
            f"The metadata field {name!r} has a name that filters cannot use.",
            "Use letters, digits and underscores, but no Python keyword such as `class` or `true`.",
        )


def can_be_filtered(name: object) -> bool:
    """Whether a filter can name a field."""
    return (
        isinstance(name, str)
        and name.isidentifier()
        and not keyword.iskeyword(name)
        and name not in RESERVED
        and unicodedata.normalize("NFKC", name) == name
    )


def as_value(name: str, value: Any, blame: Blame) -> Value:
    """A value as a plain text, number or truth value."""
    if isinstance(value, str):
        try:
            value.encode("utf-8")
        except UnicodeEncodeError:
            raise blame(
                f"The metadata field {name!r} holds half of a surrogate pair.",
                "Remove it, or write the whole pair.",
            ) from None
        return str(value)
    if isinstance(value, bool):
        return value
    if isinstance(value, int) and abs(value) <= LARGEST_INTEGER:
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    if isinstance(value, (int, float)):
        raise blame(
            f"The metadata field {name!r} is {value}, which is not a number up to 2**53 - 1 or a "
            "finite fraction.",
            "Write it as a text, or leave the field out.",
        )
    raise blame(
        f"The metadata field {name!r} is {value!r}, not a text, a number or a truth value.",
        EXAMPLE,
    )
