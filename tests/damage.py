"""Damaged bytes: a valid file with a few edits, or JSON with absurd values. Hypothesis draws them;
those with one value replaced are also made one after the other.

Knows nothing of what reads them.
"""

from __future__ import annotations

import codecs
import itertools
import json
import re
from collections.abc import Iterator, Sequence
from typing import Any
from xml.sax.saxutils import escape

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st

DIGITS = 10_000
DEPTH = 100_000
MOST_EDITS = 4
LONGEST_SPAN = 64
HEADER = 400
"""Bytes at the beginning of a file that are hit more often."""
FIRST = 2
"""How many values of a long list or object stand for all of them."""
MOST_KEYS = 60
"""An object with more is a table, such as a vocabulary, not a description."""
PLACEHOLDER = "\x00absurd\x00"

TOKENS = (
    b"\x00",
    codecs.BOM_UTF8,
    codecs.BOM_UTF16_LE,
    b"\xff\xfe\xfd",
    b"\xed\xa0\x80",  # half of a surrogate pair in UTF-8
    b"\xc3",
    b"\r",
    b"\n",
    b"\n\n",
    b"\t",
    b'"',
    b"'",
    b"\\",
    b"\\u0000",
    b"\\ud800",
    b",",
    b"{",
    b"}",
    b"[",
    b"]",
    b"[" * DEPTH,
    b'{"a":' * (DEPTH // 5),
    b"1" * DIGITS,
    b"-" + b"9" * DIGITS,
    b"1e400",
    b"1e-400",
    b"NaN",
    b"-Infinity",
    b"Infinity",
    b"null",
    b"true",
    b"!!python/object:os.system",
    b"&a [*a]",
    b"../",
    b"\xe2\x80\xae",  # right-to-left override
    b"\xe2\x80\xa8",  # line separator
    b"\x1b[31m",
    b"PK\x03\x04",
    b"\x1f\x8b",
)
"""What readers stumble over."""

RAW_VALUES = (
    "null",
    "true",
    "false",
    "0",
    "-1",
    "0.5",
    str(2**31),
    str(2**63),
    str(-(2**63) - 1),
    "1e308",
    "1e400",
    "-0.0",
    "NaN",
    "Infinity",
    "-Infinity",
    "1" * DIGITS,
    "[" * 900 + "]" * 900,
    "[" * DEPTH + "]" * DEPTH,
    '""',
    '" "',
    '"\\u0000"',
    '"\\ud800"',
    '"a\\nb"',
    '"../../x"',
    '"/etc/passwd"',
    '"cuda"',
    '"' + "a" * DIGITS + '"',
    "[]",
    "{}",
    "[null]",
    '[""]',
    '[["a"]]',
    '{"a": 1}',
    "[1, 2]",
)
"""JSON values, as they are written, that stand in place of a right one."""


SIGNS = (
    *(
        '"',
        '\\"',
        "'",
        "\\",
        ",",
        ";",
        "\t",
        "\n",
        "\r\n",
        " ",
        "a ",
        "a,",
        '"a",',
        '"\n',
        "{",
        "[",
    ),
    *("[1,", '{"a":1}\n', "- ", "a: ", "&a ", "*a ", "1", "-1", "1e", "and ", "not ", "in (", "?!"),
    *(
        ". ",
        "A. ",
        "e.g. ",
        "...",
        "CHAPTER I\n",
        "<a>",
        "<",
        "&",
        "%",
        "|",
        "=",
        "\u0301",
        "\u202e",
    ),
    *(
        "[[",
        "]]",
        "{{",
        "{|",
        "<ref>",
        "<!--",
        "''",
        "==",
        "\n*",
        "[http://",
        "[[a|",
        "{{a|",
        "<br>",
    ),
)
"""What takes more than linear time if a rule of a grammar begins again at each of them."""


def drawing(count: int, *, anew: bool) -> settings:
    """How so many cases are drawn: others each time (`anew`), or always the same."""
    return settings(
        max_examples=count,
        derandomize=not anew,
        database=None,
        deadline=None,
        phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )


@st.composite
def edited(draw: st.DrawFn, data: bytes) -> bytes:
    """A file with one to four edits: bytes flipped, replaced, inserted, repeated or cut off."""
    found = bytearray(data)
    for _ in range(draw(st.integers(1, MOST_EDITS))):
        place = draw(st.integers(0, len(found)) | st.integers(0, min(len(found), HEADER)))
        kind = draw(st.sampled_from(("flip", "write", "insert", "remove", "repeat", "cut")))
        size = draw(st.integers(1, LONGEST_SPAN))
        if kind == "flip" and place < len(found):
            found[place] ^= 1 << draw(st.integers(0, 7))
        elif kind == "write":
            found[place : place + size] = draw(st.binary(max_size=size))
        elif kind == "insert":
            found[place:place] = draw(st.sampled_from(TOKENS))
        elif kind == "remove":
            del found[place : place + size]
        elif kind == "repeat":
            found[place:place] = found[place : place + size] * draw(st.integers(1, 20))
        elif kind == "cut":
            del found[place:]
    return bytes(found)


@st.composite
def changed_json(draw: st.DrawFn, data: bytes) -> bytes:
    """JSON, or objects of JSON on lines, with one or two values that are absurd or missing."""
    lines = documents(data)
    at = draw(st.integers(0, len(lines) - 1))
    value = json.loads(lines[at])
    absurd: list[str] = []
    for _ in range(draw(st.integers(1, 2))):
        place = draw(st.sampled_from(list(places_of(value))))
        if place and draw(st.integers(0, 4)) == 0:
            inner = value_at(value, place[:-1])
            del inner[place[-1]]
            continue
        absurd.append(draw(st.sampled_from(RAW_VALUES)))
        stand_in = f"{PLACEHOLDER}{len(absurd) - 1}"
        if not place:
            value = stand_in
            break
        value_at(value, place[:-1])[place[-1]] = stand_in
    text = json.dumps(value, ensure_ascii=draw(st.booleans()))
    for number, raw in enumerate(absurd):
        text = text.replace(json.dumps(f"{PLACEHOLDER}{number}"), raw)
    lines[at] = text
    return "\n".join(lines).encode("utf-8", "surrogatepass")


def with_every_value(data: bytes, part: int = 0, parts: int = 1) -> Iterator[bytes]:
    """JSON with each of its values replaced by each absurd one, and without it; one part of these.

    Only the first values of a list, of a long object (a vocabulary) and of a file with an object on
    each line are replaced.
    """
    lines = documents(data)
    choices = (
        (at, place, raw)
        for at, line in enumerate(lines[:FIRST])
        for place in places_of(json.loads(line), FIRST)
        for raw in (*RAW_VALUES, *([None] if place else []))
    )
    for at, place, raw in itertools.islice(choices, part, None, parts):
        value = json.loads(lines[at])
        if raw is None:
            del value_at(value, place[:-1])[place[-1]]
            text = json.dumps(value)
        elif place:
            value_at(value, place[:-1])[place[-1]] = PLACEHOLDER
            text = json.dumps(value).replace(json.dumps(PLACEHOLDER), raw)
        else:
            text = raw
        changed = [*lines[:at], text, *lines[at + 1 :]]
        yield "\n".join(changed).encode("utf-8", "surrogatepass")


def damaged(data: bytes) -> st.SearchStrategy[bytes]:
    """A file with edits; where it is JSON, also one with absurd values."""
    return st.one_of(edited(data), changed_json(data)) if is_json(data) else edited(data)


def with_signs(data: bytes, sign: str, size: int) -> Iterator[bytes]:
    """A file to whose end, first text in JSON and first text in XML a sign is added many times."""
    signs = (sign * (size // len(sign) + 1))[:size]
    yield data + b"\n" + signs.encode()
    place = re.search(rb': ?"([^"\\]*)"', data) if is_json(data) else None
    if place:
        yield data[: place.start(1)] + json.dumps(signs)[1:-1].encode() + data[place.end(1) :]
    end = data.find(b"</text>")
    if end >= 0:
        yield data[:end] + escape(signs).encode() + data[end:]


def documents(data: bytes) -> list[str]:
    """The lines of a file that has an object of JSON on each, or else the whole file."""
    text = data.decode("utf-8")
    return text.splitlines() if "\n{" in text.strip() else [text]


def is_json(data: bytes) -> bool:
    """Whether a file is JSON, or has a JSON object on each line."""
    try:
        for document in documents(data):
            json.loads(document)
    except ValueError:
        return False
    return True


def places_of(
    value: Any, first: int | None = None, place: tuple[Any, ...] = ()
) -> Iterator[tuple[Any, ...]]:
    """The place of a value and of each value in it, as keys and numbers from the outside.

    With `first`, only so many values of each list and of each object that is longer than MOST_KEYS.
    """
    yield place
    inner: list[tuple[Any, Any]] = []
    if isinstance(value, dict):
        inner = list(value.items())[: first if len(value) > MOST_KEYS else None]
    elif isinstance(value, list):
        inner = list(enumerate(value))[:first]
    for step, one in inner:
        yield from places_of(one, first, (*place, step))


def value_at(value: Any, place: Sequence[Any]) -> Any:
    """The value at a place."""
    for step in place:
        value = value[step]
    return value
