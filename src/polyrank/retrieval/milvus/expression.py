"""Filters as boolean expressions of Milvus, with the same meaning as everywhere else.

Milvus does not define `not` for a missing field, and its releases differ; the same goes for `!=`.
So `not` never reaches it. It is pushed down to the conditions, where it becomes the opposite
operator or the absence of the field, and `!=` also demands that the field exists.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from polyrank.errors import UsageError
from polyrank.records import Value
from polyrank.retrieval.filters import All, Any, Comparison, Condition, Filter, Not, Operator

PREFIX = "m_"
"""Prefix of metadata fields in Milvus, so that none is called `id` or `text`."""

OPPOSITE: Mapping[Operator, Operator] = {
    "==": "!=",
    "!=": "==",
    "<": ">=",
    "<=": ">",
    ">": "<=",
    ">=": "<",
}
ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"})
INT64 = 2**63

Expression = str | bool
"""An expression, or its value for every candidate."""


def expression(filter: Filter, *, holds: bool = True) -> Expression:
    """A filter, or its negation if `holds` is false. Raises UsageError for a value Milvus lacks."""
    if isinstance(filter, Not):
        return expression(filter.part, holds=not holds)
    if isinstance(filter, (All, Any)):
        parts = [expression(part, holds=holds) for part in filter.parts]
        return joined(parts, conjunction=isinstance(filter, All) == holds)
    return condition(filter, holds=holds)


def joined(parts: Sequence[Expression], *, conjunction: bool) -> Expression:
    """`and` or `or` of expressions; those that are the same for all candidates are evaluated."""
    if any(part is not conjunction for part in parts if isinstance(part, bool)):
        return not conjunction
    texts = [part for part in parts if isinstance(part, str)]
    if not texts:
        return conjunction
    return "(" + (" and " if conjunction else " or ").join(texts) + ")"


def condition(filter: Condition, *, holds: bool) -> Expression:
    """A condition or its negation."""
    field = f"$meta[{quoted(PREFIX + filter.field)}]"
    if isinstance(filter, Comparison):
        operator = filter.operator if holds else OPPOSITE[filter.operator]
        tests = [f"{field} {operator} {literal(filter.value)}"]
    else:
        operator = "==" if holds else "!="
        tests = [f"{field} {operator} {literal(value)}" for value in filter.values]
        if not tests:
            return not holds
        if filter.field.isascii() and all(isinstance(value, str) for value in filter.values):
            listed = ", ".join(literal(value) for value in filter.values)
            tests = [f"{PREFIX}{filter.field} {'in' if holds else 'not in'} [{listed}]"]
    compared = "(" + (" or " if holds else " and ").join(tests) + ")"
    if not holds:
        return f"(not exists {field} or {compared})"
    return f"(exists {field} and {compared})" if operator == "!=" else compared


def literal(value: Value) -> str:
    """A value as Milvus writes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, int):
        if abs(value) >= INT64:
            raise unwritable(value, "whole numbers of 64 bits")
        return str(value)
    if not math.isfinite(value):
        raise unwritable(value, "finite numbers")
    return repr(value)


def quoted(text: str) -> str:
    """A quoted and escaped text."""
    if any(0xD800 <= ord(character) <= 0xDFFF for character in text):
        raise unwritable(text, "texts of Unicode")
    return '"' + text.translate(ESCAPES) + '"'


def unwritable(value: Value, kind: str) -> UsageError:
    """The error for a value that no candidate in Milvus can have."""
    return UsageError(f"Milvus compares with {kind}, got {value!r}.", "Change the filter.")


def among(identifiers: Sequence[str]) -> str:
    """The candidates with these ids."""
    return f"id in [{', '.join(quoted(identifier) for identifier in identifiers)}]"


def both(first: str, second: str) -> str:
    """`and` of two expressions, either of which may be empty."""
    return f"{first} and {second}" if first and second else first or second
