"""What is wrong with the fields of a request, in our words: one sentence about one field.

Knows the errors of pydantic, and nothing of single routes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi.exceptions import RequestValidationError

from polyrank.serving.failures import RequestError

MISSING = "there"
EMPTY = "filled"
WHOLE = "The body"
EXPECTED = {
    "missing": MISSING,
    "string_type": "a text",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "int_parsing": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "list_type": "a list",
    "dict_type": "an object",
    "model_type": "an object",
    "model_attributes_type": "an object",
    "literal_error": "{expected}",
    "greater_than_equal": "at least {ge}",
    "greater_than": "above {gt}",
    "less_than_equal": "at most {le}",
    "less_than": "below {lt}",
    "too_short": "a list of at least {min_length}",
    "too_long": "a list of at most {max_length}",
    "string_too_short": "a text of at least {min_length} characters",
    "string_too_long": "a text of at most {max_length} characters",
    "none_required": "null",
}
"""What was expected, by pydantic's types of errors."""
LONGEST_SHOWN = 60
"""A message repeats no more characters than this of what a request holds."""


def described(error: RequestValidationError, query: Mapping[str, str]) -> RequestError:
    """The deepest of the fields that are wrong: what was expected there, and what came.

    Args:
        error: What FastAPI found.
        query: The parameters of the address.
    """
    wrong: dict[str, tuple[int, list[str], Any]] = {}
    for each in error.errors():
        place, *path = each["loc"]
        name, depth, value = field_of(path, dict(query) if place == "query" else error.body, each)
        wrong.setdefault(name, (depth, [], value))[1].append(expectation(each))
    name, (_, expected, value) = max(wrong.items(), key=lambda item: item[1][0])
    param = None if name == WHOLE else name
    if EMPTY in expected:
        return RequestError(
            400, f"{name} is empty.", "Send at least one text.", code="empty_input", param=param
        )
    if MISSING in expected and name != WHOLE:
        problem, remedy = f"{name} is missing.", "Send it; /docs describes the fields."
    else:
        expected = ["an object" if each == MISSING else each for each in expected]
        words = " or ".join(dict.fromkeys(expected))
        problem = f"{name} must be {words}, got {shown(value)}."
        remedy = "Correct it; /docs describes the fields."
    return RequestError(400, problem, remedy, code="invalid_value", param=param)


def field_of(path: list[Any], root: Any, error: Mapping[str, Any]) -> tuple[str, int, Any]:
    """The name of a field, its depth and its value.

    What pydantic puts into a path for the parts of a union is not in the body, and is left out.
    """
    name, depth, value = "", 0, root
    for step in path:
        if isinstance(step, int) and isinstance(value, list) and step < len(value):
            name, value, depth = f"{name}[{step}]", value[step], depth + 1
        elif isinstance(value, dict) and step in value:
            name, value, depth = f"{name}.{step}" if name else str(step), value[step], depth + 1
    if error["type"] == "missing" and path:
        name, depth = f"{name}.{path[-1]}" if name else str(path[-1]), depth + 1
    return name or WHOLE, depth, value


def expectation(error: Mapping[str, Any]) -> str:
    """What was expected, of one error of pydantic."""
    kind, context = error["type"], error.get("ctx", {})
    if kind in ("too_short", "string_too_short") and context["min_length"] == 1:
        return EMPTY
    if kind in EXPECTED:
        return EXPECTED[kind].format(**context)
    message: str = error["msg"]
    return message[:1].lower() + message[1:]


def shown(value: Any) -> str:
    """A value of a body in a few words; texts of users are not repeated at length."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return f"the number {value}"
    if isinstance(value, str):
        cut = value if len(value) <= LONGEST_SHOWN else f"{value[:LONGEST_SHOWN]}…"
        return f"the text {cut!r}"
    if isinstance(value, list):
        return f"a list of {len(value)}"
    return "an object" if isinstance(value, dict) else "another value"
