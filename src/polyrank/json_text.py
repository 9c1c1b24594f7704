"""Parses JSON that anybody may have written: whatever is wrong with it is a JSONDecodeError.

Knows nothing of files.
"""

from __future__ import annotations

import json
import re
import sys
from typing import Any

HALF = re.compile(r"\\u[dD][89a-fA-F]")
MOST_NESTED = 500
"""How many lists and objects may lie in each other."""


def parse_json(text: str | bytes) -> Any:
    """The value of a JSON text.

    Args:
        text: The text; bytes are UTF-8, UTF-16 or UTF-32.

    Returns:
        The value. A number without a fraction is an `int` of any size up to Python's limit.

    Raises:
        json.JSONDecodeError: It is not JSON, too deeply nested, or has an integer with more digits
            than Python converts. The error is a ValueError, as that for bytes that are no text.
    """
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        raise
    except RecursionError:
        problem = f"Lists and objects are nested more than {MOST_NESTED} deep"
        raise json.JSONDecodeError(problem, decoded(text), 0) from None
    except UnicodeDecodeError:
        raise
    except ValueError as error:
        whole, most = decoded(text), sys.get_int_max_str_digits()
        found = re.search(rf"\d{{{most + 1},}}", whole)
        problem = str(error) if found is None else f"A number has more than {most:,} digits"
        raise json.JSONDecodeError(problem, whole, found.start() if found else 0) from None


def parse_whole_signs(text: str) -> Any:
    """`parse_json`, with a question mark for each half of a surrogate pair.

    UTF-8 cannot write halves. Programs that cut texts in the middle of an emoji leave them.
    """
    value = parse_json(text)
    return with_whole_signs(value) if "\\u" in text and HALF.search(text) else value


def with_whole_signs(value: Any) -> Any:
    """A value of JSON without halves of surrogate pairs."""
    if isinstance(value, str):
        return without_halves(value)
    if isinstance(value, list):
        return [with_whole_signs(item) for item in value]
    if isinstance(value, dict):
        return {without_halves(name): with_whole_signs(item) for name, item in value.items()}
    return value


def without_halves(text: str) -> str:
    """A text in which halves of surrogate pairs, which UTF-8 cannot write, are question marks."""
    return text.encode("utf-8", "replace").decode("utf-8")


def decoded(text: str | bytes) -> str:
    """The text that an error shows the place in."""
    return text if isinstance(text, str) else text.decode("utf-8", "replace")
