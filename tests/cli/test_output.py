from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from rich.table import Table

from polyrank.cli.output import Output, plain
from polyrank.records import Example, Hit


def test_plain_values() -> None:
    value = {
        "hit": Hit("1", 0.5, "a"),
        "path": Path("a/b"),
        "array": np.array([1.0, np.nan]),
        "number": np.float32(0.5),
        "infinite": float("-inf"),
        "example": Example(context=("a",), response="b"),
        3: (1, None, True),
    }
    assert json.loads(json.dumps(plain(value))) == {
        "hit": {"id": "1", "score": 0.5, "text": "a"},
        "path": "a/b",
        "array": [1.0, None],
        "number": 0.5,
        "infinite": None,
        "example": {
            "context": ["a"],
            "response": "b",
            "id": None,
            "candidates": None,
            "gold": None,
            "negatives": [],
            "scores": None,
        },
        "3": [1, None, True],
    }
    with pytest.raises(TypeError, match="a object cannot"):
        plain(object())


@pytest.mark.parametrize("json_wanted", [False, True])
def test_where_words_go(capsys: pytest.CaptureFixture[str], json_wanted: bool) -> None:
    output = Output(json=json_wanted)
    table = Table()
    table.add_column("name of a column")
    table.add_row("x" * 150)
    output.say("words")
    output.table(table)
    output.warn("careful")
    output.result({"a": "ö"})
    out, err = capsys.readouterr()
    people = err if json_wanted else out
    assert people.startswith("words\n")
    assert "x" * 150 in people
    assert "Warning: careful\n" in err
    assert (out == '{"a": "ö"}\n') is json_wanted
