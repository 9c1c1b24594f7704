"""JSON of anybody's: the values of the standard library's parser, and one kind of error."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polyrank.json_text import parse_json, parse_readable_json

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(VALUES, st.booleans())
def test_values_are_those_of_the_standard_library(value, ascii_only):
    text = json.dumps(value, ensure_ascii=ascii_only)
    assert parse_json(text) == json.loads(text)
    assert parse_json(text.encode()) == json.loads(text)
    assert "\\ud" in text.lower() or parse_readable_json(text) == json.loads(text)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[" * 100_000, "nested more than"),
        ('{"a":' * 100_000, "nested more than"),
        ("[" * 129 + "]" * 129, "nested more than 128 deep"),
        ('[{"a": ' * 65 + "1" + "}]" * 65, "nested more than 128 deep"),
        ('{"a": ' + "1" * 5_000 + "}", "more than 4,300 digits"),
        ("{", "Expecting property name"),
        ("", "Expecting value"),
    ],
)
def test_what_is_wrong_is_a_decode_error(text, problem):
    for given_text in (text, text.encode()):
        with pytest.raises(json.JSONDecodeError, match=problem):
            parse_json(given_text)


@pytest.mark.parametrize(
    "text",
    [
        "[" * 128 + "]" * 128,
        '[{"a": ' * 64 + "1" + "}]" * 64,
        json.dumps("[" * 1_000),
        json.dumps([[]] * 1_000),
        json.dumps({"a": [{}] * 200}),
    ],
)
def test_what_is_not_nested_too_deep(text):
    assert parse_json(text) == parse_json(text.encode()) == json.loads(text)


def test_the_place_of_endless_digits():
    with pytest.raises(json.JSONDecodeError) as caught:
        parse_json('{\n"a": ' + "1" * 5_000 + "}")
    assert (caught.value.lineno, caught.value.colno) == (2, 6)


def test_bytes_that_are_no_text():
    with pytest.raises(UnicodeDecodeError):
        parse_json(b'{"a": "\xff"}')


def test_lone_surrogates_are_replaced():
    half = r'{"a\ud800": ["\uDFFF b", {"c": "\ud83d\ude00"}], "d": "\ud55c"}'
    expected = {"a\ufffd": ["\ufffd b", {"c": "😀"}], "d": "한"}
    assert parse_readable_json(half) == expected
    assert parse_json(half) == json.loads(half)
    with pytest.raises(json.JSONDecodeError, match="nested more than"):
        parse_readable_json("[" * 900 + '"\\ud800"' + "]" * 900)
