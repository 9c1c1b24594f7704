import json

import pytest

from polyrank.data.json_files import read_json_array
from polyrank.errors import DataError


@pytest.mark.parametrize("indent", [None, 1])
@pytest.mark.parametrize("chunk", [1, 7, 1 << 20])
def test_arrays_are_read_piece_by_piece(chunk, indent, tmp_path, monkeypatch):
    monkeypatch.setattr("polyrank.data.json_files.PIECE", chunk)
    items = [{"a": [1, 2]}, 12345, "tęxt, ] [", -1.5e3, None, [], {"b": "\n"}]
    path = tmp_path / "array.json"
    path.write_text(json.dumps(items, indent=indent, ensure_ascii=False), encoding="utf-8")
    found = list(read_json_array(path))
    assert [item for _, item in found] == items
    lines = path.read_text(encoding="utf-8").split("\n")
    if indent:
        assert [line for line, _ in found] == [
            number
            for number, text in enumerate(lines, start=1)
            if text[:1] == " " and text[1:2] not in (" ", "}", "]")
        ]
    path.write_text("[ ]")
    assert list(read_json_array(path)) == []


BAD = {
    "cut off in an item": ('[\n {"a": 1},\n {"b":\n  "c', 4, "premature EOF"),
    "cut off behind an item": ('[\n {"a": 1},\n', 2, "premature EOF"),
    "not closed": ('[\n {"a": 1}\n', 2, "premature EOF"),
    "no comma": ('[{"a": 1}\n\n{"b": 2}]', 3, "after array element"),
    "a word in an item": ('[\n {"a": 1},\n {"b":\n  2,\n  "c": no,\n  "d": 1}]', 5, "not JSON"),
    "not a number": ('[{"a": 1},\n {"a": NaN}]', 2, "invalid char"),
    "a large number": ('[\n{"a":\n123456789012345678901234567890}]', 3, "integer overflow"),
    "a large fraction": ('[\n{"a":\n1e400}]', 3, "overflow"),
    "more behind it": ('[{"a": 1}]\n[]', 2, "trailing garbage"),
    "an object": ('\n{"a": 1}', 2, "does not begin with"),
    "nothing": (" \n", 1, "does not begin with"),
}


@pytest.mark.parametrize("case", BAD)
@pytest.mark.parametrize("piece", [1, 1 << 16])
def test_what_is_wrong_is_named_with_its_line(case, piece, tmp_path, monkeypatch):
    monkeypatch.setattr("polyrank.data.json_files.PIECE", piece)
    text, line, message = BAD[case]
    path = tmp_path / "array.json"
    path.write_text(text)
    with pytest.raises(DataError, match=message) as caught:
        list(read_json_array(path))
    assert caught.value.line == line
    assert str(caught.value).startswith(str(path))


def test_values_are_those_of_json(tmp_path):
    path = tmp_path / "array.json"
    items = [
        {"n": [1 - 2**63, 2**63 - 1, 0.1, 1e300, -0.0, 12.0]},
        {"é": "😀\u0000\\", "b": [True]},
    ]
    path.write_text(json.dumps(items))
    found = [item for _, item in read_json_array(path)]
    assert repr(found) == repr(items)
    path.write_text(r'["\ud800 \ud83d\ude00"]')
    assert [item for _, item in read_json_array(path)] == ["? 😀"]


def test_memory_does_not_grow_with_the_array(tmp_path):
    import tracemalloc

    path = tmp_path / "array.json"
    path.write_text(json.dumps([{"text": "x" * 1000, "number": n} for n in range(20_000)]))
    tracemalloc.start()
    assert sum(1 for _ in read_json_array(path)) == 20_000
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2e6
