"""Filters over the metadata of candidates, written like conditions in Python.

    lang == "en" and (year >= 2020 or not archived == true) and topic in ["disk", "boot"]

A condition compares a field with a text, a number or a truth value by == != < <= > >= in, not in;
`a <= field < b` is two conditions. Conditions are joined by and, or, not and parentheses. A
condition on a field that a candidate does not have is false; `not` makes that true.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from polyrank.errors import UsageError, nearest
from polyrank.records import Value

Operator = Literal["==", "!=", "<", "<=", ">", ">="]

OPERATORS: Mapping[type[ast.cmpop], Operator] = {
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
}
MIRRORED: Mapping[Operator, Operator] = {
    "==": "==",
    "!=": "!=",
    "<": ">",
    "<=": ">=",
    ">": "<",
    ">=": "<=",
}
COMPARE: Mapping[Operator, Callable[[Value, Value], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
KINDS: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int, float),
    "number": (int, float),
    "boolean": (bool,),
}
"""The kinds of metadata fields, and the types of values that each can be compared with."""

LONGEST_SHOWN = 10_000
"""Characters of a filter of which an error names the part that is wrong."""
HELP = 'Write it like: lang == "en" and year >= 2020 and topic in ["disk", "boot"].'


@dataclass(frozen=True, slots=True)
class Comparison:
    """`field operator value`."""

    field: str
    operator: Operator
    value: Value


@dataclass(frozen=True, slots=True)
class Membership:
    """`field in values`."""

    field: str
    values: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class All:
    """All of `parts` hold."""

    parts: tuple[Filter, ...]


@dataclass(frozen=True, slots=True)
class Any:
    """At least one of `parts` holds."""

    parts: tuple[Filter, ...]


@dataclass(frozen=True, slots=True)
class Not:
    """`part` does not hold."""

    part: Filter


Condition: TypeAlias = Comparison | Membership
Filter: TypeAlias = Comparison | Membership | All | Any | Not


def parse_filter(text: str | Filter) -> Filter:
    """Read a filter; one that has been read stays as it is. Raises UsageError."""
    if isinstance(text, (Comparison, Membership, All, Any, Not)):
        return text
    if not isinstance(text, str):
        raise UsageError(f"filter must be a text, got {text!r}.", HELP)
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        place = getattr(error, "offset", None)
        found_at = f" at character {place}" if place else ""
        raise UsageError(f"The filter {text!r} cannot be read{found_at}.", HELP) from error
    try:
        return read_node(tree.body, text)
    except RecursionError as error:
        raise UsageError("The filter is nested too deeply.", HELP) from error


def read_node(node: ast.expr, text: str) -> Filter:
    """A node of Python's syntax as a filter. Raises UsageError if it is not one."""
    if isinstance(node, ast.BoolOp):
        parts = tuple(read_node(part, text) for part in node.values)
        return All(parts) if isinstance(node.op, ast.And) else Any(parts)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return Not(read_node(node.operand, text))
    if isinstance(node, ast.Compare):
        sides = [node.left, *node.comparators]
        pairs = zip(sides, node.ops, sides[1:], strict=False)
        parts = tuple(read_comparison(left, op, right, text) for left, op, right in pairs)
        return parts[0] if len(parts) == 1 else All(parts)
    if isinstance(node, ast.Name):
        raise UsageError(
            f"The filter {text!r} names the field {node.id!r} without comparing it.",
            f"For a truth value write {node.id} == true.",
        )
    raise unreadable(node, text)


def read_comparison(left: ast.expr, op: ast.cmpop, right: ast.expr, text: str) -> Filter:
    """One comparison of a field and a value, in either order."""
    if isinstance(op, (ast.In, ast.NotIn)):
        if not isinstance(right, (ast.List, ast.Tuple, ast.Set)):
            raise unreadable(right, text)
        values = tuple(read_value(item, text) for item in right.elts)
        if not values:
            raise UsageError(f"The filter {text!r} has an empty list.", HELP)
        inside = Membership(read_field(left, text), values)
        return inside if isinstance(op, ast.In) else All((present(inside), Not(inside)))
    name = OPERATORS.get(type(op))
    if name is None:
        raise UsageError(f"The filter {text!r} uses `is`.", "Write == or != instead.")
    if is_value(left):
        left, right, name = right, left, MIRRORED[name]
    return Comparison(read_field(left, text), name, read_value(right, text))


def present(inside: Membership) -> Filter:
    """For `not in`: the field must exist, that is, be equal to some value or not equal to it."""
    first = inside.values[0]
    equal = Comparison(inside.field, "==", first)
    return Any((equal, Comparison(inside.field, "!=", first)))


def is_value(node: ast.expr) -> bool:
    """Whether a node is a constant."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        node = node.operand
    return isinstance(node, ast.Constant) or (
        isinstance(node, ast.Name) and node.id in ("true", "false")
    )


def read_field(node: ast.expr, text: str) -> str:
    """The name of a field."""
    if isinstance(node, ast.Name) and not is_value(node):
        return node.id
    raise unreadable(node, text)


def read_value(node: ast.expr, text: str) -> Value:
    """A constant: a text, a number or a truth value."""
    if isinstance(node, ast.Name) and node.id in ("true", "false"):
        return node.id == "true"
    negative = isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub)
    constant = node.operand if isinstance(node, ast.UnaryOp) and negative else node
    if isinstance(constant, ast.Constant):
        value = constant.value
        if not negative and isinstance(value, (str, int, float)):
            return value
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return -value
    if isinstance(node, ast.Name):
        raise UsageError(
            f"The filter {text!r} has {node.id!r} where a value belongs.",
            f'Write texts in quotes: "{node.id}".',
        )
    raise unreadable(node, text)


def unreadable(node: ast.expr, text: str) -> UsageError:
    """The error of a part that cannot be read as a filter."""
    whole = len(text) > LONGEST_SHOWN  # to look for the part in it would take seconds
    part = text if whole else ast.get_source_segment(text.strip(), node)
    return UsageError(f"The part {part!r} of the filter {text!r} cannot be read.", HELP)


def conditions(filter: Filter) -> Iterator[Condition]:
    """Every condition of a filter."""
    if isinstance(filter, (All, Any)):
        for part in filter.parts:
            yield from conditions(part)
    elif isinstance(filter, Not):
        yield from conditions(filter.part)
    else:
        yield filter


def require_fields(filter: Filter, kinds: Mapping[str, str]) -> None:
    """Check a filter against the fields of an index and their kinds (see KINDS).

    Raises UsageError for a field the index does not have, naming the nearest, or a value of
    another kind.
    """
    for condition in conditions(filter):
        kind = kinds.get(condition.field)
        if kind is None:
            remedy = nearest(condition.field, list(kinds))
            if not kinds:
                remedy = 'It has none: index JSONL of {"id", "text", "metadata": {"name": value}}.'
            raise UsageError(f"The index has no field {condition.field!r}.", remedy)
        values = condition.values if isinstance(condition, Membership) else (condition.value,)
        for value in values:
            fits = isinstance(value, KINDS[kind]) and (
                kind == "boolean" or not isinstance(value, bool)
            )
            if not fits:
                raise UsageError(
                    f"The field {condition.field!r} is of the kind {kind} and cannot be compared "
                    f"with {value!r}.",
                    HELP,
                )


def evaluate(filter: Filter, leaf: Callable[[Condition], NDArray[np.bool_]]) -> NDArray[np.bool_]:
    """Which rows pass, given which rows pass each condition: (rows,)."""
    if isinstance(filter, All):
        return np.logical_and.reduce([evaluate(part, leaf) for part in filter.parts])
    if isinstance(filter, Any):
        return np.logical_or.reduce([evaluate(part, leaf) for part in filter.parts])
    if isinstance(filter, Not):
        return ~evaluate(filter.part, leaf)
    return leaf(filter)


def holds(condition: Condition, value: Value) -> bool:
    """Whether a condition holds for a value of its field."""
    if isinstance(condition, Membership):
        return value in condition.values
    return COMPARE[condition.operator](value, condition.value)
