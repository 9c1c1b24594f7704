"""Parses JSON that anybody may have written: whatever is wrong with it is a JSONDecodeError.

Knows nothing of files.
"""

from __future__ import annotations

import json
import re
import sys
from typing import Any

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


def decoded(text: str | bytes) -> str:
    """The text that an error shows the place in."""
    return text if isinstance(text, str) else text.decode("utf-8", "replace")
