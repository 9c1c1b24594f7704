"""Parses JSON that anybody may have written: whatever is wrong with it is a JSONDecodeError.

Knows nothing of files.
"""

from __future__ import annotations

import json
import re
import sys
from typing import Any

LONE = re.compile(r"\\u[dD][89a-fA-F]")
MOST_NESTED = 128
"""How many lists and objects may lie in each other; as many as in serde, which tokenizers uses."""
TOO_DEEP = f"Lists and objects are nested more than {MOST_NESTED} deep"


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
        value = json.loads(text)
        if is_nested_too_deep(value, text):
            raise json.JSONDecodeError(TOO_DEEP, decoded(text), 0)
        return value
    except json.JSONDecodeError:
        raise
    except RecursionError:
        raise json.JSONDecodeError(TOO_DEEP, decoded(text), 0) from None
    except UnicodeDecodeError:
        raise
    except ValueError as error:
        whole, most = decoded(text), sys.get_int_max_str_digits()  # in Python since 3.10.7
        found = re.search(rf"\d{{{most + 1},}}", whole)
        problem = str(error) if found is None else f"A number has more than {most:,} digits"
        raise json.JSONDecodeError(problem, whole, found.start() if found else 0) from None


def is_nested_too_deep(value: Any, text: str | bytes) -> bool:
    """Whether lists and objects lie in each other deeper than MOST_NESTED.

    Python parses more than it can then write or copy.
    """
    opening = (b"[", b"{") if isinstance(text, bytes) else ("[", "{")
    if sum(map(text.count, opening)) <= MOST_NESTED:  # type: ignore[arg-type]
        return False
    level = [value]
    for _ in range(MOST_NESTED):
        inner = (each.values() if isinstance(each, dict) else each for each in level)
        level = [one for each in inner for one in each if isinstance(one, (dict, list))]
        if not level:
            return False
    return True


def parse_readable_json(text: str) -> Any:
    """`parse_json`, with U+FFFD in place of lone surrogates.

    UTF-8 cannot write lone surrogates. Programs that cut a text in the middle of an emoji leave
    them.
    """
    value = parse_json(text)
    if "\\u" not in text or not LONE.search(text):
        return value
    return readable(value)


def readable(value: Any) -> Any:
    """A value of JSON without lone surrogates."""
    if isinstance(value, str):
        return without_lone_surrogates(value)
    if isinstance(value, list):
        return [readable(item) for item in value]
    if isinstance(value, dict):
        return {without_lone_surrogates(name): readable(item) for name, item in value.items()}
    return value


def without_lone_surrogates(text: str) -> str:
    """A text with the replacement character, U+FFFD, in place of lone surrogates."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def decoded(text: str | bytes) -> str:
    """The text that an error shows the place in."""
    return text if isinstance(text, str) else text.decode("utf-8", "replace")
